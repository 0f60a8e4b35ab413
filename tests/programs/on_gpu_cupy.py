"""`on_gpu` with CuPy's stand-in."""

import cupy

from gpu_magic import on_gpu
from tests.programs.errors import placement_error
from tests.programs.threads import at_once


def devices():
    found = {}
    with on_gpu(3):
        found["inside"] = cupy.ones(2).device.id
        with on_gpu("cpu"):  # it has none
            found["on the CPU"] = cupy.ones(2).device.id
    return {**found, "outside": cupy.ones(2).device.id}


def refused(device):
    ran = []

    def use():
        with on_gpu(device):
            ran.append(cupy.ones(1))

    return {"error": placement_error(use), "ran": bool(ran)}


def device_objects():
    with on_gpu(cupy.cuda.Device(2)):
        return {"device": cupy.ones(1).device.id}


def given_device():
    with on_gpu(2) as device:
        pass
    with device:
        return [str(device), cupy.ones(1).device.id]


def blocks_in_threads():
    def in_block(index, all_have_begun):
        with on_gpu(index):
            all_have_begun()
            return cupy.ones(1).device.id

    return [*at_once([in_block, 1], [in_block, 2], here=[in_block, 3]), cupy.ones(1).device.id]
