"""What can be called from Python: all that the magics do."""
