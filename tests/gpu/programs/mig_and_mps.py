"""MIG and MPS: where GPUs are shared by the driver."""

from __future__ import annotations

import os

from tests.gpu.claim import Seen, claim
from tests.gpu.programs.common import alone, counted, processes_on
from tests.gpu.programs.cuda import Cuda, digits


@claim(
    "An instance's UUID in `CUDA_VISIBLE_DEVICES` makes the driver see that instance alone, and tell its UUID.",
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
    "Before CUDA 13 a process that names several instances sees the first alone.",
    "process/mask.py",
    "MIG",
)
def several_instances() -> Seen:
    import gpu_magic
    from gpu_magic.process.mask import takes_one

    machine = gpu_magic.gpus().of_vendor("nvidia")
    mask = ",".join(str(one.uuid) for gpu in machine for one in gpu.mig)
    os.environ["CUDA_VISIBLE_DEVICES"] = mask
    cuda = Cuda()
    cuda.init()
    named, found = mask.count(",") + 1, cuda.uuids()
    first = digits(mask.partition(",")[0])
    what = f"{named} instances named, {len(found)} seen, by CUDA {machine.cuda_version}"
    return Seen(found[:1] == [first] and (len(found) == 1 or not takes_one(machine)), what)


@claim(
    "NVML gives no utilization of an instance, and gpu_magic says that it is not known.",
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
    "A GPU on which an MPS server alone runs counts as free, and the server is named in the table.",
    "devices/model.py",
    "MPS",
)
def server() -> Seen:
    import gpu_magic

    machine = gpu_magic.gpus()
    served = [gpu for gpu in machine if gpu.status.mps_servers]
    unused = [gpu for gpu in served if gpu.status.users == ()]
    named = "MPS server" in repr(machine)
    what = f"{counted(len(served))} with a server, {len(unused)} with nothing else, {sum(gpu.is_free for gpu in unused)} free"
    return Seen(named and all(gpu.is_free for gpu in unused), what)


@claim(
    "Where MPS runs, a process that uses CUDA through it is listed by NVML as a process of its own.",
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
        os.getpid() in listed, f"{len(listed)} processes, {'' if os.getpid() in listed else 'not '}this one"
    )
