"""A restart of the kernel that keeps the choice: the saved choice, which kernel this is, who restarts it."""
