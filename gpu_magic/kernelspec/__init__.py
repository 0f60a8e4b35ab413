"""Kernels that start with GPUs: adds them to Jupyter, and chooses their GPUs before the first cell."""
