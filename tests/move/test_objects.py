"""`to_gpu` with what holds PyTorch's tensors: containers, objects of other packages, and odd ones.

Packages are not installed here. The classes do what theirs do with tensors and devices, and nothing else: those of
transformers as its 4.57 has them, `Remembering` and `Metric` as Lightning 2.6 and torchmetrics 1.0. A module that is
not the user's makes an object another package's."""

from __future__ import annotations

import collections
import dataclasses
import gc
import queue
import threading
import types
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_magic import devices_of, to_cpu, to_gpu
from gpu_magic.frameworks.target import LogicalDevice
from gpu_magic.move.move import carry_out, leftover_lines, move_variables
from gpu_magic.move.plan import Plan
from gpu_magic.objects.walk import Budget
from tests.programs.errors import placement_error
from tests.programs.runner import ELSEWHERE, gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import torch
    import torch._dynamo  # as in the other files with PyTorch: they have one server
    from torch import nn
    from torch.nn.utils.rnn import pack_sequence
    from torch.utils.data import DataLoader, TensorDataset

    from tests.move.others import Cache, CacheLayer, Graph, Lit, Output, Pipe, Pipeline, Refusing, Remembering
    from tests.programs import reached

WHOLE = (
    "of transformers cannot be moved as a whole (24 bytes on cpu). Create it again in a cell with %%on_gpu."
)
MODELS = WHOLE.replace(
    "Create it again in a cell with %%on_gpu.", "Move its models: %to_gpu pipe.model --device 1"
)
LOADED = "stays on the CPU, where a DataLoader's workers read it. Move each batch (32 bytes on cpu)."
RAISING = ("Shape", "Class", "OfOddType", "Dtype", "To", "OddNet", "names and keys")


def move(names, space, **options):
    """Move variables as the magic does, and return the lines that it prints after the table."""
    lines = move_variables(space, (), names, device="1", **options)
    return [line for line in lines if "→" not in line]


@gives([["pretend:0"], True])
def test_deep_tuples():
    """They are built again from within, also if the way to the deepest one begins elsewhere."""
    held = x = (torch.ones(1),)
    for _ in range(6000):
        held = (held,)
    (again,), moved = to_gpu([(held,), held], 0)
    while type(moved[0]) is tuple:
        (moved,) = moved
    return [reached.devices_of(moved), again is not held and x[0].device.type == "cpu"]


@dataclasses.dataclass(frozen=True)
class Closed:
    x: object
    next: object = None


@gives(["A Closed that cannot change holds itself, so it cannot be built again. Nothing was changed.", "cpu"])
def test_frozen_circle():
    first = Closed(torch.ones(1))
    object.__setattr__(first, "next", Closed(1, first))
    return [placement_error(to_gpu, first, 0), first.x.device]


@gives(
    [
        [
            "4 bytes moved to pretend:1.",
            "bad stays: A Tensor of shape (2,) is on the meta device and has no data to move.",
        ],
        ["pretend:1", "pretend:1", "cpu", "cpu"],
    ]
)
def test_all_leaves_a_variable_whole():
    """What a variable that stays shares with one that moves is moved, and nothing else of it."""
    shared, own = nn.Parameter(torch.ones(1)), torch.ones(3)
    view, net = own[1:], nn.Linear(1, 1)
    meta = torch.ones(2, device="meta")
    space = {"a": [shared], "bad": [net, own, view, shared, meta], "c": (shared,)}
    lines = move("", space, all_of_them=True)
    return [lines[1:], [space["a"][0].device, space["c"][0].device, own.device, net.weight.device]]


class Log:
    pass


log = Log()


@gives(["pretend:0", True, True])
def test_deep():
    """A loop, at the end of more objects than Python calls functions in another, beside more than is looked at."""
    loop = [torch.arange(3.0)]
    loop.append((loop, {"loop": loop}))
    held = loop
    for i in range(6000):
        held = (held,) if i % 2 or i < 3000 else [held]
    held, *_ = to_gpu([held, *[log] * 210_000], 0)
    while held is not loop:
        (held,) = held
    return [loop[0].device, loop[1][0] is loop, loop[1][1]["loop"] is loop]


if ELSEWHERE:

    class OwnPipe(Pipe):
        pass


@gives([True, True, False, ["pretend:1"], "cpu"])
def test_self_moving():
    """Another package's object is asked to move; the user's own is looked into: what it holds stays tied."""
    pipe, own, x = Pipe(), OwnPipe(), torch.ones(2)
    own.held["x"] = x
    largest, packed = torch.max(x.view(1, 2), 1), pack_sequence([torch.ones(3), torch.ones(2)])
    pipe_now, own, x, graph, largest, packed = to_gpu([pipe, own, x, Graph(x), largest, packed], 1)
    moved = [pipe, pipe.model, pipe.held, own, graph, largest.values, packed.data]
    sizes = packed.batch_sizes.device  # which PyTorch wants there
    return [pipe_now is pipe, own.held["x"] is x, graph.x is x, reached.devices_of(moved), sizes]


if ELSEWHERE:

    class Slow(Graph):
        __module__ = "torch"

        def to(self, device):  # stands for a copy that takes its time
            log.n = log.held["n"] = 5
            log.items.append("new")
            return super().to(device)


@gives([5, ["new"], 5, "pretend:0", "pretend:0"])
def test_written_meanwhile():
    """What another thread writes during a move is kept."""
    log.n, log.items, log.held = 0, [torch.ones(2)], {"n": 1, "t": torch.ones(2)}
    to_gpu([log, Slow(torch.ones(1))], 0)
    return [log.n, log.items[1:], log.held["n"], log.items[0].device, log.held["t"].device]


@gives(True)
def test_kept_alive():
    """A move keeps no class of the user's, which a cell that runs again makes anew."""

    class Own:
        def __init__(self):
            self.x = torch.ones(2)

    kind = weakref.ref(Own)
    devices_of(to_gpu(Own(), 0))
    del Own
    gc.collect()
    return kind() is None


@gives(
    [
        [
            "Not moved: old, y, with the old copy (8 bytes on cpu). Move variables that share arrays in one line. "
            "Datasets and outputs stay.",
            "optimizer shares arrays that moved, but still has 48 bytes elsewhere. Also move optimizer.",
            "Not searched in full because that takes too long: much and more.",
        ],
        [
            "40 bytes moved to pretend:1.",
            "net shares arrays that moved, but still has 24 bytes elsewhere. Also move net.",
        ],
        ["only  list                    nothing to move", "8 bytes moved to pretend:1."],
    ]
)
def test_leftovers():
    """What holds an old copy, and the optimizer of a model, are found beside variables that hold very much."""
    much, model, x = [[Log() for _ in range(1000)] for _ in range(2)], nn.Linear(2, 2), torch.ones(2)
    optimizer = torch.optim.Adam(model.parameters())
    model(x).sum().backward()
    optimizer.step()
    plan = Plan(LogicalDevice("gpu", 0))
    plan.add("model", model)
    plan.add("x", x)
    before = plan.memory()
    carry_out(plan)
    space = {"much": much[0], "model": model, "more": much[1], "old": x, "optimizer": optimizer, "y": [x]}
    lines = leftover_lines(plan, before, space.items(), Budget(objects=2000, seconds=1e9))
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    shared = [nn.functional.relu, print]  # functions, which tie nothing
    lists = {"a": [*shared, torch.ones(2)], "b": [*shared, torch.ones(2)], "only": shared}
    return [lines, move("params", {"params": [*net.parameters()], "net": net}), move("a only", lists)]


@gives(
    {
        "kept": [True, True, True],
        "cache": ["pretend:1", "pretend:1", [1, 3, 3]],
        "output": [["logits", "cache", "hidden"], True, True],
        "devices": {"pretend:1": 8 + 24 + 12},
        "distributions": ["pretend:1"] * 3,
        "back": "cpu",
    }
)
def test_data():
    """A cache goes on where it has been moved; an output's fields stay its items; distributions sample there."""
    cache, out = Cache(), Output(logits=torch.ones(2), cache=Cache(), hidden=(torch.ones(3),))
    normal = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
    shift = torch.distributions.AffineTransform(torch.ones(2), torch.ones(2))
    several = [
        torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)),
        torch.distributions.Independent(normal, 1),
        torch.distributions.TransformedDistribution(normal, [shift]),
    ]
    given = cache, out, several
    kept = [one is other for one, other in zip(to_gpu(given, 1), given, strict=True)]
    layer = cache.layers[0]
    layer.update(torch.ones(1, 1, 3))
    found = {
        "kept": kept,
        "cache": [layer.keys.device, layer.device, layer.keys.shape],
        "output": [list(out), out.logits is out["logits"], out.hidden is out["hidden"]],
        "devices": devices_of(out),
        "distributions": [one.log_prob(one.sample()).device for one in several],
    }
    to_cpu(cache)
    return {**found, "back": layer.device}


@gives(
    {
        "pipe": f"pipe: a Pipeline {MODELS}",
        "data": f"A TensorDataset {LOADED}",
        "loader": f"A DataLoader {LOADED}",
        "from Python": f"it: a Pipeline {WHOLE}",
        "locked": f"locked: a CacheLayer {WHOLE}",
        "queued": f"queued: a CacheLayer {WHOLE}",
        "parts": ["pretend:1", "pretend:1"],
        "state": [
            "8 bytes moved to pretend:1.",
            f"state: a Pipeline {WHOLE}",
        ],
        "model": ["24 bytes moved to pretend:1."],
        "all": ["8 bytes moved to pretend:1.", f"pipe: a Pipeline {MODELS}"],
        "scripted": [
            "24 bytes moved to pretend:1.",
            "odd stays: A scripted module keeps its tensors outside Python. Use its own .to(device)",
        ],
        "seen": [{"cpu": 24}, {"cpu": 24}, {}],
    }
)
def test_left_behind():
    """What cannot be moved as a whole is named, as a variable or within one, and its parts can be moved."""
    table = TensorDataset(torch.ones(4, 2))
    space = {"pipe": Pipeline(), "data": table, "loader": DataLoader(table)}
    found = {name: placement_error(move, name, space) for name in space}
    found["from Python"] = placement_error(to_gpu, space["pipe"], 1)
    locked = CacheLayer()
    locked.lock = threading.Lock()  # which shows that it is more than data, as a model does
    found["locked"] = placement_error(move, "locked", {"locked": locked})
    queued = CacheLayer()
    queued.queue = queue.SimpleQueue()  # other threads wait for its items
    found["queued"] = placement_error(move, "queued", {"queued": queued})
    move("pipe.model data.tensors", space)
    found["parts"] = [space["pipe"].model.weight.device, table[0][0].device]
    space = {"state": {"pipe": Pipeline(), "x": torch.ones(2)}, "model": nn.Linear(2, 2)}
    vars(space["model"])["pipe"] = Pipeline(space["model"])  # which has nothing left once its model is moved
    found |= {name: move(name, space) for name in ("state", "model")}
    found["all"] = move("", {"pipe": Pipeline(), "x": torch.ones(2)}, all_of_them=True)
    scripted = torch.jit.script(nn.Linear(2, 2))
    space = {"model": nn.Linear(2, 2), "odd": {"scripted": scripted, "table": np.ones(2)}}
    found["scripted"] = move("", space, all_of_them=True)
    shell = __import__("IPython").InteractiveShell.instance()
    return {**found, "seen": [devices_of(one) for one in (Pipeline(), Cache(), shell)]}


@gives(
    [
        [["pipe", "cpu"], [], ["pretend:1"]],
        [["agent", "cpu"], [], ["pretend:1"]],
        [["agent", "cpu"], [], ["pretend:1"]],
        [["pipe", "pretend:1"], ["agent", "pretend:1"], [], ["cpu"]],
        [[]],
    ]
)
def test_a_device_that_an_object_remembers_is_named_with_what_changes_it():
    """Of what moved, and of what has a model that moved: they may still put their inputs there."""

    class Agent:
        def __init__(self, model, device=None):
            self.model, self.device = model, device or torch.device("cpu")

    def told(names, space, device):
        lines = [one for one in move_variables(space, (), names, device=device) if ".device is still" in one]
        for line in lines:
            exec(line.partition(": ")[2], space)
        return [[line.partition(".")[0], line.split()[3].rstrip(".")] for line in lines]

    model = nn.Linear(2, 2)
    space, both = {"model": model, "pipe": Pipeline(model)}, {"agent": Agent(nn.Linear(2, 2))}
    found = [[*told("model", space, "1"), told("model", space, "1"), [space["pipe"].device]]]
    found.append([*told("agent", both, "1"), told("agent", both, "1"), [both["agent"].device]])
    both = {"agent": Agent(nn.Linear(2, 2), "cpu")}
    found.append([*told("agent", both, "1"), told("agent", both, "1"), [both["agent"].device]])
    space |= {"agent": Agent(model)}
    space["agent"].device = torch.device("pretend:1")
    found.append([*told("model", space, "cpu"), told("model", space, "cpu"), [space["pipe"].device]])
    others = {
        "pipe": Pipeline(),
        "odd": Agent(model, "a desk"),
        "current": Agent(model, torch.device("pretend")),
    }
    return [*found, [told("one", {"one": nn.Linear(2, 2)} | others, "1") + told("odd current", others, "1")]]


def keeper(kind):
    held = torch.ones(6)
    if kind == "closure":
        return lambda: held
    if kind == "default":
        return lambda held=held: held
    if kind == "generator":
        return (one for one in [held])
    return {"iterator": iter([held]), "map": map(str, [held]), "view": {"a": held}.values()}[kind]


KEEPERS = {
    "closure": "function",
    "default": "function",
    "generator": "generator",
    "iterator": "list_iterator",
    "map": "map",
    "view": "dict_values",
}


@gives({kind: [{"cpu": 24}, True, ["pretend:1"]] for kind in KEEPERS} | {"empty": []})
def test_what_python_cannot_replace_is_seen_and_named():
    """Within what moves, it is named with what it keeps, which stays as it was."""
    found = {}
    for kind, what in KEEPERS.items():
        made = keeper(kind)
        seen, state = devices_of(made), {"made": made, "x": torch.ones(2)}
        *_, line = move("state", {"state": state})
        is_named = line == f"state: a {what} {WHOLE.removeprefix('of transformers ')}"
        found[kind] = [seen, is_named, [state["x"].device]]
    state = {"functions": [lambda x=1: x, print, nn.functional.relu, iter([])], "x": torch.ones(2)}
    return found | {"empty": move("state", {"state": state})[1:]}


@gives([[{"cpu": 8}, ["pretend:1"]]] * 3)
def test_containers_of_the_standard_library():
    """A view of a dictionary stays a view, and a bound method that of the same object."""
    table, trainer = {"a": torch.ones(2)}, Shape()
    chain, proxy = collections.ChainMap({"a": torch.ones(2)}), types.MappingProxyType(table)
    state = {"chain": chain, "proxy": proxy, "method": trainer.__init__}
    seen = [devices_of(one) for one in state.values()]
    move("state", {"state": state})
    inner = chain["a"], table["a"], state["method"].__self__.x
    assert state == {"chain": chain, "proxy": proxy, "method": trainer.__init__}
    assert state["proxy"] is proxy
    return [[one, [two.device]] for one, two in zip(seen, inner, strict=True)]


def remembering(overwrites):
    """They are told where they are, and stay tied; one within another module is not asked whether it refuses."""
    torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
    lit, refusing = Lit(), Refusing()
    optimizer, parameters = torch.optim.SGD(lit.parameters()), list(lit.parameters())
    places = []
    for things, device in (((lit, optimizer), 1), (nn.Sequential(lit, refusing), 2), (lit, "cpu")):
        to_gpu(things, device)
        told = {one.remembered for one in (lit, lit.inner, lit.metric)}
        places.append([*told, reached.devices_of(lit)])
    same = zip(parameters, lit.parameters(), optimizer.param_groups[0]["params"], strict=True)
    is_same = all(one is other is third for one, other, third in same)
    return [
        places,
        refusing.net.weight.device,
        is_same,
        torch.__future__.get_overwrite_module_params_on_conversion(),
    ]


class Shape:
    def __init__(self):
        self.x = torch.ones(2)

    @property
    def shape(self):
        raise TypeError("no shape")


class Class(Shape):
    @property  # type: ignore[misc] # mypy takes it for an attribute that can be set
    def __class__(self):
        raise RuntimeError("no class")


class Unhashable(type):
    def __hash__(cls):
        raise RuntimeError("no hash")

    def __eq__(cls, other):
        raise RuntimeError("not equal")


class OfOddType(metaclass=Unhashable):
    pass


class Dtype(np.ndarray):
    @property
    def dtype(self):
        raise TypeError("no dtype")


class To(Shape):
    __module__ = "torch"

    def __init__(self):
        super().__init__()
        self.odd = Class()

    def to(self, device):
        self.x = self.x.to(device)


if ELSEWHERE:

    class OddNet(Remembering):
        shape = Shape.shape

        def __init__(self):
            super().__init__()
            vars(self)["odd"] = Class()  # nn.Module would ask it for its class


@gives(
    {
        **{kind: ["pretend:1"] for kind in RAISING},
        "type": "Nothing to move in type (OfOddType): no framework's arrays.",
    }
)
def test_odd():
    """Return where things are moved to beside one that raises, within what holds it, and itself."""
    found = {}
    for make in (Shape, Class, OfOddType, Dtype, To, OddNet):
        odd, within = (np.ones(2).view(Dtype) if make is Dtype else make() for _ in range(2))
        space = {"odd": odd, "model": Shape(), "last": Shape(), "both": [within, Shape()]}
        for names in ("model", "both", ""):
            move(names, space, all_of_them=not names)
        moved = [space["model"], space["last"], space["both"][1]]
        moved += [odd, within] if make is Shape or make is Class or make is To else []
        found[make.__name__] = reached.devices_of([one.x for one in moved])
    space = {"my model": Shape(), "table": {Class(): torch.ones(2)}}
    move("", space, all_of_them=True)  # a name that is no identifier, and a key
    ((key, value),) = space["table"].items()
    found["names and keys"] = reached.devices_of([space["my model"], key.x, value])
    return found | {"type": placement_error(move, "type", {"type": OfOddType()})}


@pytest.mark.parametrize("overwrites", [False, True], ids=["parameters stay", "PyTorch's new behavior"])
def test_modules_that_remember_their_device_are_told(run: Runner, overwrites: bool) -> None:
    places = [[device, [device]] for device in ("pretend:1", "pretend:2", "cpu")]
    assert run(remembering, overwrites) == [places, "pretend:2", True, overwrites]
