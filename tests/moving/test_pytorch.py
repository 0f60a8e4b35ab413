"""`gpu_magic.to_gpu` on PyTorch's pretend accelerator, each test in a process of its own.

What is asked is PyTorch's own: where a tensor is, which storage it has, what its allocator holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.placement.test_on_gpu import run  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from tests.placement.test_on_gpu import Run

START = """
import sys, gc, copy, collections, dataclasses, functools, warnings
import torch
from torch import nn
import pretend_native
import gpu_magic
from gpu_magic import to_gpu, to_cpu, PlacementError

def error(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except PlacementError as problem:
        return str(problem)

def allocated(index=0):
    gc.collect()
    return torch.accelerator.memory_allocated(f"pretend:{index}")

def storage(tensor):
    return tensor.untyped_storage()._cdata

class Norm(nn.Module):
    # PyTorch's own is taken apart otherwise on accelerators, and then no bit is the same.
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
    def forward(self, x):
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([Norm(width), Norm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / (w // self.heads) ** 0.5
        mask = torch.ones(t, t, device=x.device).tril() == 0
        scores = scores.masked_fill(mask, float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norms[1](x))

class Transformer(nn.Module):
    def __init__(self, words=50, width=16, heads=2, layers=3):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Parameter(torch.randn(8, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight  # tied
        self.register_buffer("scale", torch.tensor(2.0))
        self.table = torch.arange(3.0)  # a plain attribute, which .to() forgets
    def forward(self, x):
        x = self.embed(x) * self.scale + self.place[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)

class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        def unit(a, b, stride=1):
            return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
        self.stem = unit(3, 8)
        self.one, self.two, self.skip = unit(8, 16, 2), unit(16, 16), nn.Conv2d(8, 16, 1, 2)
        self.head = nn.Linear(16, 5)
    def forward(self, x):
        x = self.stem(x)
        x = self.two(self.one(x)) + self.skip(x)
        return self.head(x.mean((2, 3)))
"""

TRAINING = """
def make(kind, seed=0):
    torch.manual_seed(seed)
    if kind == "transformer":
        model = Transformer()
        batch = {"x": torch.randint(50, (4, 8)), "y": torch.randint(50, (4, 8))}
    else:
        model = ConvNet().to(memory_format=torch.channels_last)
        batch = {"x": torch.randn(4, 3, 16, 16), "y": torch.randint(5, (4,))}
    optimizer = torch.optim.AdamW([
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "lr": 1e-2},
    ])
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), batch

def step(model, optimizer, scheduler, batch):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch["x"]).flatten(0, -2), batch["y"].flatten())
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss.item()
"""


@pytest.mark.parametrize("like_cuda", [True, False], ids=["like CUDA", "where tensors are swapped"])
@pytest.mark.parametrize("kind", ["transformer", "convnet"])
def test_training_goes_on_bit_for_bit(run: Run, kind: str, like_cuda: bool) -> None:  # noqa: F811
    """Trained, moved, trained, moved elsewhere, trained, moved back, trained: the losses of one never moved."""
    assert run(
        START + TRAINING,
        f"""
        pretend_native.be_like_cuda({like_cuda})
        stayed, moved = make({kind!r}), make({kind!r})
        losses = [[step(*stayed)], [step(*moved)]]
        model, optimizer, scheduler, batch = moved
        names = [id(p) for p in model.parameters()]
        grads = [p.grad.clone() for p in model.parameters()]
        formats = [p.stride() for p in model.parameters()]
        for device in (0, 2, "cpu"):
            to_gpu([model, optimizer, batch], device)
            where = torch.device("cpu" if device == "cpu" else f"pretend:{{device}}")
            assert {{t.device for t in [*model.parameters(), *model.buffers(), *batch.values()]}} == {{where}}
            assert all(torch.equal(p.grad.cpu(), g) for p, g in zip(model.parameters(), grads))
            assert {{s["exp_avg"].device for s in optimizer.state.values()}} == {{where}}
            assert {{s["step"].device.type for s in optimizer.state.values()}} == {{"cpu"}}
            assert scheduler.optimizer is optimizer
            assert [p.stride() for p in model.parameters()] == formats
            for _ in range(2):
                losses[0].append(step(*stayed)), losses[1].append(step(*moved))
            grads = [p.grad.cpu().clone() for p in model.parameters()]
        print([id(p) for p in model.parameters()] == names, losses[0] == losses[1], len(set(losses[0])))
        mine = {{id(p) for p in model.parameters()}}
        print({{id(p) for group in optimizer.param_groups for p in group["params"]}} == mine)
        if {kind!r} == "transformer":
            print(model.head.weight is model.embed.weight, model.table.device)
        print(allocated(0), allocated(2))
        """,
    ) == ["True True 7", "True", *(["True cpu"] if kind == "transformer" else []), "0 0"]


def test_what_is_tied_stays_tied(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        x = torch.arange(24.0).view(4, 6)
        rows, column, step = x[1:3], x[:, 2], x[::2, ::3]
        turned, bits = x.t(), x.view(torch.int32)
        moved = to_gpu([x, x, rows, column, step, turned, bits], 1)
        print(moved[0] is moved[1], len({storage(one) for one in moved}), {str(one.device) for one in moved})
        print([one.stride() for one in moved[2:]] == [one.stride() for one in (rows, column, step, turned, bits)])
        print(all(torch.equal(one.cpu(), old) for one, old in zip(moved[2:], (rows, column, step, turned, bits))))
        moved[0].fill_(7)
        print(moved[3].tolist(), x[0, 0].item(), x.device)
        big = torch.zeros(1 << 20)
        part = to_gpu(big[1000:1003], 0)  # not the rest of it
        print(allocated(0), part.tolist())
        wide = torch.ones(3, 1).expand(3, 5)
        print(to_gpu(wide, 0).stride(), allocated(0) - 0)
        last = torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)
        print(to_gpu(last, 0).is_contiguous(memory_format=torch.channels_last))
        z = torch.randn(3, dtype=torch.complex64)
        both = to_gpu([z, z.conj(), z.imag], 0)
        print(both[1].is_conj(), torch.equal(both[1].conj().cpu(), z), torch.equal(both[2].cpu(), z.imag))
        print(to_gpu(torch.empty(0, 3), 0).shape, to_gpu(torch.tensor(5), 0).item())
        """,
    ) == [
        "True 1 {'pretend:1'}",
        "True",
        "True",
        "[7.0, 7.0, 7.0, 7.0] 0.0 cpu",
        "12 [0.0, 0.0, 0.0]",
        "(1, 0) 12",
        "True",
        "True True True",
        "torch.Size([0, 3]) 5",
    ]


def test_leaves_and_graphs(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        w = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], requires_grad=True)
        (w * w).sum().backward()
        heard = []
        w.register_hook(lambda grad: heard.append(grad.device.type))
        w.label = "mine"
        grad, row = w.grad, w[1]
        other = to_gpu({"w": w, "row": row}, 0)
        print(other["w"] is w, w.is_leaf, w.requires_grad, w.device, w.grad.device, w.label)
        print(w.grad.tolist(), grad.device, other["row"]._base is w)
        other["row"].sum().backward()  # goes to w as it is now
        print(w.grad.tolist(), heard)
        frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        print(to_gpu(frozen, 0) is frozen, frozen.device, frozen.requires_grad)
        y = (torch.ones(2, requires_grad=True) * 2)
        print(to_gpu(y, 0).grad_fn is not None)
        with torch.inference_mode():
            z = torch.ones(2)
        print(to_gpu(z, 0).device)
        buffer = nn.BatchNorm1d(3).eval()
        to_gpu(buffer, 0)
        print(buffer.training, buffer.running_mean.device, buffer.running_mean.requires_grad)
        lazy = to_gpu(nn.LazyLinear(2), 0)
        print(lazy(torch.ones(1, 3, device="pretend:0")).device, lazy.weight.device)
        lstm, x = nn.LSTM(3, 4), torch.ones(2, 3)
        before = lstm(x)[0].tolist()
        to_gpu(lstm, 1)
        print(lstm._flat_weights[0] is lstm.weight_ih_l0, lstm.weight_hh_l0.device)
        print(to_cpu(lstm)(x)[0].tolist() == before)
        """,
    ) == [
        "True True True pretend:0 pretend:0 mine",
        "[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]] cpu True",
        "[[0.0, 2.0, 4.0], [7.0, 9.0, 11.0]] ['pretend']",
        "True pretend:0 False",
        "True",
        "pretend:0",
        "False pretend:0 False",
        "pretend:0 pretend:0",
        "True pretend:1",
        "True",
    ]


def test_a_graph_that_is_still_there_is_no_hindrance_where_cuda_has_none(run: Run) -> None:  # noqa: F811
    """A notebook's `loss` keeps the graph of the last step."""
    assert run(
        START,
        """
        model = nn.Linear(2, 2)
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        to_gpu(model, 0)
        model(torch.ones(1, 2, device="pretend:0")).sum().backward()
        print(model.weight.grad.device, model.weight.grad[0, 0].item())
        pretend_native.be_like_cuda(False)
        held = nn.LSTM(2, 2)  # which has weak references to its weights
        print(error(to_gpu, held, 0), held.weight_ih_l0.device)
        """,
    ) == [
        "pretend:0 2.0",
        "A Parameter of shape (8, 2) can't be moved to pretend:0: a graph, a hook or a weak reference holds on to it. "
        "Delete what was computed with it (a loss, outputs), and try again. Nothing was changed. cpu",
    ]


def test_optimizers(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        def trained(kind, **options):
            torch.manual_seed(0)
            model = nn.Linear(3, 3)
            optimizer = kind(model.parameters(), **options)
            def loss():
                optimizer.zero_grad()
                out = model(torch.ones(2, 3, device=model.weight.device)).square().mean()
                out.backward()
                return out
            for _ in range(2):
                optimizer.step(loss)
            return model, optimizer, loss
        for kind, options in [(torch.optim.SGD, dict(lr=0.1, momentum=0.9)), (torch.optim.Adam, dict(amsgrad=True)),
                              (torch.optim.Adam, dict(capturable=True, lr=torch.tensor(0.1))),
                              (torch.optim.LBFGS, dict(lr=0.1)), (torch.optim.Adagrad, {}), (torch.optim.Rprop, {})]:
            if options.get("capturable"):
                model = nn.Linear(3, 3)
                optimizer = kind(model.parameters(), **options)
                optimizer.state[model.weight] = {"step": torch.tensor(1.0), "exp_avg": torch.ones(3, 3)}
                to_gpu([model, optimizer], 0)
                print([str(one.device) for one in optimizer.state[model.weight].values()],
                      optimizer.param_groups[0]["lr"].device)
                continue
            model, optimizer, loss = trained(kind, **options)
            _, _, other = trained(kind, **options)
            to_gpu((model, optimizer), 1)
            print(kind.__name__, loss().item() == other().item(), model.weight.device)
            optimizer.step(loss)
        model, optimizer, loss = trained(torch.optim.Adam)
        to_gpu(optimizer, 0)  # with the parameters that are its
        print(model.weight.device, optimizer.state[model.weight]["exp_avg"].device)
        """,
    ) == [
        "SGD True pretend:1",
        "Adam True pretend:1",
        "['pretend:0', 'pretend:0'] pretend:0",
        "LBFGS True pretend:1",
        "Adagrad True pretend:1",
        "Rprop True pretend:1",
        "pretend:0 pretend:0",
    ]


def test_containers_of_all_kinds(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        from torch.nn.utils.rnn import pack_sequence
        x = torch.arange(3.0)
        Pair = collections.namedtuple("Pair", "a b")

        @dataclasses.dataclass
        class Batch:
            x: torch.Tensor
            rest: dict

        @dataclasses.dataclass(frozen=True)
        class Frozen:
            x: torch.Tensor

        class Slots:
            __slots__ = ("x", "empty")

        class Mine(dict):
            pass

        class Encoding(collections.UserDict):  # as Hugging Face's BatchEncoding
            def to(self, device):
                self.data = {key: value.to(device) for key, value in self.data.items()}
                return self

        class Graph:  # as PyTorch Geometric's Data: it moves itself, and makes a new one
            __module__ = "torch"  # another package's class, whose insides are its own
            def __init__(self, x):
                self.x = x
            def to(self, device):
                return type(self)(self.x.to(device))

        class Sparse:  # moves itself in place
            __module__ = "torch"
            def __init__(self, x):
                self.x = x
            def to(self, device):
                self.x = self.x.to(device)
                return self

        slots, mine = Slots(), Mine(x=x)
        slots.x, mine.extra = x, [x]
        encoding = Encoding({"x": x})
        things = [(x, 1, "a"), Pair(x, [x]), Batch(x, {"x": x}), Frozen(x), slots, mine, {x}, frozenset([x]),
                  collections.deque([x]), collections.OrderedDict(b=x, a=x), collections.defaultdict(list, k=[x]),
                  functools.partial(print, x, end=x), encoding, torch.max(x.view(1, 3), 1), {x: 1}, Graph(x), Sparse(x)]
        moved = to_gpu(things, 3)
        print(moved is things, {type(a) is type(b) for a, b in zip(things, moved)})
        print(dict(gpu_magic.devices_of(things[:15])))  # one tensor, and the index that max has found
        new = moved[0][0]
        print(new.device, moved[1].a is new, moved[1].b[0] is new, moved[2].x is new, moved[3].x is new)
        print(slots.x is new, mine["x"] is new, mine.extra[0] is new, new in moved[6], new in moved[7], list(moved[9]))
        print(moved[11].args[0] is new, moved[11].keywords["end"] is new, encoding.data["x"] is new)
        print(moved[13].values.device, moved[14][new], moved[15].x.device, moved[16].x.device)
        packed = pack_sequence([torch.ones(3), torch.ones(2)])
        other = to_gpu(packed, 0)
        print(type(other).__name__, other.data.device, other.batch_sizes.device)
        loop = [x]
        loop.append((loop, {"loop": loop}))
        to_gpu(loop, 0)
        print(loop[1][0] is loop, loop[1][1]["loop"] is loop, loop[0].device)
        deep = x
        for _ in range(20_000):
            deep = (deep,) if _ % 2 else [deep]
        deep = to_gpu(deep, 0)
        while not isinstance(deep, torch.Tensor):
            deep = deep[0]
        print(deep.device)
        """,
    ) == [
        "True {True}",
        "{'pretend:3': 24}",
        "pretend:3 True True True True",
        "True True True True True ['b', 'a']",
        "True True True",
        "pretend:3 1 pretend:3 pretend:3",
        "PackedSequence pretend:0 cpu",
        "True True pretend:0",
        "pretend:0",
    ]


def test_what_stays_as_it_is(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        from torch.utils.data import DataLoader, TensorDataset
        x = torch.ones(4, 2)
        loader = DataLoader(TensorDataset(x))
        model = nn.Linear(2, 2)
        optimizer = torch.optim.Adam(model.parameters())
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(1))
        state = {"model": model, "loader": loader, "scheduler": scheduler, "scaler": scaler, "n": 3, "f": print}
        to_gpu(state, 0)
        print(loader.dataset.tensors[0].device, scheduler.optimizer is optimizer, scaler._scale.device, state["n"])
        print(error(to_gpu, scheduler, 0))
        print(error(to_gpu, 3))
        print(error(to_gpu, torch.ones(2, device="meta"), 0))
        print(error(to_gpu, torch.ones(2), "0,1"))
        print(error(to_gpu, torch.ones(2), 9))
        print(to_gpu(x, "cpu") is x)
        """,
    ) == [
        "cpu True cpu 3",
        "There is nothing to move in it (OneCycleLR): no framework's arrays.",
        "There is nothing to move in it (int): no framework's arrays.",
        "A Tensor of shape (2,) is on the meta device and has no data to move.",
        "Variables go to one device, and 0,1 names 2.",
        "cuda:9 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3.",
        "True",
    ]


def test_sparse_tensors_keep_their_ties(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        values = torch.tensor([1.0, 2.0])
        x = torch.sparse_coo_tensor([[0, 2], [1, 0]], values, (3, 3))
        moved, same = to_gpu([x, x], 0)
        print(moved is same, moved.device, moved.is_coalesced(), moved._values().tolist(), moved._indices().tolist())
        print(to_cpu(moved).to_dense().tolist() == x.to_dense().tolist())
        """,
    ) == ["True pretend:0 False [1.0, 2.0] [[0, 2], [1, 0]]", "True"]


def test_a_failure_at_any_allocation_changes_nothing(run: Run) -> None:  # noqa: F811
    assert run(
        START + TRAINING,
        """
        model, optimizer, scheduler, batch = make("transformer")
        step(model, optimizer, scheduler, batch)
        x = torch.arange(20.0).view(4, 5)
        pair, state = (x, x[1]), {"batch": batch, "row": x[2], "leaf": torch.ones(2, requires_grad=True)}
        things = [model, optimizer, state, pair]
        def look():
            tensors = [*model.parameters(), *model.buffers(), model.table, *batch.values(), x, *pair, state["row"],
                       *(p.grad for p in model.parameters()), *(v for s in optimizer.state.values() for v in s.values())]
            return [(id(t), str(t.device), storage(t), t.stride(), t.tolist()) for t in tensors]
        before = look()
        failures, count = set(), 0
        while True:
            count += 1
            pretend_native.fail_after(count)
            said = error(to_gpu, things, 1)
            if said is None:
                break
            failures.add(said.partition(" after")[0])
            assert look() == before and allocated(1) == 0 and things == [model, optimizer, state, pair], count
        pretend_native.fail_after(0)
        print(failures, count > 100, pair[0].device, things[3][0].device, model.place.device)
        """,
    ) == ["{'pretend:1 ran out of memory'} True cpu pretend:1 pretend:1"]


def test_what_does_not_fit_is_not_begun(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        x = torch.ones(1 << 20)
        pretend_native.set_total(1, 3 << 20)
        print(error(to_gpu, [x, x[1:]], 1))
        print(torch.accelerator.max_memory_allocated("pretend:1"), x.device)
        pretend_native.set_total(1, 5 << 20)
        kept = torch.ones(1 << 19, device="pretend:1")
        del kept  # its allocator keeps it, and can use it
        print(to_gpu(x, 1).device)
        """,
    ) == [
        "4.0 MiB do not fit on pretend:1, where 3.0 MiB are free. Move fewer, or see what %gpu_free gives back. Nothing "
        "was changed.",
        "0 cpu",
        "pretend:1",
    ]


def test_a_failure_while_things_are_put_in_place_is_undone(run: Run) -> None:  # noqa: F811
    assert run(
        START,
        """
        model = nn.Linear(2, 2)
        model.weight.grad = torch.ones(2, 2)
        x = torch.ones(3)
        class Holder:
            def __init__(self):
                self.items = [x]
        @dataclasses.dataclass(frozen=True)
        class Mean:
            x: torch.Tensor
            def __copy__(self):
                raise RuntimeError("no copies")
        holder = Holder()
        things = [model, holder, x, Mean(x)]
        grad = model.weight.grad
        print(error(to_gpu, things, 0))
        print(model.weight.device, model.weight.grad is grad, holder.items[0] is x, things[2] is x, allocated(0))
        """,
    ) == [
        "Moving to pretend:0 failed, and all is as it was: RuntimeError: no copies",
        "cpu True True True 0",
    ]
