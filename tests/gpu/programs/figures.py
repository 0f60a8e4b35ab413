"""Figures of GPUs and processes: NVML's compared with nvidia-smi's, and the figures of this process."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from tests.gpu.claim import NotTriedError, Seen, claim
from tests.gpu.programs.common import alone, in_container, number_of, processes_on

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
    """Return a size in MiB; -1 if the driver does not give the size."""
    return size // MIB if isinstance(size, int) else -1


@claim(
    "The numbers, UUIDs, names and memory sizes of GPUs are the same in gpu_magic and in nvidia-smi.",
    WHERE,
    "a driver",
    "nvidia-smi",
)
def smi() -> Seen:
    import gpu_magic

    ours = [
        [str(gpu.index), str(gpu.uuid), str(gpu.name), str(_mebibytes(gpu.memory_total))]
        for gpu in gpu_magic.gpus()
    ]
    theirs = _smi("index,uuid,name,memory.total")
    same = sum(one == other for one, other in zip(ours, theirs, strict=False))
    return Seen(ours == theirs, f"{same} of {len(theirs)} GPUs have the same values")


@claim(
    "The memory in use differs by at most 512 MiB between gpu_magic and nvidia-smi. Other processes can start "
    "between the two readings.",
    WHERE,
    "a driver",
    "nvidia-smi",
)
def smi_memory() -> Seen:
    import gpu_magic

    ours = [_mebibytes(gpu.status.memory_used) for gpu in gpu_magic.gpus()]
    theirs = [int(line[0]) for line in _smi("memory.used")]
    most = max((abs(one - other) for one, other in zip(ours, theirs, strict=True)), default=0)
    return Seen(most <= 512, f"at most {most} MiB apart")


@claim(
    "`nvmlDeviceGetMemoryInfo_v2` gives reserved, free, used and total memory. The first three add up to the "
    "total.",
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
    "Once this process has CUDA memory, NVML lists the process under its own PID (outside containers).",
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
    if os.getpid() not in numbers and in_container():
        raise NotTriedError(f"this container has its own PIDs; NVML lists {len(numbers)} processes")
    return Seen(
        os.getpid() in numbers,
        f"{len(numbers)} listed, {'including' if os.getpid() in numbers else 'without'} this process",
    )


@claim(
    "The memory that NVML reports for this process is the memory that PyTorch has reserved plus CUDA's own "
    "part (at most 1 GiB).",
    "objects/physical.py",
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
    "`nvmlDeviceGetProcessUtilization` shows a user without root how busy the user's own process keeps the "
    "GPU.",
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
    if not own and in_container():
        raise NotTriedError("this container has its own PIDs")
    return Seen(own >= 50, f"{own} % at most for this process under load")
