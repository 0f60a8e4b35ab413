"""MIG and MPS: GPUs that the driver shares."""

from __future__ import annotations

import os

from tests.gpu.claim import Seen, claim
from tests.gpu.programs.common import alone, counted, processes_on
from tests.gpu.programs.cuda import Cuda, digits


@claim(
    "With the UUID of a MIG instance in `CUDA_VISIBLE_DEVICES`, the driver sees only that instance and reports "
    "the same UUID.",
    "process/mask.py",
    "MIG",
)
def one_instance() -> Seen:
    import gpu_magic

    instance = next(one for gpu in gpu_magic.gpus() for one in gpu.mig)
    os.environ["CUDA_VISIBLE_DEVICES"] = str(instance.uuid)
    cuda = Cuda()
    code = cuda.init()
    found = cuda.uuids()
    is_so = found == [digits(instance.uuid)]
    return Seen(is_so, f"cuInit {code}, {len(found)} devices, {'that one' if is_so else 'not that one'}")


@claim(
    "Before CUDA 13, a process whose `CUDA_VISIBLE_DEVICES` names several MIG instances sees only the first "
    "one.",
    "process/mask.py",
    "MIG",
)
def several_instances() -> Seen:
    import gpu_magic
    from gpu_magic.process.mask import takes_one

    machine = gpu_magic.gpus().machine
    mask = ",".join(str(one.uuid) for gpu in machine for one in gpu.mig)
    os.environ["CUDA_VISIBLE_DEVICES"] = mask
    cuda = Cuda()
    cuda.init()
    named, found = mask.count(",") + 1, cuda.uuids()
    first = digits(mask.partition(",")[0])
    what = f"{named} instances named, {len(found)} seen, by CUDA {machine.cuda_version}"
    return Seen(found[:1] == [first] and (len(found) == 1 or not takes_one(machine)), what)


@claim(
    "NVML gives no utilization for a MIG instance. gpu_magic reports the utilization as unknown.",
    "devices/nvml.py",
    "MIG",
)
def utilization() -> Seen:
    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN

    figures = {one.status.utilization for gpu in gpu_magic.gpus() for one in gpu.mig}
    is_so = figures == {UNKNOWN}
    return Seen(is_so, "none is known" if is_so else f"figures: {sorted(map(str, figures))}")


@claim(
    "A GPU on which only an MPS server runs counts as free. The table names the server.",
    "devices/model.py",
    "MPS",
)
def server() -> Seen:
    import gpu_magic

    machine = gpu_magic.gpus().machine
    served = [gpu for gpu in machine if gpu.status.mps_servers]
    unused = [gpu for gpu in served if gpu.status.users == ()]
    named = "MPS server" in repr(machine)
    free = sum(gpu.is_free for gpu in unused)
    what = f"{counted(len(served))} with a server, {len(unused)} with nothing else, {free} free"
    return Seen(named and all(gpu.is_free for gpu in unused), what)


@claim(
    "If MPS runs, NVML lists a process that uses CUDA through MPS as a separate process.",
    "devices/model.py",
    "MPS",
    "PyTorch for CUDA",
)
def client() -> Seen:
    uuid = alone()
    import torch

    kept = torch.ones(1 << 26, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    listed = [one.pid for one in processes_on(uuid)]
    del kept
    return Seen(
        os.getpid() in listed,
        f"{len(listed)} listed, {'including' if os.getpid() in listed else 'without'} this process",
    )
