"""Forked processes: whether a child can use CUDA."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from tests.gpu.claim import Seen, claim
from tests.gpu.programs.common import alone, counted
from tests.gpu.programs.cuda import Cuda

if TYPE_CHECKING:
    from collections.abc import Callable

WHERE = "process/drivers.py"


def _in_child(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as file:
        return json.loads(file.read() or "null")


@claim(
    "In a child process that is forked after `cuInit`, `cuDeviceGetCount` returns 3 again and `cuInit` fails. "
    "The child cannot use CUDA.",
    WHERE,
    "a driver",
)
def after_start() -> Seen:
    alone()
    cuda = Cuda()
    cuda.init()
    found = _in_child(lambda: [cuda.count_answer(), cuda.init(), cuda.count()])
    what = f"in the child cuDeviceGetCount {found[0]}, cuInit {found[1]}, {counted(found[2])}"
    return Seen(found[0] == 3 and found[1] != 0 and found[2] == -1, what)


@claim(
    "A child process that is forked before `cuInit` can use CUDA with its own choice of GPUs, even if the "
    "driver's library was loaded.",
    WHERE,
    "a driver",
)
def before_start() -> Seen:
    cuda = Cuda()

    def start() -> list[int]:
        alone()
        return [cuda.init(), cuda.count()]

    found = _in_child(start)
    return Seen(found == [0, 1], f"in the child cuInit {found[0]}, {counted(found[1])}")


@claim(
    "In a child process that is forked after `cuInit`, the guard reports that CUDA cannot be used.",
    "process/guard.py",
    "a driver",
)
def guard_in_child() -> Seen:
    import gpu_magic

    alone()
    Cuda().init()
    gpu_magic.guard()
    found = _in_child(lambda: gpu_magic.guard().state.value)
    return Seen(found == "forked", f"the guard reports {found}")


@claim(
    "In a child process that is forked after PyTorch has used the GPU, the guard reports that CUDA cannot be "
    "used.",
    "process/guard.py",
    "PyTorch for CUDA",
)
def guard_in_child_of_pytorch() -> Seen:
    import torch

    import gpu_magic

    alone()
    torch.zeros(1).cuda()
    gpu_magic.guard()
    found = _in_child(lambda: gpu_magic.guard().state.value)
    return Seen(found == "forked", f"the guard reports {found}")
