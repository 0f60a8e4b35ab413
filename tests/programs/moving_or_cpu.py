"""`to_gpu(..., or_cpu=True)`, where the device can be used and where it can't."""

import contextlib
import io

import numpy as np
import tensorflow as tf
import torch

from gpu_magic import to_gpu
from gpu_magic.move.move import move_variables
from gpu_magic.move.names import Names
from tests.programs.errors import placement_error


def said_by(call, *args, **options):
    """Return what a call returns, with `or_cpu`, and what it prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        result = call(*args, or_cpu=True, **options)
    return result, said.getvalue()


def moved(device):
    x, said = said_by(to_gpu, torch.ones(2), device)
    return {"device": str(x.device), "said": said}


def back():
    """Return where a tensor goes from a GPU if another one can't be used."""
    x, _ = said_by(to_gpu, torch.ones(2, device="pretend:1"), 9)
    return str(x.device)


def together():
    """Where one framework can't use the device, all that was named goes to the CPU."""
    (x, t), said = said_by(to_gpu, (torch.ones(2), tf.ones(2)), 0)
    return {"devices": [str(x.device), t.device[-5:]], "said": said}


def converted():
    """NumPy's arrays, for a framework that has no GPU."""
    x, said = said_by(to_gpu, np.ones(2, "float32"), 0, numpy="jax")
    return [str(x.device), said]


def all_variables(names):
    space = {"x": torch.ones(2), "t": tf.ones(2)}
    space = {name: space[name] for name in names}

    def move_all(*, or_cpu):
        return move_variables(Names(space, ()), "", all_of_them=True, device="0", or_cpu=or_cpu)

    lines, said = said_by(move_all)
    return {
        "x": str(space.get("x", torch.ones(1)).device),
        "skipped": [one[0] for one in lines if " stays: " in one],
        "said": said,
    }


def other_errors():
    """Return what is refused all the same."""
    return [
        placement_error(to_gpu, torch.ones(2), "nowhere", or_cpu=True),
        placement_error(to_gpu, torch.ones(2, device="meta"), 0, or_cpu=True),
    ]
