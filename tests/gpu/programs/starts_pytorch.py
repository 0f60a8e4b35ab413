"""PyTorch: calls that start CUDA, and calls that do not."""

from __future__ import annotations

import os

from tests.gpu.claim import Seen, claim
from tests.gpu.programs.common import Shell, alone
from tests.gpu.programs.cuda import LIVE, answer_now

CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


@claim("`import torch` does not start CUDA.", "process/watch.py", "PyTorch for CUDA")
def importing() -> Seen:
    alone()
    import torch

    answer = answer_now()
    return Seen(answer in LIVE, f"after import torch {torch.__version__}: {answer}")


@claim("`torch.cuda.is_available()` starts CUDA.", "process/watch.py", "PyTorch for CUDA")
def is_available() -> Seen:
    alone()
    import torch

    available = torch.cuda.is_available()
    answer = answer_now()
    return Seen(available and answer == "started", f"{available}, and CUDA is {answer}")


@claim(
    "With `PYTORCH_NVML_BASED_CUDA_CHECK=1`, `torch.cuda.is_available()` does not start CUDA, even if the "
    "variable is set after the import.",
    "process/watch.py",
    "PyTorch for CUDA",
)
def is_available_by_nvml() -> Seen:
    alone()
    import torch

    os.environ[CHECK] = "1"
    available = torch.cuda.is_available()
    answer = answer_now()
    return Seen(available and answer in LIVE, f"{available}, and CUDA is {answer}")


@claim(
    "Once `%load_ext gpu_magic` has run, the choice can still change after `torch.cuda.is_available()`.",
    "process/watch.py",
    "PyTorch for CUDA",
)
def is_available_beside_us() -> Seen:
    alone()
    shell = Shell()
    shell.must("import torch; available = torch.cuda.is_available()", "import gpu_magic")
    can_change = shell.must("gpu_magic.guard().can_change").result
    answer = answer_now()
    return Seen(
        shell["available"] and can_change and answer in LIVE, f"{shell['available']}, and CUDA is {answer}"
    )


@claim(
    "`torch.cuda.device_count()` does not start CUDA.",
    "frameworks/pytorch.py",
    "PyTorch for CUDA",
)
def device_count() -> Seen:
    alone()
    import torch

    count = torch.cuda.device_count()
    answer = answer_now()
    return Seen(count == 1 and answer in LIVE, f"{count}, and CUDA is {answer}")


@claim(
    "`torch.cuda.is_initialized()` returns False after `is_available()` has called `cuInit`, so "
    "`is_initialized()` does not show whether CUDA has started.",
    "process/drivers.py",
    "PyTorch for CUDA",
)
def flag() -> Seen:
    alone()
    import torch

    torch.cuda.is_available()
    said, answer = torch.cuda.is_initialized(), answer_now()
    return Seen(not said and answer == "started", f"is_initialized() {said}, and CUDA is {answer}")


@claim("`torch.manual_seed(0)` does not start CUDA.", "process/watch.py", "PyTorch for CUDA")
def manual_seed() -> Seen:
    alone()
    import torch

    torch.manual_seed(0)
    answer = answer_now()
    return Seen(answer in LIVE, f"CUDA is {answer}")


@claim(
    "In a PyTorch that is built for CUDA, a backward pass on the CPU starts CUDA. A forward pass on the CPU "
    "does not.",
    "fit/fit.py",
    "PyTorch for CUDA",
)
def backward() -> Seen:
    alone()
    import torch

    loss = torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum()
    before = answer_now()
    loss.backward()
    after = answer_now()
    return Seen(
        before in LIVE and after == "started", f"{before} after the forward, {after} after the backward"
    )


@claim("Putting a tensor on the GPU starts CUDA.", "process/drivers.py", "PyTorch for CUDA")
def tensor() -> Seen:
    alone()
    import torch

    torch.zeros(1).cuda()
    answer = answer_now()
    return Seen(answer == "started", f"CUDA is {answer}")


@claim(
    "After CUDA has started, a change of `CUDA_VISIBLE_DEVICES` does not change PyTorch's device count in a "
    "useful way. PyTorch keeps its devices.",
    "gpus/apply.py",
    "PyTorch for CUDA",
)
def late_mask() -> Seen:
    alone()
    import torch

    torch.zeros(1).cuda()
    before = torch.cuda.device_count()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    after = torch.cuda.device_count()
    device = torch.zeros(1).cuda().device
    return Seen(
        (before, after, str(device)) == (1, 1, "cuda:0"),
        f"{before} before, {after} after, a tensor on {device}",
    )
