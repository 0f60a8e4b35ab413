"""The time, memory and energy of a cell or a block, and the other users of its GPUs: `%%gpu_time`."""
