"""CUDA in this process: is it too late to choose? The driver is asked, and neither loaded nor started."""
