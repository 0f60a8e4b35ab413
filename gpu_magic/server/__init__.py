"""A Jupyter server extension that shows the GPUs in pages whose kernels have not loaded gpu_magic.

`jupyter server extension disable gpu_magic` turns it off.
"""
