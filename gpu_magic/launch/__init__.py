"""Launches commands on chosen GPUs, in the order of the choice, and leaves nothing of them behind."""
