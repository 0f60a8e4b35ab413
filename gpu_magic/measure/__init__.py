"""What a cell or a block took: time, memory, energy, and who else used the same GPUs."""
