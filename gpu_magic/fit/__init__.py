"""`%gpu_fit`: predict the memory of a step on copies without data."""
