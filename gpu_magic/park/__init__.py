"""Park variables in the host's memory, and bring them back to their GPUs: `%gpu_park`, `%gpu_unpark`."""
