"""Moving variables: `%to_gpu`, `%to_cpu`, and their speed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.gpu.claim import Need, Seen, claim, measurement
from tests.gpu.programs.common import Shell, accelerator, alone

if TYPE_CHECKING:
    from collections.abc import Callable

WHERE = "move/move.py"
TORCH: Need = "an accelerator of PyTorch's"
_SIZE = 1 << 30  # bytes that a measurement moves
_TIMES = 5


@claim(
    "A model with tied weights, Adam's state and a batch of views move to the GPU and back, and train in each "
    "place. Parameters remain the same objects, tied weights remain tied, and views remain views.",
    WHERE,
    TORCH,
)
def ties() -> Seen:
    alone()
    import torch
    from torch import nn

    import gpu_magic

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.middle = nn.Embedding(50, 16), nn.Linear(16, 16)
            self.head = nn.Linear(16, 50, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: Any) -> Any:
            return self.head(self.middle(self.embed(x)))

    net, x = Net(), torch.arange(40).view(4, 10)
    optimizer = torch.optim.Adam(net.parameters())
    whole = torch.arange(12.0).view(3, 4)
    batch = {"whole": whole, "row": whole[1]}

    def step(x: Any) -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    step(x)
    ids = [id(one) for one in net.parameters()]
    gpu_magic.to_gpu([net, optimizer, batch])
    kind = accelerator()
    step(x.to(kind))
    tied = net.head.weight is net.embed.weight
    same = ids == [id(one) for one in net.parameters()]
    on_gpu = {one["exp_avg"].device.type for one in optimizer.state.values()} == {kind}
    shared = batch["row"].untyped_storage().data_ptr() == batch["whole"].untyped_storage().data_ptr()
    gpu_magic.to_cpu([net, optimizer, batch])
    step(x)
    back = {one.device.type for one in net.parameters()} == {"cpu"} and net.head.weight is net.embed.weight
    facts = {
        "tied": tied,
        "the same objects": same,
        "Adam's state there": on_gpu,
        "views shared": shared,
        "back": back,
    }
    lacking = [name for name, is_so in facts.items() if not is_so]
    return Seen(not lacking, f"wrong: {', '.join(lacking)}" if lacking else ", ".join(facts))


@claim(
    "An LSTM that was moved trains without a cuDNN warning, because its weights are in one piece of memory.",
    "move/pytorch.py",
    "PyTorch for CUDA",
)
def flat_rnn() -> Seen:
    import warnings

    alone()
    import torch

    import gpu_magic

    rnn = gpu_magic.to_gpu(torch.nn.LSTM(16, 16, 2, batch_first=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rnn(torch.ones(2, 3, 16, device="cuda"))[0].sum().backward()
    return Seen(not caught, str(caught[0].message)[:100] if caught else "no warning")


@claim("`%to_gpu x` in a cell rebinds `x`. `%where x` shows the GPU that `x` is on.", "move/magic.py", TORCH)
def cell() -> Seen:
    alone()
    shell = Shell()
    shell.must("import torch", "x = torch.ones(1000)", "%to_gpu x")
    said = shell.must("%where x")
    device, expected = str(shell["x"].device), f"{accelerator()}:0"
    said_it = expected in said.printed + repr(said.result)
    return Seen(
        device == expected and said_it,
        f"x is on {device}, and %where {'shows' if said_it else 'does not show'} {expected}",
    )


@claim(
    "If the GPU runs out of memory during a move, all variables stay where they were. The memory of the copies "
    "is given back.",
    WHERE,
    "PyTorch for CUDA",
)
def out_of_memory() -> Seen:
    """The allocator may use only a part of the GPU. The driver reports enough free memory, and then the move fails."""
    alone()
    import torch

    import gpu_magic

    part = (256 << 20) / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(part)
    model = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(100))  # 400 MiB
    said = "no error"
    try:
        gpu_magic.to_gpu(model)
    except gpu_magic.PlacementError as error:
        said = str(error).partition(" after")[0]
    places = {one.device.type for one in model.parameters()}
    left = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    is_so = said == "cuda:0 ran out of memory" and places == {"cpu"} and left == (0, 0)
    return Seen(is_so, f"{said}; parameters on {', '.join(places)}; {left[1]} bytes reserved")


@claim(
    "Tensors that are large enough to move through pinned memory have the same values and strides on the GPU "
    "and back on the CPU. This holds for several types, channels last, views with an offset, and pinned "
    "tensors.",
    WHERE,
    "PyTorch for CUDA",
)
def large() -> Seen:
    alone()
    import torch

    import gpu_magic

    numbers = torch.arange(25_000_001)
    tensors = {
        "int64": numbers,
        "bfloat16": numbers.bfloat16(),
        "bool": numbers % 3 == 0,
        "a view": numbers[12_345:],
        "strides": numbers[:-1].view(5000, 5000).t(),
        "channels last": numbers[:-1].float().view(10, 10, 500, 500).to(memory_format=torch.channels_last),
        "pinned": numbers.pin_memory(),
        "1 MiB": numbers[: 1 << 17].clone(),
    }
    wrong = []
    for name, tensor in tensors.items():
        there = gpu_magic.to_gpu(tensor)
        back = gpu_magic.to_cpu(there)
        is_same = (
            there.device.type == "cuda" and torch.equal(there, tensor.cuda()) and torch.equal(back, tensor)
        )
        if not is_same or back.stride() != tensor.stride():
            wrong.append(name)
    return Seen(
        not wrong,
        f"{len(tensors) - len(wrong)} of {len(tensors)} are the same{'; wrong: ' if wrong else ''}{', '.join(wrong)}",
    )


@claim(
    "In an `on_gpu` block, gpu_magic also moves a tensor of 1 GiB to the GPU and back faster than `.to`.",
    WHERE,
    "PyTorch for CUDA",
)
def in_a_block() -> Seen:
    alone()
    import torch

    import gpu_magic

    here = torch.ones(_SIZE, dtype=torch.uint8)
    there = here.to("cuda")
    with gpu_magic.on_gpu(0):
        up = _median(lambda: gpu_magic.to_gpu(here)), _median(lambda: here.to("cuda"))
        down = _median(lambda: gpu_magic.to_cpu(there)), _median(lambda: there.to("cpu"))
    what = f"there {_rate(up[0])} compared with {_rate(up[1])}; back {_rate(down[0])} compared with {_rate(down[1])}"
    return Seen(up[0] < up[1] and down[0] < down[1], what)


@measurement(
    "The speed of `%to_gpu` and `%to_cpu` for a tensor of 1 GiB in ordinary memory, compared with `.to`.",
    WHERE,
    "PyTorch for CUDA",
)
def beside_to() -> Seen:
    alone()
    import torch

    import gpu_magic

    here = torch.ones(_SIZE, dtype=torch.uint8)
    there = here.to("cuda")
    up = _median(lambda: gpu_magic.to_gpu(here)), _median(lambda: here.to("cuda"))
    down = _median(lambda: gpu_magic.to_cpu(there)), _median(lambda: there.to("cpu"))
    what = "; ".join(
        f"{word} {_rate(ours)} compared with {_rate(theirs)}"
        for word, (ours, theirs) in (("there", up), ("back", down))
    )
    return Seen(True, what, {"ratio there": up[0] / up[1], "ratio back": down[0] / down[1]})


@measurement(
    "The time to move a model of 400 MiB in 100 layers to the GPU and back, compared with `.to`.",
    WHERE,
    "PyTorch for CUDA",
)
def model_beside_to() -> Seen:
    alone()
    import torch

    import gpu_magic

    model = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(100))

    def timed(*moves: Callable[[], Any]) -> list[float]:
        times: list[list[float]] = [[], []]
        for _ in range(_TIMES):
            for move, taken in zip(moves, times, strict=True):
                began = time.perf_counter()
                move()
                torch.cuda.synchronize()
                taken.append(time.perf_counter() - began)
        return [sorted(taken)[_TIMES // 2] * 1e3 for taken in times]

    theirs = timed(lambda: model.to("cuda"), lambda: model.to("cpu"))
    ours = timed(lambda: gpu_magic.to_gpu(model), lambda: gpu_magic.to_cpu(model))
    what = "; ".join(
        f"{word} {our:.0f} ms compared with {their:.0f} ms"
        for word, our, their in zip(("there", "back"), ours, theirs, strict=True)
    )
    return Seen(True, what, {"ratio there": ours[0] / theirs[0], "ratio back": ours[1] / theirs[1]})


def _median(move: Callable[[], Any]) -> float:
    """Return the median seconds of a copy. The first copy does not count."""
    import torch

    times = []
    for _ in range(_TIMES + 1):
        began = time.perf_counter()
        moved = move()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
        del moved
    return sorted(times[1:])[_TIMES // 2]


def _rate(seconds: float) -> str:
    return f"{_SIZE / seconds / 1e9:.1f} GB/s"
