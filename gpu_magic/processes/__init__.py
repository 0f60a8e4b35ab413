"""List and end the user's own processes on GPUs: `%gpu_ps`, `%gpu_ps end 4711`."""
