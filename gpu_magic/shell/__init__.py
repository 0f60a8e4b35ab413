"""What magics need of IPython."""
