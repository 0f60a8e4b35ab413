"""`devices_of` with arrays that share their memory across frameworks."""

import jax.numpy as jnp
import numpy as np
import torch

from gpu_magic import devices_of


def numpy_and_torch():
    a = np.ones(1000)
    return {
        "all": devices_of(a, torch.from_numpy(a), a[10:20]),
        "back": devices_of(torch.from_numpy(a).numpy()),
    }


def jax_and_numpy():
    j = jnp.ones(1000)
    return devices_of(j, np.asarray(j))


def strided():
    return devices_of(np.lib.stride_tricks.as_strided(np.ones(1), (10**6,), (0,)))
