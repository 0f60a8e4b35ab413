"""What cells cost: time, memory, energy, and who else used the same GPUs."""
