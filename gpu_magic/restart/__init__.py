"""A restart of the kernel that keeps the choice: the saved choice, and who restarts."""
