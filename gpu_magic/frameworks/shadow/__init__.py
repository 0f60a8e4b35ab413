"""Copies of the user's objects, and code that runs over them: the notebook's own are not touched."""
