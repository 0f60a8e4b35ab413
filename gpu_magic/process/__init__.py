"""What this process is and was given, its variables, and whether CUDA has started, since when, by what."""
