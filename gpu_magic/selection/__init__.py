"""Which GPUs to choose: pure functions of the request, the machine and what the kernel may use."""
