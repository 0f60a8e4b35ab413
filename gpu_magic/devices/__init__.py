"""The GPUs of this machine and their figures, as the driver reports them."""
