"""The kind of this process, its variables, the GPUs it was given, and when and how CUDA started."""
