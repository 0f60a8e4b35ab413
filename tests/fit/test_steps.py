"""Steps of PyTorch that `fit` predicts, and others that it cannot; and that predicting changes nothing."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import gc
import io
import linecache
import logging
import multiprocessing
import os
import queue
import random
import signal
import sys
import textwrap
import threading
import time
import types
import warnings
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gpu_magic
from gpu_magic.errors import FitError
from gpu_magic.frameworks.private import PRIVATE
from gpu_magic.testing import simulate
from tests.programs.runner import ELSEWHERE, gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import torch
    import torch._dynamo
    from torch import nn

    from gpu_magic.fit.torch_step import TorchStep, train
    from tests.fit import training
    from tests.fit.training import (
        averaged,
        batch,
        loss_of,
        losses,
        model,
        network,
        optimizer,
        pair,
        scaler,
        scheduler,
        seen,
        table,
        trainer,
        update,
        with_closure,
        with_cuda_calls,
        x,
        y,
    )
    from tests.programs import reached

    # One that is built for CUDA predicts in a forked process: there the pretend accelerator bars autograd.
    torch.version.cuda = None


def look():
    """Return all that must stay as it is."""
    steps = with_closure.__closure__[1].cell_contents
    mine = (
        model,
        averaged,
        optimizer,
        scheduler,
        scaler,
        trainer,
        batch,
        seen,
        training.count,
        losses,
        steps,
    )
    return {
        "objects": [reached.look(one) for one in mine],
        "grad hooks": [p._post_accumulate_grad_hooks for p in model.parameters()],
        "random": [torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())],  # noqa: NPY002
        "modes": torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack(),
        "replaced": [
            torch.amp.autocast_mode.autocast.__init__,
            torch.nn.functional.scaled_dot_product_attention,
            nn.Module.to,
            torch.cuda.is_available,
        ],
        "settings": [torch.is_grad_enabled(), gc.isenabled(), torch.is_anomaly_enabled(), x.requires_grad],
        "others": [table.tolist(), signal.getsignal(signal.SIGINT)],
    }


def start():
    loss_of(batch).backward()
    optimizer.step()
    model.train()


def changed_by(call):
    """Return how a call ends, and what it has changed."""
    start()
    before, found, ended = look(), None, ""
    try:
        found = call()
    except gpu_magic.FitError as error:
        ended = str(error)
    except KeyboardInterrupt:
        ended = "interrupted"
    after = look()
    changed = [name for name in before if before[name] != after[name]]
    return found, {"ended": ended, "changed": changed, "started": torch.cuda.is_initialized()}


def followed(names):
    """Return what the predictions of a model's step and of functions find, and what they change."""
    training.compile_both()
    calls = {name: functools.partial(gpu_magic.fit, vars(training)[name], batch) for name in names}
    calls["model"] = lambda: gpu_magic.fit(model, optimizer, (x, y), loss=nn.CrossEntropyLoss())
    told = {name: changed_by(call) for name, call in calls.items()}
    return {name: [found and found.parts, how] for name, (found, how) in told.items()}


def refused(bodies):
    """Return how predictions of functions end whose bodies are given as text, as cells have it, and what they change."""
    told = []
    for body in bodies:
        code = f"def step(x):\n{textwrap.indent(body, '    ')}\n"
        linecache.cache["<cell>"] = len(code), None, code.splitlines(keepends=True), "<cell>"
        exec(compile(code, "<cell>", "exec"), space := vars(training))
        told.append(changed_by(functools.partial(gpu_magic.fit, space["step"], x))[1])
    return [[one["ended"], one["changed"]] for one in told]


@gives(0)
def test_starts_no_cuda():
    """Return whether the driver is asked for a GPU, as `is_available` does."""
    asked = []
    torch.cuda.is_available = lambda: bool(asked.append(1))
    gpu_magic.fit(with_cuda_calls, batch)
    return len(asked)


@gives([*[["interrupted", []]] * 2, 0])
def test_interrupted():
    """Interrupt predictions in the user's code, and in a hook that the backward calls; return also what runs on."""
    reached = queue.SimpleQueue()  # which cannot be copied

    def now(*_):
        os.kill(os.getpid(), signal.SIGINT)
        reached.put("what is behind it")

    def forward(batch):
        now()
        update(loss_of(batch))

    def backward(batch):
        loss = loss_of(batch)
        loss.register_hook(now)
        update(loss)

    told = [changed_by(lambda step=step: gpu_magic.fit(step, batch))[1] for step in (forward, backward)]
    return [*([one["ended"], one["changed"]] for one in told), reached.qsize()]


@pytest.mark.nightly  # at two moments test_interrupted does it
@gives([])
def test_interrupted_anywhere():
    """Interrupt predictions at moments that are spread over one; return what has changed."""
    times = 5
    gpu_magic.fit(with_closure, batch)
    began = time.monotonic()
    gpu_magic.fit(with_closure, batch)
    whole, changed = time.monotonic() - began, set()
    for turn in range(times):
        timer = threading.Timer(whole * turn / times, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            _, told = changed_by(lambda: (gpu_magic.fit(with_closure, batch), time.sleep(2 * whole)))
        except KeyboardInterrupt:  # after it
            told = {"changed": []}
        changed |= set(told["changed"])
    return sorted(changed)


@gives(
    {
        "same": True,
        "forked": [True, True],
        "ended": [
            "FitError The predicting process ended without an answer. The kernel is not affected.",
            "KeyboardInterrupt ",
            "FitError The step cannot be predicted: the shape of what nonzero() returns depends on data",
        ],
        "left": [],
    }
)
def test_in_a_forked_process():
    """Predict as where PyTorch is built for CUDA or ROCm and has not started it; return what differs from here."""
    torch.version.cuda = "13.0"
    reader, writer = os.pipe()

    def tells(batch):
        os.write(writer, os.getpid().to_bytes(4, "big"))
        update(loss_of(batch))

    def is_interrupted(batch):
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)

    gpu_magic.fit(tells, batch)
    torch.version.cuda, torch.version.hip = None, "6.4"  # as PyTorch for ROCm
    gpu_magic.fit(tells, batch)
    ended = []
    for step in (dies, is_interrupted, depends_on_data):
        try:
            gpu_magic.fit(step, batch)
        except (FitError, KeyboardInterrupt) as error:
            ended.append(f"{type(error).__name__} {error}".partition(", in line")[0])
    there = gpu_magic.fit(model, optimizer, x)
    torch.version.hip = None  # in this process after the others: autograd's threads bar it from forked ones
    return {
        "same": gpu_magic.fit(model, optimizer, x) == there,
        "forked": [int.from_bytes(os.read(reader, 4), "big") != os.getpid() for _ in range(2)],
        "ended": ended,
        "left": multiprocessing.active_children(),
    }


@gives([[3 << 12, 0, 2 << 12], [3 << 12, (3 << 12) + 2 * 32 * 4, 2 << 12]])
def test_views_of_one_memory_count_once():
    class Flat(nn.Module):
        """Its parameters are views of one buffer, of which a part is its own."""

        def __init__(self, device):
            super().__init__()
            self.register_buffer("flat", torch.zeros(3 << 10, device=device))
            self.first = nn.Parameter(self.flat[: 1 << 10].view(32, 32))
            self.second = nn.Parameter(self.flat[1 << 10 : 2 << 10].view(32, 32).t())

        def forward(self, x):
            return x @ self.first @ self.second

    found = []
    for device in ("cpu", "pretend:1"):
        flat, few = Flat(device), torch.ones(100, 32, device=device)
        one = TorchStep(
            train, (flat, None, few[:2]), {"loss": None, "eval": False, "amp": False, "dtype": None}
        )
        parts = one.peak()
        found.append([parts["parameters"], one.present.total(), parts["gradients"]])
    return found


@gives(["FitError", True])
def test_a_step_that_predicts_is_refused():
    """And the next prediction works: nothing is locked."""

    def step(batch):
        gpu_magic.fit(model, batch["x"])
        update(loss_of(batch))

    try:
        gpu_magic.fit(step, batch)
    except FitError as error:
        ended = type(error).__name__
    return [ended, gpu_magic.fit(model, x).peak > 0]


def dies(batch):
    os._exit(3)


def depends_on_data(batch):
    batch["x"].nonzero()


@gives(["Parameter", "torch.float64", "cuda"])
def test_in_another_thread():
    """Return what another thread has of PyTorch while a step is followed."""
    found = queue.SimpleQueue()  # which cannot be copied

    def other():
        layer = nn.Linear(2, 2).to(torch.float64)
        found.put([type(layer.weight).__name__, str(layer.weight.dtype), torch.autocast("cuda").device])

    def step(x):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return model(x).sum().backward()

    gpu_magic.fit(step, x)
    return found.get()


@gives([[[], False], [[], False], [[], True]])
def test_kept_alive():
    """Nothing still lives of a step when the user has let go of it."""
    return [living_after(how) for how in ("model", "function", "error")]


def living_after(how):
    model, batch = nn.Linear(20, 20), torch.randn(8, 20)
    optimizer = torch.optim.Adam(model.parameters())
    calls = {
        "model": lambda: gpu_magic.fit(model, optimizer, batch),
        "function": lambda: gpu_magic.fit(lambda x: model(x).sum().backward(), batch),
        "error": lambda: gpu_magic.fit(lambda x: model(x)[:, "no"], batch),
    }
    kept = None
    try:
        calls[how]()
    except gpu_magic.FitError as error:
        kept = error.with_traceback(None)  # as whoever shows it keeps it
    living = {
        "weight": weakref.ref(model.weight),
        "batch": weakref.ref(batch),
        "optimizer": weakref.ref(optimizer),
    }
    model = optimizer = batch = calls = None
    gc.collect()
    return [[name for name, one in living.items() if one() is not None], kept is not None]


# What is predicted, and what it is to be


def figures():
    """Return both, by what they are about."""
    about = (parts, optimizers, other_sizes, other_dtypes, attention_with_dropout, batches, rows_of_a_dataset)
    return {one.__name__: one() for one in (*about, on_a_gpu_already, without_frameworks)}


def parts():
    """At the peak, in the optimizer's step, which a large optimizer and a small batch have, all is there."""
    model, optimizer = network()
    found = gpu_magic.fit(model, optimizer, pair(4), loss=nn.MSELoss())
    real = sum(-(-p.untyped_storage().nbytes() // 512) * 512 for p in model.parameters())
    hooked = gpu_magic.fit(trainer.model, x, eval=True)  # a name in its hook leads to an optimizer
    expected = {**found.parts, "parameters": real, "gradients": real, "optimizer state": 2 * real}
    return [[found.parts, hooked.parts["optimizer state"]], [expected, 0]]


def optimizers():
    """An optimizer without state is one with some; RAdam reads its steps."""
    found = []
    for kind in (torch.optim.Adam, torch.optim.RAdam):
        model = nn.Linear(64, 64)
        optimizer = kind(model.parameters())
        for _ in range(2):
            found.append(gpu_magic.fit(model, optimizer, x).parts["optimizer state"])
            model(x).sum().backward()
            optimizer.step()
    return [found, found[:1] * 4]


def other_sizes():
    model, optimizer = network()
    made = gpu_magic.fit(model, optimizer, pair(512), loss=nn.MSELoss())
    return [gpu_magic.fit(model, optimizer, pair(8), loss=nn.MSELoss(), batch_size=512).parts, made.parts]


def other_dtypes():
    """A model's parameters with another dtype: as an option, and by the step itself, which leaves the model's."""
    (model, _), (x, _) = network(), pair(8)

    def step(x):
        model.to("cuda").bfloat16()(x.to(torch.bfloat16)).sum().backward()

    found = gpu_magic.fit(model, x, dtype="bfloat16"), gpu_magic.fit(step, x)
    half = sum(-(-p.nbytes // 2 // 512) * 512 for p in model.parameters())
    return [
        [*(one.parts["parameters"] for one in found), str(model[0].weight.dtype)],
        [half, half, "torch.float32"],
    ]


def attention_with_dropout():
    """The layer's attention is fused: no part grows with the square of the words."""
    layer = nn.TransformerEncoderLayer(64, 4, 64, dropout=0.1, batch_first=True)
    few, many = (gpu_magic.fit(layer, torch.randn(1, n, 64)).parts["activations"] for n in (1024, 4096))
    return [round(many / few, 1), 4.0]


def largest_batch():
    """Predict at the largest batch and beyond it, on a simulated GPU with little memory left."""
    model, optimizer = network()
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("train.py", "maria", (79 << 30) - (1162 << 20))
        found = gpu_magic.fit(model, optimizer, pair(64), loss=nn.MSELoss())
        size = found.largest_batch
        fits = [
            gpu_magic.fit(model, optimizer, pair(64), loss=nn.MSELoss(), batch_size=size + more).fits[
                "cuda:0"
            ]
            for more in (0, 1)
        ]
    return {"size": size, "fits": fits, "verdict": found.verdict}


@gives([[True, True]] * 3)
def test_one_by_one():
    """Steps that go through their batch are predicted in a time: the larger batches would take hours."""
    model, x = nn.Linear(4, 2), torch.ones(8, 4)
    steps = (
        lambda batch: sum(model(row).sum() for row in batch),
        lambda batch: sum(model(batch[index]).sum() for index in range(len(batch))),
        lambda batch: model(batch).tolist(),
    )
    with simulate("1xA100-80GB"):
        found = [gpu_magic.fit(step, x) for step in steps]
    return [[one.largest_batch >= 8, "at least" in one.verdict] for one in found]


@gives(["", "The step raises RuntimeError", "1.0"])
def test_quiet():
    """Predict a step that PyTorch logs an error of, and one with `float`, of which it warns; return what was written."""
    model, printed, said = nn.Linear(4, 2), io.StringIO(), io.StringIO()

    def step(batch):
        print(float(model(batch).sum()))

    handler, log = (
        logging.StreamHandler(said),
        logging.getLogger("torch._subclasses.fake_tensor"),
    )  # it hands nothing on
    log.addHandler(handler)
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stderr(said):
        warnings.simplefilter("always")
        try:
            gpu_magic.fit(model, torch.ones(8, 3))
        except FitError as error:
            text = str(error)
        with contextlib.redirect_stdout(printed):
            gpu_magic.fit(step, torch.ones(8, 4))
    log.removeHandler(handler)
    warned = [str(one.message) for one in caught]
    return [said.getvalue(), *warned, text.partition(": ")[0], *{*printed.getvalue().split()}]


def without(name):
    """Take a private name away from PyTorch, and return what a step says then."""
    module, _, path = name.partition(":")
    owner = __import__(module, fromlist=["_"])
    *inner, last = path.split(".")
    for one in inner:
        owner = getattr(owner, one)
    if hasattr(owner, last):
        delattr(owner, last)
    else:  # of objects
        setattr(owner, last, property(fset=lambda *_: None))
    return _error(lambda: gpu_magic.fit(model, optimizer, (x, y), loss=nn.CrossEntropyLoss()).peak > 0)


def bad_input(calls):
    """Return what is told of calls that are given as text."""
    space = vars(training) | {
        "fit": gpu_magic.fit,
        "other": nn.Linear(64, 8),
        "DataLoader": torch.utils.data.DataLoader,
    }
    space["of_keras"] = type("Model", (nn.Linear,), {"__module__": "keras.models"})(64, 8)
    return [_error(lambda call=call: eval(call, space)) for call in calls]


@dataclasses.dataclass
class Pair:
    x: torch.Tensor
    y: torch.Tensor
    itself: object = None


def batches():
    """Batches of several kinds are found and resized: the peaks of 32 items and of 4,096, and the sizes."""
    mode = enum.Enum("Mode", "TRAIN")
    pair = Pair(x, y)
    pair.itself = [pair]
    ordered = collections.OrderedDict(batch)
    steps = {
        "a dict": (lambda given: loss_of(given).backward(), batch),
        "an ordered dict": (lambda given: loss_of(given).backward(), ordered),
        "a user's dict": (lambda given: loss_of(given).backward(), collections.UserDict(batch)),
        "an object": (lambda given: loss_of(vars(given)).backward(), pair),
        "an enum beside it": (lambda given, _: loss_of(given).backward(), batch, mode.TRAIN),
        "a model beside it": (lambda given, network: loss_of(given, network).backward(), batch, model),
    }
    found = {}
    for name, (step, *given) in steps.items():
        small, large = (gpu_magic.fit(step, *given, batch_size=size) for size in (32, 4096))
        found[name] = [small.peak, large.peak > 2 * small.peak, large.batch_size, small.parts["parameters"]]
    one = found["a dict"]
    return [found, {name: [one[0], True, 4096, one[3]] for name in found}]


def rows_of_a_dataset():
    """A batch of rows, or of columns, of a dataset takes what a tensor of its own does, and not the dataset."""
    given = (x, torch.randn(4096, 64)[:32], torch.randn(32, 512)[:, 64:128])
    found = [gpu_magic.fit(model, optimizer, (one, y)).parts["batch"] for one in given]
    return [found, found[:1] * 3]


def on_a_gpu_already():
    """The prediction is the same wherever the model is; what it takes there now is not needed twice."""

    def step(x):
        optimizer.zero_grad()
        model(x.to("pretend:1")).sum().backward()
        optimizer.step()

    predicted = []
    for device in ("cpu", "pretend:1"):
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).to(device)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(device != "cpu"):
            step(x)
        optimizer.zero_grad()
        called = TorchStep(step, (x,), {})
        predicted.append(called.peak())
    states = [one for state in optimizer.state.values() for one in state.values()]
    held = sum(one.nbytes for one in (*model.parameters(), *states) if one.device.type != "cpu")
    return [[predicted[1], dict(called.present)], [predicted[0], {1: held}]]


def without_frameworks():
    """Another module of a framework's name is none."""
    sys.modules["jax"] = types.ModuleType("jax")
    peak = gpu_magic.fit(lambda given: loss_of(given).backward(), batch).peak
    there = sys.modules["torch"]
    sys.modules["torch"] = None
    try:
        told = _error(lambda: gpu_magic.fit(loss_of, batch))
    finally:
        sys.modules["torch"] = there
        del sys.modules["jax"]
    neither = "%gpu_fit needs PyTorch or JAX. Import one first."
    return [[peak > 0, told], [True, neither]]


def _error(call):
    try:
        return str(call())
    except gpu_magic.FitError as error:
        return str(error)


def test_what_is_predicted_is_what_it_is_to_be(run: Runner) -> None:
    for about, (found, expected) in run(figures).items():
        assert found == expected, about


def test_the_largest_batch_fits_and_one_more_does_not(run: Runner) -> None:
    found = run(largest_batch)
    assert found["size"] > 100
    assert found["fits"][0] is True
    assert found["fits"][1] is ("at least" in found["verdict"])  # on a slow machine


FUNCTIONS = "autocast scaler logging closure partial scheduler cuda_calls compiled checkpoint class own_dataset decorator"


def test_a_model_and_functions_are_followed_and_stay_as_they_are(run: Runner) -> None:
    for name, (parts, how) in run(followed, [f"with_{one}" for one in FUNCTIONS.split()]).items():
        assert how == {"ended": "", "changed": [], "started": False}, name
        assert min(parts[part] for part in ("parameters", "gradients", "optimizer state")) > 0, name


# Bodies of functions, why they cannot be predicted, and where.
REFUSED = {
    "loss = model(x).sum()\nif loss > 0: update(loss)": ("it needs what a tensor holds", "3 of step"),
    "loss = model(x).sum()\nif loss.item() > 0: update(loss)": (
        "it decides by a number that a tensor holds",
        "3 of step: if loss.item() > 0: update(loss)",
    ),
    "return x.nonzero()": ("the shape of what nonzero() returns depends on data", "2 of step"),
    "for inputs, targets in loader: model(inputs + table.sum())": ("it decides by a number", "2 of step"),
    "return model(x).detach().numpy()": ("cannot be predicted: it needs what a tensor holds", "2 of step"),
    "return model(x[:, :3])": ("The step raises RuntimeError", " of forward: x = self.first(x)"),
    "return held['model'](x).sum().backward()": (
        "it trains an object that cannot be copied",
        " of forward: x = ",
    ),
    "model(x)\nraise SystemExit(3)": ("The step raises SystemExit: 3", "3 of step"),
    "return len(x)": ("computes nothing with tensors", ""),
}


def test_what_cannot_be_predicted_names_the_line_and_changes_nothing(run: Runner) -> None:
    for body, (ended, changed) in zip(REFUSED, run(refused, list(REFUSED)), strict=True):
        why, where = REFUSED[body]
        assert (why in ended, where in ended, changed) == (True, True, []), ended
        assert ("in line " in ended) == bool(where)


@pytest.mark.parametrize(
    "name",
    # PyTorch itself cannot do without those that end with "hooks".
    [one for one in sorted(PRIVATE) if "%gpu_fit" in PRIVATE[one][1] and not one.endswith("hooks")],
)
def test_without_a_private_name_one_line_says_so(run: Runner, name: str) -> None:
    told = run(without, name)
    is_needed = "instead of predicting" in PRIVATE[name][1]
    assert ("has no fake tensors" in told) if is_needed else told == "True"


BAD = {
    "fit(of_keras, x)": "Model is a Keras model. %gpu_fit supports PyTorch models.",
    "fit(model, other, x)": "A step has one model and one optimizer. To name a loss: --loss",
    "fit(model, 3, x)": "There is no tensor in an int. Try %gpu_fit model optimizer batch",
    "fit(other, optimizer, x)": "The optimizer has no parameter of this model",
    "fit(model, x, dtype='bf16')": "dtype is one of float16, bfloat16, float32, float64, not bf16.",
    "fit(model, x, amp=True, dtype='float32')": "dtype is one of float16, bfloat16, not float32.",
    "fit(model, x, loss=nn.MSELoss)": "loss is the class MSELoss. Add () behind it.",
    "fit(with_closure, batch, amp=True)": "--loss, --eval, --amp and --dtype are for a model",
    "fit(model, (x, y[:5]), loss=nn.MSELoss(), batch_size=4)": "--batch needs a batch whose tensors have a common",
    "fit(model, x, batch_size=0)": "--batch 0 is not a number of items. Try --batch 64",
    "fit(model, torch.optim.LBFGS(model.parameters()), x)": "closure",
    "fit(model, torch.optim.ASGD(model.parameters()), x)": "ASGD decides by what tensors hold. Try it without the",
    "fit(nn.Flatten(), x)": "No output of the model depends on a trained parameter. Try --eval",
    "fit(nn.LazyLinear(4), x)": "The step raises",
    "fit(nn.DataParallel(model), x)": "DataParallel spreads a step over GPUs. Predict model.module",
    "fit(model, DataLoader([], 4))": "This DataLoader gives no batch here",
    "fit(model, DataLoader(Stream(), 4))": "This DataLoader gives no batch here",
}


def test_bad_input_is_one_line(run: Runner) -> None:
    for call, found in zip(BAD, run(bad_input, list(BAD)), strict=True):
        assert BAD[call] in found, call
        assert "\n" not in found
