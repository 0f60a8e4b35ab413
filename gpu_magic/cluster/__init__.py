"""IPython engines of ipyparallel with one GPU each, for interactive work on several GPUs."""
