"""The order in which CUDA numbers GPUs: CUDA_DEVICE_ORDER."""

from __future__ import annotations

import os

from tests.gpu.claim import Seen, claim
from tests.gpu.programs.common import used, wide
from tests.gpu.programs.cuda import Cuda, digits

WHERE = "process/mask.py"


def _numbers(order: str | None) -> list[int]:
    """Return the numbers that nvidia-smi gives to CUDA's devices, in CUDA's order."""
    import gpu_magic

    wide()
    if order is None:
        del os.environ["CUDA_DEVICE_ORDER"]
    numbers = {digits(gpu.uuid): gpu.index for gpu in gpu_magic.gpus()}
    cuda = Cuda()
    cuda.init()
    return [numbers.get(uuid, -1) for uuid in cuda.uuids()]


@claim(
    "With `CUDA_DEVICE_ORDER=PCI_BUS_ID`, CUDA numbers the GPUs as nvidia-smi does.",
    WHERE,
    "whole GPUs",
    "two GPUs",
)
def by_bus() -> Seen:
    found = _numbers("PCI_BUS_ID")
    return Seen(found == list(range(len(found))), f"CUDA's order is GPUs {found}")


@claim(
    "If all GPUs are of one model, CUDA numbers the GPUs as nvidia-smi does, even without `CUDA_DEVICE_ORDER`.",
    WHERE,
    "whole GPUs",
    "GPUs that are alike",
)
def alike() -> Seen:
    found = _numbers(None)
    return Seen(found == list(range(len(found))), f"CUDA's order is GPUs {found}")


@claim(
    "If GPUs differ and `CUDA_DEVICE_ORDER` is not set, CUDA can number the GPUs in another order than "
    "nvidia-smi. gpu_magic reports the order as unknown.",
    WHERE,
    "whole GPUs",
    "GPUs that differ",
)
def unlike() -> Seen:
    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN
    from gpu_magic.process.mask import read

    found = _numbers(None)
    is_unknown = read(None, gpu_magic.gpus().machine, None).devices is UNKNOWN
    ours = "reports the order as unknown" if is_unknown else "reports an order"
    return Seen(is_unknown, f"CUDA's order is GPUs {found}, and gpu_magic {ours}")


@claim(
    "A choice by numbers means nvidia-smi's numbers, even if CUDA would number the GPUs differently. The "
    "choice sets `CUDA_DEVICE_ORDER=PCI_BUS_ID`.",
    "process/environment.py",
    "whole GPUs",
    "two GPUs",
)
def choice() -> Seen:
    import gpu_magic

    os.environ.pop("CUDA_DEVICE_ORDER", None)
    wanted = used()[:2]
    numbers = [next(gpu.index for gpu in gpu_magic.gpus() if gpu.uuid == uuid) for uuid in wanted]
    gpu_magic.choose(numbers, by="index")
    mask, order = os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("CUDA_DEVICE_ORDER")
    cuda = Cuda()
    cuda.init()
    is_so = cuda.uuids() == list(map(digits, wanted))
    return Seen(
        is_so, f"CUDA {'sees' if is_so else 'does not see'} the choice, by {mask} in the order {order}"
    )
