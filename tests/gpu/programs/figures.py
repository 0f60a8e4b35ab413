"""Figures of GPUs and processes: NVML's beside nvidia-smi's, and this process's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.gpu.claim import NotTriedError, Seen, claim
from tests.gpu.programs.common import alone, number_of, processes_on

WHERE = "devices/nvml.py"
MIB = 1 << 20


def _smi(fields: str) -> list[list[str]]:
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
        check=True,
        capture_output=True,
        text=True,
    )
    return [line.split(", ") for line in done.stdout.strip().split("\n")]


def _mebibytes(size: Any) -> int:
    """Return a size in MiB; -1 where the driver does not give it."""
    return size // MIB if isinstance(size, int) else -1


@claim("Numbers, UUIDs, names and the size of memory are nvidia-smi's.", WHERE, "a driver", "nvidia-smi")
def smi() -> Seen:
    import gpu_magic

    ours = [
        [str(gpu.index), str(gpu.uuid), str(gpu.name), str(_mebibytes(gpu.memory_total))]
        for gpu in gpu_magic.gpus().of_vendor("nvidia")
    ]
    theirs = _smi("index,uuid,name,memory.total")
    same = sum(one == other for one, other in zip(ours, theirs, strict=False))
    return Seen(ours == theirs, f"{same} of {len(theirs)} GPUs are described alike")


@claim(
    "The memory in use is nvidia-smi's, within 512 MiB: others can start in between.",
    WHERE,
    "a driver",
    "nvidia-smi",
)
def smi_memory() -> Seen:
    import gpu_magic

    ours = [_mebibytes(gpu.status.memory_used) for gpu in gpu_magic.gpus().of_vendor("nvidia")]
    theirs = [int(line[0]) for line in _smi("memory.used")]
    most = max((abs(one - other) for one, other in zip(ours, theirs, strict=True)), default=0)
    return Seen(most <= 512, f"at most {most} MiB apart")


@claim(
    "`nvmlDeviceGetMemoryInfo_v2` gives total, reserved, free and used memory, which add up.",
    WHERE,
    "a driver",
    "whole GPUs",
)
def memory_adds_up() -> Seen:
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(number_of(alone()))
    memory = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
    rest = memory.total - memory.used - memory.free - memory.reserved
    return Seen(abs(rest) <= MIB, f"{rest} of {memory.total} bytes are left over")


@claim(
    "Once this process has CUDA memory, NVML lists it under its own number (outside containers).",
    "devices/processes.py",
    "PyTorch for CUDA",
    "a driver",
)
def own_number() -> Seen:
    uuid = alone()
    import torch

    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN

    kept = torch.ones(64 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    listed = gpu_magic.gpus()[number_of(uuid)].status.processes
    if listed is UNKNOWN:
        return Seen(False, "the driver lists no processes")
    numbers = [one.pid for one in listed]
    del kept
    if os.getpid() not in numbers and _in_container():
        raise NotTriedError(f"in a container of its own process numbers; NVML lists {len(numbers)} processes")
    return Seen(
        os.getpid() in numbers,
        f"{len(numbers)} processes, {'' if os.getpid() in numbers else 'not '}this one",
    )


def _in_container() -> bool:
    """Return whether processes have other numbers here than for the driver (Linux, include/linux/proc_ns.h)."""
    return str(Path("/proc/self/ns/pid").readlink()) != "pid:[4026531836]"


@claim(
    "What NVML says that this process has is what PyTorch has reserved, and CUDA's own part (at most 1 GiB).",
    "process/physical.py",
    "PyTorch for CUDA",
    "a driver",
)
def own_memory() -> Seen:
    from gpu_magic.devices.model import UNKNOWN

    uuid = alone()
    import torch

    kept = torch.ones(512 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    own = [one.memory for one in processes_on(uuid) if one.pid == os.getpid()]
    if not own or own[0] is UNKNOWN:
        raise NotTriedError("NVML lists no memory of this process here")
    more = own[0] - torch.cuda.memory_reserved()
    del kept
    return Seen(
        0 <= more <= 1024 * MIB, f"{more // MIB} MiB more than PyTorch has reserved", {"MiB more": more / MIB}
    )


@claim(
    "A user without root sees how busy a process of theirs keeps the GPU: `nvmlDeviceGetProcessUtilization`.",
    "devices/nvml.py",
    "PyTorch for CUDA",
    "a driver",
)
def own_work() -> Seen:
    import pynvml

    from tests.gpu.programs.load import busy

    uuid = alone()
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(number_of(uuid))
    busy(3.0)
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(device, 0)
    except pynvml.NVMLError as error:
        return Seen(False, f"NVML answers: {error}")
    own = max((one.smUtil for one in samples if one.pid == os.getpid()), default=0)
    if not own and _in_container():
        raise NotTriedError("in a container of its own process numbers")
    return Seen(own >= 50, f"{own} % at most, of this process under load")
