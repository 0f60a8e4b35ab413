"""A restart of the kernel that keeps the choice: what is saved, which kernel this is, and who restarts it."""
