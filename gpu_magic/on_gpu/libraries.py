"""Libraries that pick GPUs themselves, in a block too, and how to name a GPU to them.

docs/how-to/other-libraries.md has a row for each. Sources:

- transformers 5.24: `TrainingArguments._setup_devices` names cuda:0 and makes it current. It counts all
  visible GPUs, over which `Trainer` spreads the model (`DataParallel`). `Pipeline` moves its model to GPU 0.
- safetensors 0.8: `load_file(..., device="cuda")` is cuda:0, whatever the current device is.
- peft 0.21: `PeftModel.from_pretrained` reads an adapter to cuda:0, and copies it to the model.
- lightning 2.6: `CUDAAccelerator` counts the visible GPUs, and makes the first one current.
  `load_from_checkpoint` moves the model to the GPU of the file's first tensor.
- xgboost: `device="cuda"` is CUDA's current device, and `cuda:1` another one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpu_magic.objects.physical import physical
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.frameworks.target import LogicalDevice
    from gpu_magic.frameworks.uses import Evidence
    from gpu_magic.objects.physical import LazySnapshot

__all__ = ["elsewhere_text"]

_LIGHTNING = (
    "Lightning's Trainer picks GPUs itself, and load_from_checkpoint uses those of the file",
    'Trainer(devices=[{0}]), load_from_checkpoint(map_location="cuda:{0}")',
)
# Each library by its module: what it does, and the argument that names cuda:{} to it.
_LIBRARIES = {
    "peft": ("PEFT reads adapters to cuda:0 first", 'from_pretrained(torch_device="cuda:{}")'),
    "transformers": ("transformers' Trainer and pipeline pick GPUs themselves", "pipeline(device={})"),
    "lightning": _LIGHTNING,
    "pytorch_lightning": _LIGHTNING,
    "safetensors": ("safetensors reads cuda as cuda:0", 'device="cuda:{}"'),
    "ultralytics": ("Ultralytics picks GPUs itself", "device={}"),
    "xgboost": ("XGBoost picks its GPU itself", 'device="cuda:{}"'),
}


def elsewhere_text(
    used: Sequence[LogicalDevice],
    current: LogicalDevice | None,
    evidence: Evidence,
    devices: Sequence[LogicalDevice],
    machine: LazySnapshot,
) -> str:
    """Return which other GPUs a block's code used, and what would keep it on its device. Empty if none."""
    did = [f"used {listed(map(str, used))} too"] if used else []
    did += [f"made {current} the current device"] if current else []
    if not did:
        return ""
    loaded = [module for module in _LIBRARIES if module in sys.modules]
    known = [module for module in loaded if evidence.has_named(module)]
    known = known or [module for module in loaded if module in evidence][:1]  # by another package
    wanted, gpu = devices[0], physical(devices[0], machine)
    if wanted.kind == "cpu":
        choice = "%gpus none"
    else:
        choice = f"%gpus {gpu.number_text}" if gpu else "choose one GPU with %gpus"
    reasons = "".join(f" {_LIBRARIES[module][0]}." for module in known)
    arguments = "".join(f"{_LIBRARIES[module][1].format(wanted.index)}, " for module in known)
    ways = f"{arguments}or {choice}" if arguments else choice
    return f"Code here {' and '.join(did)}.{reasons} To keep it on {wanted}: {ways} before CUDA starts."
