"""Launches commands on chosen GPUs, in the order of the choice, and ends all processes of the commands."""
