"""`to_gpu(..., or_cpu=True)`, where the device can be used and where it can't."""

import contextlib
import io

import numpy as np
import tensorflow as tf
import torch

from gpu_magic import to_gpu
from gpu_magic.moving.names import Names
from gpu_magic.moving.variables import MoveRequest, move_variables
from tests.programs.errors import placement_error
from tests.programs.no_bar import NoBar


def moved(device, **options):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        x = to_gpu(torch.ones(2), device, or_cpu=True, **options)
    return {"device": str(x.device), "said": said.getvalue()}


def back():
    """Return where a tensor goes from a GPU if another one can't be used."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        return str(to_gpu(torch.ones(2, device="pretend:1"), 9, or_cpu=True).device)


def together():
    """Where one framework can't use the device, all that was named goes to the CPU."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        x, t = to_gpu((torch.ones(2), tf.ones(2)), 0, or_cpu=True)
    return {"devices": [str(x.device), t.device[-5:]], "said": said.getvalue()}


def converted():
    """NumPy's arrays, for a framework that has no GPU."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        x = to_gpu(np.ones(2, "float32"), 0, numpy="jax", or_cpu=True)
    return [str(x.device), said.getvalue()]


def all_variables(names):
    space = {"x": torch.ones(2), "t": tf.ones(2)}
    space = {name: space[name] for name in names}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        report = move_variables(MoveRequest("", all=True, device="0", or_cpu=True), Names(space, ()), NoBar)
    return {"device": report.device, "skipped": [name for name, _ in report.skipped], "said": said.getvalue()}


def other_errors():
    """Return what is refused all the same."""
    return [
        placement_error(to_gpu, torch.ones(2), "nowhere", or_cpu=True),
        placement_error(to_gpu, torch.ones(2, device="meta"), 0, or_cpu=True),
    ]
