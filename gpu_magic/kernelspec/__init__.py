"""Kernels that start with GPUs: what adds them to Jupyter, and what runs in them before the first cell."""
