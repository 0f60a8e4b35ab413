"""The memory of a step, predicted on copies that have no data: `%gpu_fit`."""
