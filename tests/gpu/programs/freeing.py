"""Giving memory back: `%gpu_free`."""

from __future__ import annotations

from tests.gpu.claim import NotTriedError, Seen, claim
from tests.gpu.programs.common import Shell, alone

WHERE = "objects/memory.py"
MIB = 1 << 20


@claim(
    "`gpu_free()` gives back the memory that it reports: NVML's figure for the GPU falls by the same amount, "
    "within 64 MiB.",
    WHERE,
    "PyTorch for CUDA",
    "a driver",
)
def by_nvml() -> Seen:
    uuid = alone()
    import pynvml
    import torch

    import gpu_magic
    from tests.gpu.programs.common import number_of

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(number_of(uuid))
    kept = torch.ones(1024 * MIB, dtype=torch.uint8, device="cuda")
    small = torch.ones(1, device="cuda")
    del kept
    torch.cuda.synchronize()
    before = pynvml.nvmlDeviceGetMemoryInfo(device).used
    freed = gpu_magic.gpu_free()
    fell = before - pynvml.nvmlDeviceGetMemoryInfo(device).used
    said = freed.before["cuda:0"] - freed.after["cuda:0"]
    del small
    what = f"{said // MIB} MiB reported, {fell // MIB} MiB less in use by NVML"
    return Seen(said >= 1000 * MIB and abs(said - fell) <= 64 * MIB, what)


@claim(
    "`%gpu_free` drops a cell's output and a cell's error that hold GPU memory, and names both.",
    WHERE,
    "PyTorch for CUDA",
)
def history() -> Seen:
    alone()
    shell = Shell()
    shell.must("import torch", f"torch.ones({256 * MIB}, dtype=torch.uint8, device='cuda')")
    number = shell.ip.execution_count - 1
    shell.run(
        f"def fail():\n    within = torch.ones({256 * MIB}, dtype=torch.uint8, device='cuda')\n    1 / 0\nfail()"
    )
    torch = shell["torch"]
    before = torch.cuda.memory_allocated()
    said = shell.must("%gpu_free")
    after, text = torch.cuda.memory_allocated(), said.printed + repr(said.result)
    if before < 512 * MIB:
        raise NotTriedError(f"{before // MIB} MiB were held, not 512")
    is_named = f"Out[{number}]" in text and "traceback" in text
    return Seen(after < MIB and is_named, f"{before // MIB} MiB held before, {after // MIB} after")


@claim(
    "`%gpu_free` names a variable that holds memory, and does not give that memory back.",
    WHERE,
    "PyTorch for CUDA",
)
def held() -> Seen:
    alone()
    shell = Shell()
    shell.must("import torch", f"kept = torch.ones({256 * MIB}, dtype=torch.uint8, device='cuda')")
    said = shell.must("%gpu_free")
    text = said.printed + repr(said.result)
    return Seen(
        "kept (256 MiB)" in text,
        "the variable is named" if "kept (256 MiB)" in text else " ".join(text.split())[:150],
    )
