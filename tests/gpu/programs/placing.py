"""Blocks on a GPU: `%%on_gpu`, and an error for want of memory within one."""

from __future__ import annotations

from tests.gpu.claim import Need, Seen, claim
from tests.gpu.programs.common import Shell, accelerator, alone, both

WHERE = "on_gpu/scope.py"
TORCH: Need = "an accelerator of PyTorch's"


@claim(
    "What a cell below `%%on_gpu 0` makes with PyTorch is on the GPU, its gradients too; after it nothing is.",
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


@claim("A block on a GPU makes it PyTorch's current device as well.", WHERE, TORCH)
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
    "A generator of the CPU draws the same numbers within a block, on the GPU, and a DataLoader that shuffles works.",
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
    "A DataLoader that shuffles, pins its memory and has two workers works within a block.",
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
    "A block on a GPU that is not there is refused before it runs, with those that there are.", WHERE, TORCH
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
    return Seen(False, f"device {count} of {count} was taken")


@claim("Blocks on two GPUs are told apart.", WHERE, "PyTorch for CUDA", "two GPUs")
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
    "A request for more memory than there is, in a cell, is PyTorch's own error, and below it stands who holds what; "
    "the block in the next cell works.",
    "objects/memory.py",
    "PyTorch for CUDA",
)
def out_of_memory() -> Seen:
    """One request of all that is free and 1 GiB more: the driver refuses it, and other processes lose nothing."""
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
    what = f"{type(done.error).__name__}; it says: {said or 'nothing'}; the next block {'works' if works else 'fails'}"
    return Seen(is_error and bool(said) and works and "kept" in done.printed, what)
