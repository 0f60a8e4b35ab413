"""What GPUs there are, now: facts, from the driver. Knows no notebook and no framework."""
