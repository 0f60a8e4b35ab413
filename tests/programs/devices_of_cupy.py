"""`devices_of` with CuPy's stand-in."""

import cupy

from gpu_magic import devices_of


def arrays():
    with cupy.cuda.Device(3):
        x = cupy.ones(10)
    return {"views": devices_of(x, x[:2]), "shown": repr(devices_of(x))}
