"""What is promised when something fails: faults of the machine, faces of gpu_magic, and all of them together.

`faults` has what can fail, `faces` what users type meanwhile, `promises` what has to hold after each cell. The test
runs every fault with every face in real kernels, and `python -m tests.reliability` draws found.md from what it has found.
"""
