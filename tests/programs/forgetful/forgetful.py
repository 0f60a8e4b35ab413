"""A framework whose entry point does not lead to a plug-in that can be made."""
