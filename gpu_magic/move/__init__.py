"""Move variables to a device, all or none. Tied weights and views stay tied: `%to_gpu`, `%to_cpu`."""
