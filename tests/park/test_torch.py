"""`%gpu_park` and `%gpu_unpark` with PyTorch on a pretend accelerator: all is as before, wherever it was put meanwhile."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_magic
from gpu_magic import park, unpark
from tests.programs.errors import placement_error
from tests.programs.runner import ELSEWHERE, gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import pretend_native
    import torch
    import torch._dynamo  # as in the other files with PyTorch: they have one server
    from torch import nn

    from tests.move.others import CacheLayer, Lit, Pipe
    from tests.move.structures import SLOW, kept, structures
    from tests.programs.cells import run as run_cell
    from tests.programs.cells import shell_with_magics
    from tests.programs.reached import devices_of, form, look, tensors_of

FOLDER = str(Path(gpu_magic.__file__).parent)
PLACES = tuple(f"{FOLDER}/{name}" for name in ("move/move", "park/", "process/parked"))


def space_with(**variables):
    """Return the variables of a shell in which there are these."""
    shell = shell_with_magics()
    shell.push(variables)
    return shell.user_ns


def reserved(index):
    return torch.accelerator.memory_reserved(f"pretend:{index}")


def any_structure():
    """Park generated structures and bring them back, and return how many were; the first wrong one raises."""
    checked, space = [], space_with()

    @settings(SLOW, max_examples=150, database=None, derandomize=True)
    @given(structures(("cpu", "pretend:1", "pretend:2")), st.booleans())
    def check(things, are_moved_on):
        tensors = tensors_of(things)
        if not tensors or any(one.grad_fn is not None for one in tensors):
            return
        names = [f"v{number}" for number in range(len(things))]
        space.update(zip(names, things, strict=True))
        before, ids = form(tuple(things)), kept(tuple(things))
        devices = [one.device for one in tensors]
        things.clear(), tensors.clear()
        park()
        there = tuple(space[name] for name in names)
        assert form(there) == before
        assert kept(there) == ids
        assert devices_of(there) == ["cpu"]
        del there
        if are_moved_on:  # to other names, into a container
            space["moved"] = {name: space.pop(name) for name in names}
        unpark()
        back = tuple(space.get("moved", space)[name] for name in names)
        assert form(back) == before
        assert kept(back) == ids
        assert [one.device for one in tensors_of(back)] == devices
        for name in (*names, "moved"):
            space.pop(name, None)
        checked.append(len(devices))

    check()
    return len(checked)


def test_the_graph_of_objects_and_all_devices_are_the_same_afterwards(run: Runner) -> None:
    assert run(any_structure) > 40


@gives(
    {"parked": [["cpu"], [0, 0]], "step": [True, True, True], "devices": ["cpu", "pretend:1", "pretend:2"]}
)
def test_the_next_step_is_the_same():
    """With an optimizer whose step count is on the CPU, and one that keeps it on the GPU, on two GPUs."""

    def training():
        torch.manual_seed(0)
        models = [nn.Linear(4, 4).to("pretend:1"), nn.Linear(4, 4).to("pretend:2")]
        optimizers = [torch.optim.Adam(model.parameters()) for model in models]
        optimizers[1].param_groups[0]["capturable"] = True
        x = torch.ones(2, 4)

        def step():
            first = models[0](x.to("pretend:1"))
            loss = models[1](first.to("pretend:2")).square().sum()
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            return loss.item()

        step()
        for state in optimizers[1].state.values():
            state["step"] = state["step"].to("pretend:2")
        optimizers[1].param_groups[0]["capturable"] = False  # its kernels are not the pretend accelerator's
        return models, optimizers, step

    models, optimizers, go = training()
    found = {}
    space = space_with(models=models, optimizers=optimizers)
    park()
    found["parked"] = [devices_of(space["models"]), [reserved(1), reserved(2)]]
    unpark()
    steps = [next(state["step"].device for state in one.state.values()) for one in optimizers]
    found["devices"] = [steps[0], models[0].weight.device, steps[1]]
    _, others, stay = training()
    for one in optimizers[1], others[1]:
        for state in one.state.values():
            state["step"] = state["step"].cpu()
    found["step"] = [abs(go() - stay()) < 1e-6 for _ in range(3)]
    return found


@gives([["cpu"], True, True, "pretend:1", [True, True]])
def test_a_graph_goes_back_after_parking():
    """Computed tensors are parked. What their graph keeps stays, so `backward` works afterwards."""
    torch.manual_seed(0)
    model, x = nn.Linear(3, 3).to("pretend:1"), torch.ones(2, 3, device="pretend:1")
    loss = model(x).square().sum()
    loss.backward(retain_graph=True)
    right = [one.grad.cpu().clone() for one in model.parameters()]
    model.zero_grad()
    space = space_with(model=model, loss=loss)
    text = park().text
    found = [devices_of(space["model"]), "Kept in graphs (grad_fn) of loss" in text]
    unpark()
    space["loss"].backward()
    found += [space["loss"].requires_grad, space["loss"].device]
    same = zip(right, model.parameters(), strict=True)
    return [*found, [torch.allclose(one, other.grad.cpu()) for one, other in same]]


@gives(
    {
        "parked": [["cpu"], "cpu", "cpu", "cpu"],
        "back": [["pretend:1"], "pretend:1", "pretend:1", "pretend:1"],
        "on another": [["pretend:2"], "pretend:2", "pretend:2", "pretend:2"],
        "others": ["cpu", "cpu", "pretend:3"],
    }
)
def test_objects_that_remember_their_device_or_move_themselves():
    """Modules, data of other packages, and objects with `to`; beside others that were not parked."""
    lit, layer, pipe = Lit().to("pretend:1"), CacheLayer(), Pipe()
    gpu_magic.to_gpu([layer, pipe], 1)
    others = Lit(), CacheLayer(), Lit().to("pretend:3")
    space = space_with(held=[lit, layer, pipe], others=others[:2])

    def where():
        return [devices_of(space["held"]), lit.remembered, lit.metric.remembered, layer.device]

    found = {}
    park()
    found["parked"] = where()
    space["far"] = others[2]
    unpark()
    found["back"] = where()
    del space["far"]
    park()
    unpark(device=2)
    found["on another"] = where()
    found["others"] = [others[0].remembered, others[1].device, others[2].remembered]
    return found


@gives(["cpu", "pretend:0", [[0.0, 1.0], [2.0, 0.0]], "cpu"])
def test_sparse_tensors():
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    space = space_with(sparse=gpu_magic.to_gpu(dense.to_sparse(), 0), other=dense.to_sparse())
    park()
    found = [space["sparse"].device]
    unpark()
    return [
        *found,
        space["sparse"].device,
        gpu_magic.to_cpu(space["sparse"]).to_dense().tolist(),
        space["other"].device,
    ]


@gives(
    [
        *(["pretend:1", "cpu", "cpu", "pretend:2", "pretend:1"], ["torch.float16", "pretend:1"]),
        *("", "Nothing is parked."),
    ]
)
def test_what_was_changed_meanwhile():
    """What was replaced, made or moved stays there, what was deleted is forgotten, and data of a new type go back."""
    on_gpu = {"device": "pretend:1"}
    model, half = nn.Linear(2, 2).to("pretend:1"), nn.Linear(2, 2).to("pretend:1")
    space = space_with(
        x=torch.ones(2, **on_gpu),
        y=torch.ones(2, **on_gpu),
        z=torch.ones(2, **on_gpu),
        model=model,
        half=half,
    )
    space["gone"] = torch.ones(1 << 20, **on_gpu)
    park()
    del space["gone"]
    space["y"] = space["x"] + 1
    space["new"] = torch.ones(1)
    space["z"] = space["z"].to("pretend:2")
    half.half()
    unpark()
    found = [[space[name].device for name in ("x", "y", "new", "z")] + [model.weight.device]]
    found.append([half.weight.dtype, half.weight.device])
    return [*found, str(gpu_magic.gpu_free().text.partition("Parked")[2]), unpark().text]


@gives([["cpu"] * 5, ["pretend:1"] * 5, [True, True], True])
def test_outputs_and_private_variables_are_parked():
    shell = shell_with_magics()
    run_cell(shell, "import torch\n_x = torch.ones(2, device='pretend:1')\npair = (_x,)")
    run_cell(shell, "_x")
    run_cell(shell, "[torch.zeros(1, device='pretend:1')]")
    space = shell.user_ns

    def outputs():
        return [space["_oh"][2], space["__"], space["_x"], space["_oh"][3][0], shell.displayhook._[0]]

    park()
    found = [[one.device for one in outputs()]]
    unpark()
    found.append([one.device for one in outputs()])
    return [*found, [space["_oh"][2] is space["_x"], space["pair"][0] is space["_x"]], reserved(0) == 0]


@gives(
    [
        *("Nothing to park in n: no arrays on a GPU.", "cpu", "pretend:1", "pretend:1", True),
        *("Variables are named by text: park('model'). Without names: all variables.", "Nothing to park."),
        *("Nothing is parked in b.", "pretend:1"),
    ]
)
def test_names_park_some():
    """And what else holds the same arrays."""
    a, b = torch.ones(2, device="pretend:1"), torch.ones(2, device="pretend:1")
    space = space_with(a=a, b=b, also=[a], n=3)
    del a
    found = [placement_error(park, "n")]
    park("also[0]")
    found += [space["a"].device, space["b"].device]
    text = unpark("b").text
    unpark("a")
    found += [space["also"][0].device, space["also"][0] is space["a"], placement_error(park, 3)]
    del space["a"], space["b"], space["also"]
    return [*found, park().text, text, b.device]


@gives(
    [
        ["cpu"],
        True,
        "f stays on the GPU (8 bytes): A function keeps it and cannot be changed.",
        *("pretend:1", True, "pretend:1"),
    ]
)
def test_what_a_closure_keeps_stays_with_all_that_share_it():
    """Except parameters, which are the same objects for the closure."""
    x, layer = torch.ones(2, device="pretend:1"), nn.Linear(2, 2).to("pretend:1")

    def make(x, layer):
        return lambda: layer(x)

    space = space_with(x=[x], layer=layer, f=make(x, layer), y=torch.ones(3, device="pretend:1"))
    text = park().text
    found = [devices_of([space["layer"], space["y"]]), space["x"][0] is x]
    found += [next(line for line in text.splitlines() if line.startswith("f ")), x.device]
    unpark()
    return [*found, space["x"][0] is x, space["f"]().device]


@gives(
    [
        [
            "pretend:2 ran out of memory after some. Nothing was changed. Move fewer, or free memory with %gpu_free"
        ],
        [
            "pretend:1 ran out of memory after some. Nothing was changed. Move fewer, or free memory with %gpu_free"
        ],
        *([], True, ["pretend:1", "pretend:2"]),
    ]
)
def test_failures():
    """Let the allocation of each number fail in turn while all goes back to two GPUs, until none is left."""
    model = nn.Sequential(nn.Embedding(9, 3), nn.BatchNorm1d(3), nn.Linear(3, 9)).to("pretend:1")
    x = torch.arange(20.0).to("pretend:2").view(4, 5)
    names, space = ("model", "pair", "box"), space_with(model=model, pair=(x, x[1]), box=[x[2]])
    del x
    park()
    before, errors, changed = [*map(look, map(space.get, names))], set(), []
    for count in itertools.count(1):
        pretend_native.fail_after(count)
        error = placement_error(unpark)
        if error is None:
            where = sorted({*devices_of(space["model"]), *devices_of(space["pair"] + tuple(space["box"]))})
            return [*([one] for one in sorted(errors, reverse=True)), changed, count > 8, where]
        errors.add(re.sub(r"after .* of \d+ bytes", "after some", error))
        if [*map(look, map(space.get, names))] != before or reserved(1) or reserved(2):
            changed.append(count)
    return None


if ELSEWHERE:

    class Stuck(Pipe):
        """Raises once it has moved."""

        __module__ = "torch"

        def to(self, device):
            super().to(device)
            raise RuntimeError("no way")


@gives(
    [
        "Moving to cpu failed, so nothing was changed: RuntimeError: no way",
        ["pretend:1"],
        True,
        "Nothing is parked.",
    ]
)
def test_parking_that_fails():
    space = space_with(odd=Pipe(), x=torch.ones(2), net=nn.Linear(2, 2))
    for name in ("x", "net", "odd"):
        space[name] = gpu_magic.to_gpu(space[name], 1)
    space["odd"].__class__ = Stuck
    x = space["x"]
    error = placement_error(park)
    return [error, devices_of([space["net"], space["x"], space["odd"]]), space["x"] is x, unpark().text]


def interrupted(parks):
    """Interrupt before each line in turn, until there is none of that number; return what was wrong after one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    space, wrong, left = space_with(), [], 0
    gc.collect(), gc.freeze()  # so that collecting garbage each time is quick

    def trace(frame, event, _):
        nonlocal left
        if event == "call" and not frame.f_code.co_filename.startswith(PLACES):
            return None
        left -= event == "line"
        if event == "line" and not left:
            os.kill(os.getpid(), signal.SIGINT)
        return trace

    for count in itertools.count(1):
        space.update(net=nn.Linear(2, 2).to("pretend:1"), x=torch.ones(2, device="pretend:2"), odd=Pipe())
        gpu_magic.to_gpu(space["odd"], 1)
        if not parks:
            park()
        left, raised = count, ""
        sys.settrace(trace)
        try:
            park() if parks else unpark()
        except BaseException as error:  # noqa: BLE001 - whichever it is
            raised = type(error).__name__
        finally:
            sys.settrace(None)
        if left > 0:  # it was not sent
            return [count, wrong]
        where = devices_of([space[name] for name in ("net", "x", "odd")])
        unpark()  # whatever was parked comes back
        back = devices_of([space[name] for name in ("net", "x", "odd")])
        on_gpus = ["pretend:1", "pretend:2"]
        if raised not in ("KeyboardInterrupt", "") or where not in (["cpu"], on_gpus) or back != on_gpus:
            wrong.append([count, raised, where, back])
    return None


@pytest.mark.parametrize("parks", [True, False])
def test_an_interrupt_at_any_line_leaves_all_parked_or_all_back(run: Runner, parks: bool) -> None:
    count, wrong = run(interrupted, parks)
    assert count > 80
    assert wrong == []


LOOP = "Task loop still runs and can use these variables. Nothing was changed. To wait for it: %gpu_tasks wait loop"
WORKER = "worker is a thread that uses these variables. Nothing was changed. End it first."


@gives([LOOP, WORKER, "pretend:1", "cpu", LOOP, WORKER, "cpu", "pretend:1"])
def test_tasks_and_threads_that_run():
    shell = shell_with_magics()
    run_cell(shell, "import torch, threading\nx = torch.ones(2, device='pretend:1')")
    space, found = shell.user_ns, []

    def work(batch, ready, done):
        ready.set()
        done.wait()

    for move in park, unpark:
        run_cell(shell, "go = threading.Event()")
        run_cell(shell, "%%on_gpu 0 --background loop\ngo.wait()")
        found.append(placement_error(move))
        space["go"].set()
        run_cell(shell, "%gpu_tasks wait loop")
        ready, done = threading.Event(), threading.Event()
        worker = threading.Thread(target=work, args=([space["x"]], ready, done), name="worker")
        worker.start()
        ready.wait()
        found += [placement_error(move), space["x"].device]
        done.set()
        worker.join()
        del worker
        move()
        found.append(space["x"].device)
    return found


@gives([["cpu"], ["pretend:1"], ["pretend:2"], ["cpu"], "Nothing is parked.", True])
def test_where_tensors_are_swapped():
    """PyTorch swaps no tensor that has a weak reference, as what is parked has."""
    pretend_native.be_like_cuda(False)
    space = space_with(model=nn.Linear(2, 2))
    model = gpu_magic.to_gpu(space["model"], 1)
    before, found = model.weight, []
    park()
    found.append(devices_of(space["model"]))
    unpark()
    found.append(devices_of(space["model"]))
    park()
    gpu_magic.to_gpu(model, 2)
    found.append(devices_of(space["model"]))
    text = unpark().text
    gpu_magic.to_cpu(model)
    unpark()  # as it was moved by hand, it is parked no more
    where = devices_of(space["model"])
    return [*found, where, text, model.weight is before]
