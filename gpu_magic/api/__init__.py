"""What can be called from Python: what the magics do, but for what needs a cell."""
