"""Measurements of cells: `%%gpu_time` compared with the driver's and PyTorch's own figures."""

from __future__ import annotations

import os
import threading
import time

from tests.gpu.claim import NotTriedError, Seen, claim
from tests.gpu.programs.common import alone, in_container, number_of

WHERE = "measure/recorder.py"
MIB = 1 << 20
_SECONDS = 4.0


@claim(
    "If a GPU works all the time, `%%gpu_time` reports that the GPU was busy for over 80 % of the block. The "
    "figure is within 15 points of the mean of NVML's own figure.",
    WHERE,
    "PyTorch for CUDA",
    "a driver",
    "whole GPUs",
)
def busy_all_the_time() -> Seen:
    import pynvml

    uuid = alone()
    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN
    from tests.gpu.programs.load import busy

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(number_of(uuid))
    busy(1.0)
    seen: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            seen.append(pynvml.nvmlDeviceGetUtilizationRates(device).gpu)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with gpu_magic.gpu_time() as measured:
        busy(_SECONDS)
    over.set()
    watcher.join()
    ours, theirs = measured.usage.gpus[0].busy, sum(seen) / len(seen)
    if ours is UNKNOWN:
        return Seen(False, "this is reported as unknown")
    return Seen(ours > 80 and abs(ours - theirs) <= 15, f"{ours:.0f} % reported, {theirs:.0f} % by NVML")


@claim(
    "If this process keeps a GPU busy for 2 of the 10 seconds of a block, `%%gpu_time` reports 12 to 28 % as the share of "
    "this process.",
    WHERE,
    "PyTorch for CUDA",
    "a driver",
    "whole GPUs",
)
def own_share(size: int = 4096) -> Seen:
    uuid = alone()
    import pynvml

    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN
    from tests.gpu.programs.load import busy

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(number_of(uuid))
    busy(1.0, size=size)  # CUDA's start, and what the first product loads
    time.sleep(2)  # so that the driver's next sample covers none of it
    with gpu_magic.gpu_time() as measured:
        busy(2.0, size=size)
        time.sleep(8.0)
    own = next((gpu.busy_own for gpu in measured.usage.gpus), UNKNOWN)
    try:
        all_samples = pynvml.nvmlDeviceGetProcessUtilization(device, 0)
    except pynvml.NVMLError:  # there are none
        all_samples = []
    samples = [one.smUtil for one in all_samples if one.pid == os.getpid()]
    if own is UNKNOWN and in_container():
        raise NotTriedError("this container has its own PIDs")
    what = f"{own} % reported; the driver's samples of this process: {samples}"
    return Seen(own is not UNKNOWN and 12 <= own <= 28, what, {} if own is UNKNOWN else {"%": own})


@claim(
    "If a block asks a GPU for work and does not wait for the work, `%%gpu_time` still measures the whole time "
    "of the work, by CUDA's events.",
    WHERE,
    "PyTorch for CUDA",
)
def until_finished() -> Seen:
    alone()
    import torch

    import gpu_magic

    one = torch.randn(8192, 8192, device="cuda")
    one @ one  # what the first one loads
    begun, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with gpu_magic.gpu_time() as measured:
        began = time.perf_counter()
        begun.record()
        for _ in range(100):
            one @ one
        done.record()
        asked = time.perf_counter() - began
    wall, work = measured.usage.wall, begun.elapsed_time(done) / 1e3
    what = f"{wall:.2f} s by %%gpu_time, {work:.2f} s of work, requested in {asked:.2f} s"
    return Seen(wall >= work > asked, what, {"s": wall})


@claim(
    "If a GPU does nothing, `%%gpu_time` reports that the GPU was busy for less than 20 % of the block.",
    WHERE,
    "PyTorch for CUDA",
    "a driver",
    "whole GPUs",
)
def idle() -> Seen:
    alone()
    import torch

    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN

    kept = torch.ones(MIB, device="cuda")
    time.sleep(2)
    with gpu_magic.gpu_time() as measured:
        time.sleep(_SECONDS)
    ours = measured.usage.gpus[0].busy
    del kept
    if ours is UNKNOWN:
        return Seen(False, "this is reported as unknown")
    return Seen(ours < 20, f"{ours:.0f} %, if no other process uses the GPU")


@claim(
    "The peak of memory that `%%gpu_time` reports is `torch.cuda.max_memory_allocated`.",
    WHERE,
    "PyTorch for CUDA",
)
def peak() -> Seen:
    alone()
    import torch

    import gpu_magic

    torch.zeros(1).cuda()
    with gpu_magic.gpu_time() as measured:
        kept = torch.ones(300 * MIB, dtype=torch.uint8, device="cuda")
        del kept
    gpu = measured.usage.gpus[0]
    theirs = torch.cuda.max_memory_allocated()
    is_so = gpu.peak == theirs and gpu.is_exact and theirs >= 300 * MIB
    return Seen(is_so, f"{gpu.peak} bytes reported, by {gpu.peak_by}; {theirs} by PyTorch")
