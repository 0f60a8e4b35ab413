"""`%gpu_park` and `%gpu_unpark`: what comes back, what NVML gets back, and what stays."""

from __future__ import annotations

import os
import time

from tests.gpu.claim import Need, Seen, claim
from tests.gpu.programs.common import MIB, Shell, accelerator, alone, bytes_used, processes_on

WHERE = "park/park.py"
TORCH: Need = "an accelerator of PyTorch's"
_MODEL = """
import torch
torch.manual_seed(0)
x = torch.randn(64, {width}).to({kind!r})
model = torch.nn.Sequential(torch.nn.Linear({width}, {width}), torch.nn.GELU(), torch.nn.Linear({width}, {width})).to({kind!r})
optimizer = torch.optim.AdamW(model.parameters())
def step():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
step()
"""


@claim(
    "After `%gpu_park` and `%gpu_unpark`, a model computes the same outputs as before. The next step of its optimizer "
    "changes the parameters as in a model that was not parked.",
    WHERE,
    TORCH,
)
def same_step() -> Seen:
    alone()
    shell, made = Shell(), _MODEL.format(width=512, kind=accelerator())
    shell.must(made, "before = model(x).detach().cpu()", "%gpu_park")
    places = {one.device.type for one in shell["model"].parameters()}
    shell.must("%gpu_unpark", "after = model(x).detach().cpu()", "step()")
    shell.must("stepped = [one.detach().cpu() for one in model.parameters()]", made, "step()")
    same = shell.must("torch.equal(before, after)").result
    pairs = "zip(model.parameters(), stepped, strict=True)"
    steps = shell.must(f"all(torch.equal(one.detach().cpu(), other) for one, other in {pairs})").result
    what = (
        f"parked on {' and '.join(places)}; {'the same' if same else 'other'} outputs, "
        f"{'the same' if steps else 'another'} step"
    )
    return Seen(places == {"cpu"} and same and steps, what)


@claim(
    "`%gpu_park` gives at least 95 % of the bytes that the variables hold on the GPU back to the driver, by NVML. "
    "`%gpu_unpark` takes as many. CUDA's context stays.",
    WHERE,
    TORCH,
    "a driver",
)
def given_back(width: int = 11585) -> Seen:
    """Hold 4 GiB: two layers of half a GiB, with their gradients and two states of AdamW each."""
    uuid = alone()
    empty, shell = bytes_used(uuid), Shell()
    shell.must("import gpu_magic, torch", _MODEL.format(width=width, kind=accelerator()))
    shell.must("torch.accelerator.synchronize(); torch.accelerator.empty_cache()")
    full, began = bytes_used(uuid), time.monotonic()
    held = sum(shell.must("parking = gpu_magic.park(); parking").result.variables.values())
    parking = time.monotonic() - began
    parked, own = bytes_used(uuid), [one.memory for one in processes_on(uuid) if one.pid == os.getpid()]
    began = time.monotonic()
    shell.must("gpu_magic.unpark(); torch.accelerator.synchronize()")
    unparking, back = time.monotonic() - began, bytes_used(uuid)
    figures = {
        "MiB held": held / MIB,
        "MiB given back": (full - parked) / MIB,
        "MiB that stay": (parked - empty) / MIB,
        "MiB taken again": (back - parked) / MIB,
        "park, s": parking,
        "unpark, s": unparking,
    }
    if own and isinstance(own[0], int):  # in some containers, NVML lists other PIDs, or no memory
        figures["MiB of this process, parked"] = own[0] / MIB
    what = (
        f"of {held // MIB} MiB, {figures['MiB given back']:.0f} are given back in {parking:.1f} s, and "
        f"{figures['MiB taken again']:.0f} taken again in {unparking:.1f} s; {figures['MiB that stay']:.0f} MiB stay "
        "(CUDA's context and its libraries')"
    )
    is_so = full - parked >= held * 0.95 and back - parked >= held * 0.95
    return Seen(is_so, what, figures)
