"""Move variables to a device, and give memory back."""
