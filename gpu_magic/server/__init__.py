"""A Jupyter server extension that shows the GPUs in pages whose kernels have not loaded gpu_magic.

With `c.GpuMagic.cull_idle_gpu`, it also ends kernels that hold GPU memory idle.
`jupyter server extension disable gpu_magic` turns it off.
"""
