"""A framework whose entry point leads nowhere."""
