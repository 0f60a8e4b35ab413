"""The user's own processes on GPUs, and their end: `%gpu_ps`, `%gpu_ps end 4711`."""
