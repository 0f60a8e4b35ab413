"""`to_gpu` with PyTorch's tensors, modules and optimizers, on the pretend accelerator.

What is asked is the frameworks' own: where a tensor is, which storage it has, what its allocator holds.
"""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gpu_magic
from gpu_magic import to_cpu, to_gpu
from gpu_magic.frameworks.private import PRIVATE
from gpu_magic.move.move import move_variables
from tests.programs.errors import placement_error
from tests.programs.runner import ELSEWHERE, gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import pretend_native
    import torch
    import torch._dynamo  # which the first optimizer imports: two seconds, once for all programs here
    from torch import nn
    from torch.nn.utils import parametrizations
    from torch.testing._internal.two_tensor import TwoTensor

    from tests.programs.reached import devices_of, form, storage

NO_DEVICE = "cuda:9 cannot be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3."
OR = " To move to the CPU instead, add --or-cpu"


def allocated(index):
    gc.collect()
    return torch.accelerator.memory_allocated(f"pretend:{index}")


def equal(new, old):
    return [torch.equal(one.cpu(), other) for one, other in zip(new, old, strict=True)]


@gives([True, ["pretend:0"], 8 + 24 + 12 + 480 + 8 + 16 + 16, "cpu", False, 1, 2])
def test_layouts():
    """A part is moved without the rest, an expanded tensor stays expanded, a memory format stays, and so do originals."""
    with torch.inference_mode():
        given = [torch.ones(2)]
    last = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    given += [torch.arange(1 << 20)[1000:1003], torch.ones(3, 1).expand(3, 5), last, torch.tensor(5)]
    given += [torch.arange(4.0).as_strided((2, 2), (3, 0))]  # as large as its storage, and not all of it
    memory = torch.arange(64, dtype=torch.uint8)  # for elements of several sizes
    given += [torch.empty(0, 3), memory[1:3], memory[8:16].view(torch.float32)]
    given[-2].label = "mine"
    before, originals = form(given), list(given)
    to_gpu(given, 0)
    found = [form(given) == before, devices_of(given), allocated(0), *devices_of(originals)]
    net = nn.Linear(2, 2)
    with torch.inference_mode():
        found.append(to_gpu(net, 1).weight.is_inference())
    one, other = to_gpu([torch.empty(0), torch.empty(0)], 0)
    one.resize_(1).fill_(1)
    other.resize_(1).fill_(2)  # in another memory
    return [*found, one.item(), other.item()]


@gives(
    [
        *([True] * 4, True, 1, "pretend:0"),  # complex numbers
        *(True, "mine", ["pretend:0"]),  # wrappers
        *(True, "pretend:0", False, [[0, 2], [1, 0]], True),  # sparse ones
    ]
)
def test_kinds():
    """Complex numbers, what wraps other tensors, as torchao's do, and sparse ones."""
    z = torch.randn(3, dtype=torch.complex64)
    new = x, conjugate, imaginary, negative = to_gpu((z, z.conj(), z.imag, z.conj().imag), 0)
    are_equal = equal([x, conjugate.conj(), imaginary, negative], [z, z, z.imag, -z.imag])
    found = [are_equal, conjugate.is_conj(), len(set(map(storage, new[:3]))), negative.device]
    one, other = (TwoTensor(torch.ones(2), torch.zeros(2)) for _ in range(2))
    parameter = nn.Parameter(other, requires_grad=False)
    parameter.label = "mine"
    plain, moved = to_gpu([one, parameter], 0)
    found += [moved is parameter, moved.label, devices_of([plain, plain.a, moved, moved.a, moved.b])]
    x = torch.sparse_coo_tensor([[0, 2], [1, 0]], torch.tensor([1.0, 2.0]), (3, 3))
    moved, same = to_gpu([x, x], 0)
    is_back = torch.equal(to_cpu(moved).to_dense(), x.to_dense())
    return [*found, moved is same, moved.device, moved.is_coalesced(), moved._indices().tolist(), is_back]


if ELSEWHERE:

    class Quantizing(nn.Parameter):
        def to(self, device, *_):  # as bitsandbytes' 4-bit weights, which change themselves in it
            self.scale = self.data.abs().max().to(device)
            self.data = (self.data / self.data.abs().max() * 127).to(device, torch.int8)
            return self


@gives([True, "torch.float32", True, False, True, "torch.int8", ["pretend:0"], True])
def test_a_parameter_with_its_own_to():
    """It does what it does in `nn.Module.to`, and all of that is undone after a failure."""
    net = nn.Linear(2, 2)
    net.weight = weight = Quantizing(net.weight.detach(), requires_grad=False)
    before = weight.data.clone()
    pretend_native.fail_after(3)
    found = ["ran out of memory" in placement_error(to_gpu, net, 0), weight.dtype]
    found += [torch.equal(weight.data, before), hasattr(weight, "scale")]
    pretend_native.fail_after(0)
    to_gpu(net, 0)
    others = Quantizing(before, requires_grad=False)
    other = nn.Linear(2, 2)
    other.weight = others
    other.to("pretend:0")
    is_equal = torch.equal(weight.data.cpu(), others.data.cpu())
    devices = devices_of([*net.parameters(), weight.scale])
    return [*found, net.weight is weight, weight.dtype, devices, is_equal]


def numpy_arrays(device):
    """Each becomes a tensor with a memory of its own, whatever its layout, and nothing is warned of."""
    warnings.simplefilter("error")
    a = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    a.flags.writeable = False
    given = a[1], a, a[:, ::-1], a.T[1:], a.astype(">f8"), a[:0], np.arange(3)[::-1]
    before, moved = [one.tolist() for one in given], to_gpu(given, device, numpy="torch")
    a.flags.writeable = True
    a.fill(-1)
    return [[one.tolist() for one in moved] == before, devices_of(moved)]


@gives([True, True, "pretend:0", "pretend:0", [3, 4, 5], "ndarray", "MaskedArray"])
def test_numpy_beside_tensors():
    """Arrays stay beside tensors; if they are asked for, text and masks stay."""
    a, x, masked = np.arange(6.0).reshape(2, 3), torch.ones(2), np.ma.array([1.0, 2.0], mask=[0, 1])
    batch = {"x": a, "row": a[1], "text": np.array(["a"]), "masked": masked, "objects": np.empty(2, object)}
    batch["objects"][0] = x
    move_variables(space := {"x": x, "batch": batch}, (), "x batch", device="0")
    found = [batch["x"] is a, batch["objects"][0] is space["x"], space["x"].device]
    to_gpu(batch, 0, numpy="torch")
    kinds = [type(batch[name]).__name__ for name in ("text", "masked")]
    return [*found, batch["x"].device, batch["row"].tolist(), *kinds]


@gives(
    [
        *(True, True, True, "mine", True, "pretend:0", "pretend:0", "cpu", True),
        *([[0, 0, 0], [1, 1, 1]], ["pretend"]),  # what its view's backward adds, and its hook hears
    ]
)
def test_leaf_and_its_view():
    w = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], requires_grad=True)
    (w * w).sum().backward()
    heard, w.label = [], "mine"
    w.register_hook(lambda grad: heard.append(grad.device.type))
    old, grad = w.grad, w.grad.clone()
    moved = to_gpu({"w": w, "row": w[1]}, 0)
    found = [moved["w"] is w, w.is_leaf, w.requires_grad, w.label, *equal([w.grad], [grad])]
    found += [w.device, w.grad.device, old.device, moved["row"]._base is w]
    moved["row"].sum().backward()  # goes to w as it is now
    return [*found, (w.grad.cpu() - grad).tolist(), heard]


@gives(
    {
        "frozen": [True, "pretend:0", False],
        "computed": ["pretend:1", "cpu", [2, 2]],
        "view": ["torch.complex64", True],
    }
)
def test_leaves():
    """A frozen parameter; what was computed, whose backward goes through the copy; a view of another dtype."""
    frozen, leaf = nn.Parameter(torch.ones(2), requires_grad=False), torch.ones(2, requires_grad=True)
    pairs = nn.Parameter(torch.arange(8.0).view(4, 2))
    computed = to_gpu(leaf * 2, 1)
    computed.sum().backward()
    moved, _, numbers = to_gpu([frozen, pairs, torch.view_as_complex(pairs)], 0)
    are_equal = equal([torch.view_as_real(numbers.detach())], [pairs.detach().cpu()])
    return {
        "frozen": [moved is frozen, frozen.device, frozen.requires_grad],
        "computed": [computed.device, leaf.device, leaf.grad.tolist()],
        "view": [numbers.dtype, *are_equal],
    }


@gives(
    [
        *("cpu", "pretend:0", 2),
        "A Parameter of shape (8, 2) cannot be moved to pretend:0: a graph, a hook or a weak reference holds on to it. "
        "Delete what was computed with it (a loss, outputs), and try again. Nothing was changed.",
        "cpu",
    ]
)
def test_what_holds_on():
    """A notebook's `loss` keeps the graph of a step: no hindrance where CUDA has none, but where tensors are swapped."""
    model, x = nn.Linear(2, 2), torch.ones(1, 2)
    loss = model(x).sum()
    loss.backward()
    to_gpu(model, 0)
    model(x.to("pretend:0")).sum().backward()
    found = [loss.device, model.weight.grad.device, model.weight.grad[0, 0].item()]
    pretend_native.be_like_cuda(False)
    held = nn.LSTM(2, 2)  # which has weak references to its weights
    return [*found, placement_error(to_gpu, held, 0), held.weight_ih_l0.device]


def without(name):
    """Take a private name of PyTorch's away, and move a model with a view of its weight."""

    def missing(_):
        raise AttributeError

    model, address = nn.Linear(2, 2), torch.Tensor.data_ptr
    weight, row, expected = model.weight, model.weight[0], model.weight[0].tolist()
    if name.endswith("_base"):
        torch.Tensor._base = property(missing)
    elif name.endswith("_apply"):
        del nn.Module._apply
    else:  # a table of another kind
        attribute = name.rpartition(".")[2]
        vars(model)[attribute] = type("Table", (dict,), {})(vars(model)[attribute])
    moved = to_gpu({"model": model, "row": row}, 0)["row"]
    kept = [model.weight is weight, moved.tolist() == expected, moved.grad_fn is not None]
    return [kept, [weight.device, moved.device], address(moved) == address(weight)]


if ELSEWHERE:

    class Lstm(nn.LSTM):
        flattened_on = ()

        def flatten_parameters(self):  # to one piece, as cuDNN needs them
            self.flattened_on = *self.flattened_on, self.weight_ih_l0.device


@gives(
    [
        ["pretend:1", "pretend:1", "pretend:1", "pretend:1", True],
        ["a function cannot be moved as a whole (16 bytes on cpu)"],
    ]
)
def test_more_in_modules():
    """Attributes, hooks and buffers that share memory are found in PyTorch's own modules."""
    net, held, x = nn.Sequential(nn.Linear(2, 2), nn.Identity()), torch.ones(4), torch.ones(6)
    net[0].scale = [torch.ones(2)]
    net[1].register_buffer("all", x, persistent=False)
    net[1].register_buffer("part", x[2:4])
    net[1].register_forward_hook(lambda *_: held)
    (line,) = move_variables(space := {"net": net}, (), "net", device="1")[2:]
    net = space["net"]
    devices = [net[0].scale[0].device, net[0].weight.device, net[1].all.device, net[1].part.device]
    return [
        [*devices, storage(net[1].all) == storage(net[1].part)],
        [line.partition(": ")[2].partition(". ")[0]],
    ]


@gives([False, "pretend:1", False, "pretend:1", True, "pretend:1", True])
def test_modules():
    """Buffers stay buffers; a lazy module gets its weights there; an LSTM's flat weights are its weights."""
    norm, lazy, lstm, x = nn.BatchNorm1d(3).eval(), nn.LazyLinear(2), Lstm(3, 4), torch.ones(2, 3)
    before = lstm(x)[0]
    to_gpu([norm, lazy, lstm], 1)
    lazy(x.to("pretend:1"))
    found = [norm.training, norm.running_mean.device, norm.running_mean.requires_grad, lazy.weight.device]
    found += [lstm._flat_weights[1] is lstm.weight_hh_l0, lstm.flattened_on[-1]]
    return [*found, torch.equal(to_cpu(lstm)(x)[0], before)]


def tied_through_a_parametrization():
    one, other = parametrizations.weight_norm(nn.Linear(8, 8)), nn.Linear(8, 8)
    other.weight = one.parametrizations.weight.original1
    return nn.Sequential(one, other)


@gives([[["pretend:1"], True, True]] * 5)
def test_modules_that_compute_their_weights():
    """They give what they gave before, and their parameters are the same objects, tied ones also."""
    makers = [
        lambda: nn.utils.weight_norm(nn.Linear(8, 8)),  # the old one, with a hook
        lambda: parametrizations.orthogonal(nn.Linear(8, 8)),
        tied_through_a_parametrization,
        lambda: nn.TransformerEncoderLayer(8, 2, batch_first=True, dropout=0.0),
        lambda: nn.Sequential(nn.Unflatten(2, (2, 2, 2)), nn.Flatten(0, 1), nn.Conv2d(2, 2, 1)),
    ]
    warnings.simplefilter("ignore")  # the old one is deprecated
    found, x = [], torch.randn(2, 3, 8)
    for maker in makers:
        model = maker().eval()
        right, before = model(x), [*model.parameters()]
        to_gpu(model, 1)
        is_same = all(one is other for one, other in zip(before, model.parameters(), strict=True))
        result = model(x.to("pretend:1"))
        found.append([devices_of(model), torch.allclose(result.cpu(), right, atol=1e-5), is_same])
    return found


if ELSEWHERE:

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(20, 4), nn.Linear(4, 20, bias=False)
            self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
            self.head.weight = self.embed.weight  # tied
            self.table = torch.arange(3.0)  # a plain attribute, which .to() forgets

        def forward(self, x):
            x = self.norm(self.conv(self.embed(x).permute(0, 3, 1, 2))).relu()
            return self.head(x.mean((2, 3)))


class Training:
    def __init__(self, kind, options):
        torch.manual_seed(0)
        is_flat = kind == "LBFGS"  # whose gradients are to be contiguous
        self.net = Net() if is_flat else Net().to(memory_format=torch.channels_last)
        self.optimizer = getattr(torch.optim, kind)(self.net.parameters(), **options)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.batch = {"x": torch.randint(20, (4, 6, 6)), "y": torch.randint(20, (4,))}
        self.losses = []

    def step(self):
        def loss():
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.net(self.batch["x"]), self.batch["y"])
            loss.backward()
            return loss

        self.losses.append(self.optimizer.step(loss).item())
        self.scheduler.step()


def training(kind, options, like_cuda):
    """Train, move, train on, also on another device and back, beside one that stays."""
    pretend_native.be_like_cuda(like_cuda)
    stayed, moved = Training(kind, options), Training(kind, options)
    net, optimizer, batch, parameters = moved.net, moved.optimizer, moved.batch, [*moved.net.parameters()]
    moves = []
    for device in (None, 0, 2, "cpu"):
        if device is not None:
            before = form(parameters)  # with their gradients and strides
            to_gpu([net, optimizer, batch], device)
            moves.append([form(parameters) == before, devices_of([optimizer.state, *net.buffers(), batch])])
        for one in (stayed, moved) * 2:
            one.step()
    mine = [id(one) for one in parameters]
    return {
        "moves": moves,
        "losses": [stayed.losses, moved.losses],
        "the same": [id(one) for one in net.parameters()] == mine,
        "optimizer's": [id(one) for one in optimizer.param_groups[0]["params"]] == mine,
        "tied": net.head.weight is net.embed.weight,
        "scheduler's": moved.scheduler.optimizer is optimizer,
        "plain attribute": net.table.device,
        "left behind": [allocated(0), allocated(2)],
    }


def adam(**options):
    model = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters(), **options)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


@gives(
    {
        "alone": ["pretend:0", "pretend:0"],
        "optimizer first": ["cpu", "cpu", "pretend:0"],
        "rate first": ["cpu", "cpu", "pretend:0"],
        "capturable": ["pretend:0"] * 3,
        "computed": ["cpu", "cpu", "pretend:0", "pretend:0"],
        "plain tensor": [True, ["pretend:0", "pretend:0"], 24],
    }
)
def test_optimizers():
    """One alone brings its parameters; what it keeps on the CPU stays there, whatever shares it."""
    found = {}
    model, optimizer = adam()
    to_gpu(optimizer, 0)
    found["alone"] = [model.weight.device, optimizer.state[model.weight]["exp_avg"].device]
    for first in ("optimizer", "rate"):
        rate = torch.tensor(0.1)
        model, optimizer = adam(lr=rate, foreach=False)
        things = [optimizer, optimizer.state_dict(), rate]
        to_gpu(things if first == "optimizer" else things[::-1], 0)
        state, group = optimizer.state[model.weight], optimizer.param_groups[0]
        found[f"{first} first"] = [one.device for one in (state["step"], group["lr"], state["exp_avg"])]
    model = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters(), capturable=True, lr=torch.tensor(0.1))
    optimizer.state[model.weight] = state = {"step": torch.tensor(1.0), "exp_avg": torch.ones(3, 3)}
    to_gpu([model, optimizer], 0)
    of_all = [*state.values(), optimizer.param_groups[0]["lr"]]
    found["capturable"] = [one.device for one in of_all]  # Adam keeps all on the GPU then
    model, optimizer = adam(lr=torch.tensor(0.1), foreach=False)
    group = optimizer.param_groups[
        0
    ]  # in which Prodigy, for example, keeps what it computes from the gradients
    group.update(weight_decay=torch.tensor(0.0), numerator=torch.tensor(1.0), history=[torch.ones(2)])
    to_gpu([model, optimizer], 0)
    model(torch.ones(2, 3, device="pretend:0")).sum().backward()
    optimizer.step()
    of_all = group["lr"], group["weight_decay"], group["numerator"], *group["history"]
    found["computed"] = [one.device for one in of_all]
    x = torch.ones(3, requires_grad=True)  # a plain tensor, which is replaced once it needs no gradient
    optimizer = torch.optim.Adam([x])
    x.sum().backward()
    optimizer.step()
    x.requires_grad_(False)
    x, optimizer = to_gpu((x, optimizer), 0)
    devices = [optimizer.state[x]["exp_avg"].device, x.grad.device]
    found["plain tensor"] = [
        optimizer.param_groups[0]["params"][0] is x,
        devices,
        gpu_magic.devices_of(x)["pretend:0"],
    ]
    return found


@gives(["pretend:1", "pretend:3", "pretend:2", "pretend:0", True])
def test_destinations():
    model, x = nn.Linear(2, 2), torch.ones(2)
    found = [to_gpu(model, device).weight.device for device in (torch.device("pretend:1"), np.int64(3))]
    with gpu_magic.on_gpu(2):
        found.append(to_gpu(model).weight.device)
    return [*found, to_gpu(model).weight.device, to_cpu(x) is x]


@gives(
    [
        "4.0 MiB do not fit on pretend:1, where 3.0 MiB are free. Nothing was changed. Move fewer, or free memory with "
        "%gpu_free",
        *(0, "cpu", "pretend:2", "pretend:3"),
    ]
)
def test_room():
    """What does not fit is not begun; a view needs no room, and what the allocator keeps is room."""
    x, w = torch.ones(1 << 20), nn.Parameter(torch.ones(1 << 20))
    for device, total in ((1, 3 << 20), (2, 6 << 20), (3, 5 << 20)):
        pretend_native.set_total(device, total)
    found = [
        placement_error(to_gpu, [x, x[1:]], 1),
        torch.accelerator.max_memory_allocated("pretend:1"),
        x.device,
    ]
    view, _ = to_gpu([w.view(2, -1), w], 2)
    kept = torch.ones(1 << 19, device="pretend:3")
    del kept
    return [*found, view.device, to_gpu(x, 3).device]


def refused(calls):
    """Return what is told of calls that are given as text."""
    model, resized = nn.Linear(2, 2), torch.ones(100)
    optimizer = torch.optim.Adam(model.parameters())
    resized.untyped_storage().resize_(0)
    space = globals() | {"ones": torch.ones(2), "model": model, "optimizer": optimizer, "resized": resized}
    space["scheduler"] = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10)
    return [placement_error(eval, call, space) for call in calls]


@pytest.mark.parametrize("device", ["0", "cpu"])
def test_numpy_arrays(run: Runner, device: str) -> None:
    assert run(numpy_arrays, device) == [True, ["pretend:0" if device == "0" else device]]


# Calls, and why each is refused.
REFUSED: dict[str, str | None] = {
    "to_gpu('model')": "'model' is a string, not a variable. Remove the quotes.",
    "to_gpu(3)": "Nothing to move in it (int): no framework's arrays.",
    "to_gpu(scheduler)": "Nothing to move in it (OneCycleLR): no framework's arrays.",
    "to_gpu(torch.amp.GradScaler('cpu'))": "Nothing to move in it (GradScaler): no framework's arrays.",
    "to_gpu(torch.ones(2, device='meta'), or_cpu=True)": "A Tensor of shape (2,) is on the meta device and has no "
    "data to move.",
    "to_gpu(resized)": "A Tensor of shape (100,) has no memory now (its storage was resized).",
    "to_gpu(torch.jit.script(model))": "A scripted module keeps its tensors outside Python. Use its own "
    ".to(device)",
    "to_gpu(torch.export.export(model, (torch.ones(1, 2),)))": "An exported program has its device in its graph: "
    'torch.export.passes.move_to_device_pass(program, "cuda:0") returns one for another.',
    "to_gpu(ones, '0,1')": "Variables go to one device, but 0,1 names 2.",
    "to_gpu(ones, 9)": NO_DEVICE + OR,
    "to_gpu(np.ones(2))": "it is a NumPy array, which has no device. To convert it to a tensor on the GPU: "
    "--numpy torch (in Python: numpy='torch'), or jax or cupy.",
    "to_gpu(np.ones(2), numpy='jax')": "--numpy jax is not possible. First import one of torch, jax, cupy.",
    "to_gpu(np.ones(2, np.longdouble), 0, numpy='torch')": "PyTorch has no float128 tensors.",
    "to_gpu(np.array(['a']), 0, numpy='torch')": "it is NumPy's, but no framework has arrays of <U1.",
}


def test_what_can_not_be_moved_says_why(run: Runner) -> None:
    assert dict(zip(REFUSED, run(refused, list(REFUSED)), strict=True)) == REFUSED


@pytest.mark.parametrize(
    "name", [name for name in sorted(PRIVATE) if name.startswith("torch") and "%to_gpu" in PRIVATE[name][1]]
)
def test_models_and_views_are_moved_without_private_names(run: Runner, name: str) -> None:
    is_view = not name.endswith("_base")
    assert run(without, name) == [[True] * 3, ["pretend:0", "pretend:0"], is_view]


TRAINED = [
    ("AdamW", {"weight_decay": 0.1}, True),
    ("AdamW", {"amsgrad": True}, False),
    ("SGD", {"lr": 0.1, "momentum": 0.9}, True),
    pytest.param("LBFGS", {"lr": 0.1, "max_iter": 3}, True, marks=pytest.mark.nightly),
    pytest.param("Adagrad", {}, True, marks=pytest.mark.nightly),
    pytest.param("Rprop", {}, True, marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("kind", "options", "like_cuda"), TRAINED)
def test_training_goes_on_bit_for_bit(
    run: Runner, kind: str, options: dict[str, Any], like_cuda: bool
) -> None:
    """Like CUDA, and where tensors are swapped: the losses are those of a training that never moved."""
    found = run(training, kind, options, like_cuda)
    stayed, moved = found.pop("losses")
    assert moved == stayed
    assert len(set(stayed)) == 8
    steps = [] if kind in {"SGD", "LBFGS"} else ["cpu"]
    assert found == {
        "moves": [[True, sorted({*steps, to})] for to in ("pretend:0", "pretend:2", "cpu")],
        "the same": True,
        "optimizer's": True,
        "tied": True,
        "scheduler's": True,
        "plain attribute": "cpu",
        "left behind": [0, 0],
    }
