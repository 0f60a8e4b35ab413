"""A Jupyter server extension that shows the GPUs in pages whose kernels have loaded nothing.

`jupyter server extension disable gpu_magic` turns it off.
"""
