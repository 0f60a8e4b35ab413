"""A restart of the kernel that keeps the choice."""
