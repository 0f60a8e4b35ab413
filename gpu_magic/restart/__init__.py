"""Restarts the kernel and keeps the choice of GPUs."""
