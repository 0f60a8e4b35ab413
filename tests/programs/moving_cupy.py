"""`to_gpu` with CuPy's stand-in, beside PyTorch."""

import cupy
import numpy as np
import torch  # noqa: F401 - it is to be imported

from gpu_magic import to_cpu, to_gpu


def views():
    x = cupy.ones(6)
    whole, part, (again,) = to_gpu((x, x[2:4], [x]), 2)
    return {
        "devices": [whole.device.id, part.device.id],
        "one thing is one": again is whole,
        "view is of it": part.data.mem is whole.data.mem,
        "offset": part.data.ptr - whole.data.ptr,
        "numbers": cupy.asnumpy(part).tolist(),
        "before": x.device.id,
        "on the CPU": type(to_cpu(part)).__name__,
    }


def from_numpy():
    return to_gpu(np.ones(2), 1, numpy="cupy").device.id
