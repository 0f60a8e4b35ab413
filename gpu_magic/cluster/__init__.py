"""IPython engines with a GPU each, for interactive work on several: ipyparallel's, and what it lacks."""
