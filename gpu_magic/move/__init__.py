"""Moves variables to a device, all or none, and keeps what ties them together."""
