"""Claims: advisory locks on GPUs that all users' processes on a machine see."""
