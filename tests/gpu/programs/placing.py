"""Blocks on a GPU: `%%on_gpu`, and an out-of-memory error in a block."""

from __future__ import annotations

import os

from tests.gpu.claim import Need, Seen, claim
from tests.gpu.programs.common import Shell, accelerator, alone, both, processes_on, used
from tests.gpu.programs.cuda import LIVE, answer_now

WHERE = "on_gpu/scope.py"
TORCH: Need = "an accelerator of PyTorch's"


@claim(
    "In a cell with `%%on_gpu 0`, PyTorch creates tensors and their gradients on the GPU. After the cell, "
    "PyTorch no longer does.",
    WHERE,
    TORCH,
)
def cell() -> Seen:
    alone()
    shell = Shell()
    shell.must("import torch")
    shell.must("%%on_gpu 0\nx = torch.ones(1000, requires_grad=True)\n(x * 2).sum().backward()")
    after = shell.must("torch.ones(1).device.type").result
    x = shell["x"]
    expected = f"{accelerator()}:0"
    what = f"a tensor on {x.device}, its gradient on {x.grad.device}, one made later on the {after}"
    return Seen((str(x.device), str(x.grad.device), after) == (expected, expected, "cpu"), what)


@claim(
    "In a kernel that has imported PyTorch, a `%%on_gpu 0` cell that only sets a variable starts CUDA. The choice can no "
    "longer change.",
    WHERE,
    TORCH,
    "a driver",
)
def starts_also_unused() -> Seen:
    """Take the driver's answer, PyTorch's flag, and NVML's list of this process as one: all say the same."""
    uuid = used()[0]
    shell = Shell()
    shell.must(f"%gpus {uuid}", "import torch, gpu_magic", "%%on_gpu 0\nx = 1")
    guard, answer = shell.must("gpu_magic.guard()").result, answer_now()
    listed = any(one.pid == os.getpid() for one in processes_on(uuid))
    what = (
        f"CUDA is {answer}; torch.cuda.is_initialized() {shell['torch'].cuda.is_initialized()}; the guard reports "
        f"{guard.state.value}; NVML {'lists' if listed else 'does not list'} this process"
    )
    return Seen(not guard.can_change and answer not in LIVE and listed and shell["x"] == 1, what)


@claim("A block on a GPU also makes that GPU PyTorch's current device.", WHERE, TORCH)
def current_device() -> Seen:
    alone()
    import torch

    import gpu_magic

    with gpu_magic.on_gpu(0):
        inside = torch.accelerator.current_device_index()
        bare = str(torch.empty(1, device=accelerator()).device)
    return Seen(
        inside == 0 and bare == f"{accelerator()}:0", f"the current device is {inside}, a tensor is on {bare}"
    )


@claim(
    "In a block on a GPU, a CPU generator draws the same numbers as outside the block, and the numbers are on "
    "the GPU. A DataLoader that shuffles works in the block.",
    "frameworks/torch_modes.py",
    TORCH,
)
def sampling() -> Seen:
    alone()
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    import gpu_magic

    with gpu_magic.on_gpu(0):
        inside = torch.randperm(8, generator=torch.Generator().manual_seed(0))
        batches = list(DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, shuffle=True))
    same = inside.tolist() == torch.randperm(8, generator=torch.Generator().manual_seed(0)).tolist()
    is_so = same and str(inside.device) == f"{accelerator()}:0" and len(batches) == 2
    what = f"{'the same' if same else 'other'} numbers on {inside.device}, {len(batches)} batches"
    return Seen(is_so, what)


@claim(
    "In a block on a GPU, a DataLoader works with shuffling, pinned memory and two workers.",
    "frameworks/torch_modes.py",
    "PyTorch for CUDA",
)
def pinned_loader() -> Seen:
    alone()
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    import gpu_magic

    data = TensorDataset(torch.arange(64.0))
    torch.zeros(1).cuda()
    with gpu_magic.on_gpu(0):
        loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2, pin_memory=True)
        moved = [batch.to("cuda", non_blocking=True).sum() for (batch,) in loader]
        total = float(torch.stack(moved).sum())
    return Seen(total == float(sum(range(64))), f"{len(moved)} batches, their sum is {total:.0f}")


@claim(
    "A block on a GPU that is not there is refused before it runs. The error names the GPUs that are there.",
    WHERE,
    TORCH,
)
def past_the_last() -> Seen:
    alone()
    import torch

    import gpu_magic

    has_run = False
    count = torch.accelerator.device_count()
    try:
        with gpu_magic.on_gpu(count):
            torch.ones(1)
            has_run = True
    except gpu_magic.PlacementError as error:
        return Seen(not has_run, f"with {count}: {error}")
    return Seen(False, f"a block on device {count} ran, with {count}")


@claim("Two blocks on different GPUs each use their own GPU.", WHERE, "PyTorch for CUDA", "two GPUs")
def two_gpus() -> Seen:
    both()
    import torch

    import gpu_magic

    found = []
    for number in (0, 1):
        with gpu_magic.on_gpu(number):
            found += [str(torch.ones(1).device), str(torch.empty(1, device="cuda").device)]
    return Seen(found == ["cuda:0"] * 2 + ["cuda:1"] * 2, ", ".join(found))


@claim(
    "If a cell requests more memory than there is, PyTorch raises its own error. Below the error, gpu_magic "
    "lists what holds memory. The block in the next cell works.",
    "objects/memory.py",
    "PyTorch for CUDA",
)
def out_of_memory() -> Seen:
    """Request all free memory and 1 GiB more. The driver refuses the request, and other processes lose nothing."""
    alone()
    shell = Shell()
    shell.must("import torch", "kept = torch.ones(64 << 20, dtype=torch.uint8, device='cuda')")
    done = shell.run(
        "%%on_gpu 0\nmore = torch.empty(torch.cuda.mem_get_info()[0] + (1 << 30), dtype=torch.uint8)"
    )
    torch = shell["torch"]
    after = shell.run("%%on_gpu 0\nnext_one = torch.ones(1000).sum().item()")
    said = next((line for line in done.printed.splitlines() if line.startswith("Out of memory")), "")
    is_error = isinstance(done.error, torch.OutOfMemoryError)
    works = after.error is None and shell["next_one"] == 1000
    what = f"{type(done.error).__name__}; the message: {said or 'none'}; the next block {'works' if works else 'fails'}"
    return Seen(is_error and bool(said) and works and "kept" in done.printed, what)
