"""A framework that gpu_magic does not know."""

device = "cpu"
