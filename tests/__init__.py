"""A package, because Python finds one before folders: IPython 7 adds a folder with a package `tests` to sys.path."""
