"""Measurements of gpu_magic beside the alternatives: `python -m benchmarks`."""
