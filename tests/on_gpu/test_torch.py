"""`on_gpu` with PyTorch alone, and with Keras on it."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import sys
import warnings
from pathlib import Path

import numpy as np

from gpu_magic import on_gpu
from gpu_magic.errors import PlacementError, PlacementWarning
from gpu_magic.frameworks import get
from gpu_magic.frameworks.target import blocks_here
from gpu_magic.objects.physical import innermost
from tests.conftest import torch_build
from tests.programs.errors import placement_error
from tests.programs.runner import ELSEWHERE, gives
from tests.programs.threads import at_once

if ELSEWHERE:
    import torch
    import torch._dynamo
    from torch.overrides import TorchFunctionMode
    from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

    from gpu_magic.frameworks.torch_modes import RefusingMode

TORCH = torch_build()[0]
OUTSIDE = ["cpu", 0, "cpu"]


def current():
    """Return where a tensor is made, and the number of the current device."""
    return [torch.ones(1).device, torch.accelerator.current_device_index()]


def state():
    """Return the same, and the default device."""
    return [*current(), torch.get_default_device()]


def seeded():
    return torch.Generator().manual_seed(1)


@gives(
    [
        *(["pretend:2", 2, "pretend:2"], "pretend:2", "pretend:2"),
        *(["pretend:1", 1, "pretend:1"], ["cpu", 2, "cpu"], ["pretend:2", 2, "pretend:2"]),
        *("cpu", "cpu", "pretend:2", OUTSIDE),  # of tensors that are made from others
    ]
)
def test_default_and_current_device():
    found = []
    with on_gpu(torch.device("pretend:2")) as device:
        found += [state(), torch.empty(1, device="pretend").device, torch.zeros(1).to(device).device]
        for inner in ("gpu:1", "cpu"):
            with on_gpu(inner):
                found.append(state())
        found += [state(), torch.from_numpy(np.ones(2)).device]
        found.append(torch.zeros_like(torch.ones(1, device="cpu")).device)
        found.append(torch.normal(0.0, 1.0, (1,), out=torch.empty(1)).device)
    return [*found, state()]


@gives(
    [
        "Expected a 'pretend' device type for generator but found 'cpu'",
        *(2, True, "cpu", "pretend:1", "pretend:1", True),
    ]
)
def test_loaders():
    """A shuffling loader, which PyTorch's own context stops; one with workers; one that pins memory."""
    pairs = [(i, float(i)) for i in range(8)]
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    try:
        with torch.device("pretend:1"):
            list(DataLoader(data, shuffle=True))
    except RuntimeError as error:
        found = [str(error)]
    with on_gpu(1):
        found.append(len(list(DataLoader(data, batch_size=4, shuffle=True))))
        first, again = (next(iter(DataLoader(data, 8, shuffle=True, generator=seeded()))) for _ in range(2))
        found += [torch.equal(first[0], again[0]), next(iter(DataLoader(pairs, 8, num_workers=1)))[0].device]
        here = torch.ones(2)
        found += [one.device for one in DataLoader(range(8), 4, pin_memory=True)]
        return [*found, here.pin_memory() is here]


@gives({"fork": ["cpu"] * 4, "spawn": ["cpu"] * 4, "begun before": ["cpu"] * 3})
def test_workers_of_loaders_make_tensors_on_the_cpu():
    """Also workers that stay for a second epoch, and those of a loader that has begun before the block."""
    found, numbers = {}, [float(i) for i in range(8)]
    for way in ("fork", "spawn"):
        with on_gpu(1):
            loader = DataLoader(
                numbers, 4, num_workers=1, persistent_workers=True, multiprocessing_context=way
            )
            found[way] = [batch.device for _ in "ab" for batch in loader]
    begun = iter(DataLoader(numbers, 2, num_workers=1))
    next(begun)
    with on_gpu(1):
        return found | {"begun before": [batch.device for batch in begun]}


if ELSEWHERE:

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)])
            self.register_buffer("scale", torch.full((4,), 2.0))

        def forward(self, x):
            for layer in self.inner:
                x = layer(x)
            return x * self.scale + torch.zeros(4)


OPTIMIZERS = ("Adam", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop")


@gives([[["pretend:3"], *[["pretend:1"]] * 8, ["pretend:3"]], ["cpu", "pretend:3"]])
def test_training():
    """Return where all is that training uses, but step counts: reading those on a GPU would wait for it each time."""
    found, steps = [], set()
    for device in (3, 1, 3):
        with on_gpu(device):
            net = Net()
            for name in OPTIMIZERS if device == 1 else ("Adam",):
                optimizer = getattr(torch.optim, name)(net.parameters())
                net(torch.randn(2, 4)).square().mean().backward()
                optimizer.step()
                states = [dict(one) for one in optimizer.state.values()]
                steps |= {one.pop("step").device for one in states}
                values = [
                    value
                    for one in states
                    for value in one.values()
                    if torch.is_tensor(value) and value.dim()
                ]
                used = [*net.parameters(), *(one.grad for one in net.parameters()), net.scale, *values]
                found.append(sorted({str(one.device) for one in used}))
            average = torch.optim.swa_utils.AveragedModel(net.inner)
    return [found, [*steps, average.n_averaged.device]]


@gives(["pretend:1", "pretend:2", "cpu", None])
def test_compiled():
    """Where a compiled function makes tensors, and what torch.compile takes for the default device afterwards."""
    function = torch.compile(lambda: torch.ones(3) + 1, backend="aot_eager", fullgraph=True)

    def first(wait):
        with on_gpu(1):
            wait()
            wait()
            return function().device

    def second(wait):
        wait()
        with on_gpu(2):
            wait()
            return function().device

    found = at_once([first], here=[second])
    return [*found, function().device, torch.utils._device.CURRENT_DEVICE]


@gives([])
def test_states_that_differ_afterwards():
    """Return the default devices before and within a block, where one is another one after it."""
    found = []
    for default in (None, "pretend:1", "cpu"):
        for inside in ("pretend:3", "cpu", None, "raises"):
            torch.set_default_device(default)
            before = state()
            with contextlib.suppress(KeyError), on_gpu(2):
                if inside == "raises":
                    with torch.device("pretend:0"):
                        raise KeyError
                torch.set_default_device(inside)
                torch.accelerator.set_device_index(1)
            if state() != before or str(before[2]) != (default or "cpu"):
                found.append([default, inside])
    return found


if ELSEWHERE:

    class Mode(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(func)
            return func(*args, **(kwargs or {}))


@gives([*[["pretend:2", True]] * 4, ["cpu", 0], ["cpu", 0], 1])
def test_several_contexts():
    """Return where blocks run within PyTorch's contexts and the user's mode, and what they restore.

    At last a mode is entered in a block and left after it: it sees the one call in between.
    """

    def inner(*outer):
        with contextlib.ExitStack() as stack:
            for one in outer:
                stack.enter_context(one)
            before = current()
            with on_gpu(2):
                inside = current()[0]
            return [inside, current() == before]

    cpu, meta = torch.device("cpu"), torch.device("meta")
    found = [inner(meta, cpu), inner(Mode(), cpu), inner(meta, Mode(), cpu, Mode())]
    torch.set_default_device("meta")
    found.append(inner(cpu))
    torch.set_default_device(None)
    mode = Mode()
    with on_gpu(2):
        mode.__enter__()
    found.append(current())
    mode.__exit__(None, None, None)
    return [*found, current(), mode.seen.count(torch.ones)]


if ELSEWHERE:

    class Incomparable(Mode):  # noqa: PLW1641 - nor hashed
        def __eq__(self, other):
            raise TypeError("modes of this type cannot be compared")


@gives(["modes of this type cannot be compared", 0])
def test_an_end_that_fails():
    """A mode that the block leaves open fails when the block ends. Return the current device after that."""
    Mode().__enter__()
    try:
        with on_gpu(2):
            Incomparable().__enter__()
    except TypeError as error:
        return [str(error), torch.accelerator.current_device_index()]


def torch_in(device):
    with on_gpu(device):
        raise AssertionError(torch)


@gives(
    [
        "cuda:4 cannot be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3.",
        f"xpu:0 cannot be used: PyTorch {TORCH} has no xpu.",
        f"cuda:1 cannot be used: PyTorch {TORCH} is too old: 2.8 is needed.",
        *("cpu", ["cpu", 0]),
    ]
)
def test_refused():
    """Return why blocks do not begin, also with a PyTorch before 2.8, which can't set the current device."""
    found = [placement_error(torch_in, device) for device in (4, "xpu:0")]
    del torch.accelerator.device_index
    found.append(placement_error(torch_in, 1))
    with on_gpu("cpu"):
        found.append(torch.ones(1).device)
    return [*found, current()]


@gives(["pretend:2", "torch", True, False, "pretend:1", "cpu", "cpu"])
def test_keras():
    """Keras, imported in a block, drags JAX in, and does not start it; then threads have blocks of their own."""
    os.environ["KERAS_BACKEND"] = "torch"

    def made():
        layer = keras.layers.Dense(1)
        layer.build((1, 2))
        return layer.kernel.value.device

    def in_block(device, all_have_begun):
        with on_gpu(device):
            all_have_begun()
            return made()

    with on_gpu(2):
        import keras

        found = [made(), keras.backend.backend(), "jax" in sys.modules, get("jax").is_started()]
    return [*found, *at_once([in_block, 1], here=[in_block, "cpu"]), made()]


# A generator of the CPU, as notebooks with a seed have it: each makes numbers, is given a tensor, or fills it.
SAMPLES = {
    "rand": lambda _: torch.rand(3, generator=seeded()),
    "normal": lambda _: torch.normal(0.0, 1.0, (3,), generator=seeded()),
    "bernoulli": lambda given: torch.bernoulli(given, generator=seeded()),
    "multinomial as a method": lambda given: given.multinomial(2, generator=seeded()),
    "normal_": lambda given: given.normal_(generator=seeded()),
    "init.kaiming_uniform_": lambda given: torch.nn.init.kaiming_uniform_(given, generator=seeded()),
    "sampler": lambda _: next(
        iter(DataLoader(range(4), 4, sampler=WeightedRandomSampler([0.1, 0.4, 0.5], 4, generator=seeded())))
    ),
}


def sampled(name):
    given = torch.full((4, 4), 0.5)
    given = torch.nn.Parameter(given) if name.startswith("init") else given
    found = SAMPLES[name](given)
    assert found is given or not name.endswith("_")
    return found.detach()


@gives(
    [
        *([], "pretend:1", True, "pretend:1", True, "cpu"),
        *("Expected a 'pretend' device type", [0, 0, 0]),
    ]
)
def test_generators():
    """Return which samples differ in a block, and where they are; then what a generator of the CPU makes there."""
    outside = {name: sampled(name) for name in SAMPLES}
    with on_gpu(1):
        inside = {name: sampled(name) for name in SAMPLES}
        weight = torch.randn(3, generator=seeded(), requires_grad=True)
        (weight * torch.ones(3)).sum().backward()
        there, here = torch.empty(3, device="cpu"), torch.zeros(3)
        found = [weight.is_leaf, weight.grad.device, torch.rand(3, generator=seeded(), out=there) is there]
        found.append(torch.randn(3, generator=seeded(), device="cpu").device)
        try:
            torch.rand(3, generator=seeded(), out=here)
        except RuntimeError as error:
            found += [str(error).partition(" for ")[0], here.tolist()]
    differ = [name for name in SAMPLES if not torch.equal(outside[name], inside[name].cpu())]
    return [differ, *{str(one.device) for one in inside.values()}, *found]


def arguments():
    """Return arguments for all functions that have a parameter `device`, by their names."""
    given, pairs, ends = torch.full((2,), 0.5), ((2, 2), (1, 0)), ([0, 1], [0], [[[1.0]]])
    one = dict.fromkeys(("tensor", "as_tensor", "asarray"), ([1.0],))
    one |= dict.fromkeys(("empty", "ones", "rand", "randn", "zeros", "eye", "randperm", "arange"), (3,))
    one |= {f"{name}_window": (3,) for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")}
    one |= {f"{name}_like": (given,) for name in ("empty", "ones", "rand", "randn", "zeros")}
    one |= {"full_like": (given, 1.0), "randint_like": (given, 9), "full": ((2,), 1.0), "randint": (9, (2,))}
    one |= {
        "empty_permuted": pairs,
        "empty_strided": ((2,), (1,)),
        "scalar_tensor": (1.0,),
        "normal": (0.0, 1.0, (2,)),
    }
    one |= {
        "fft_fftfreq": (3,),
        "fft_rfftfreq": (3,),
        "nested_tensor": ([[1.0]],),
        "empty_quantized": ((2,), given),
    }
    one |= dict.fromkeys(("linspace", "logspace"), (0, 1, 2)) | {"range": (0, 1)}
    one |= dict.fromkeys(("tril_indices", "triu_indices"), (2, 2)) | {"sparse_coo_tensor": ([[0]], [1.0])}
    one |= {f"sparse_{name}_tensor": ends for name in ("bsc", "bsr", "compressed")}
    return one | {f"sparse_{name}_tensor": ([0, 1], [0], [1.0]) for name in ("csc", "csr")}


def taking(*parameters):
    """Return the public functions of PyTorch that have all these parameters, by their names, without `from_file`."""
    stub = ast.parse(Path(torch.__file__).with_name("_C").joinpath("_VariableFunctions.pyi").read_text())
    functions = [one for one in ast.walk(stub) if isinstance(one, ast.FunctionDef)]
    names = {
        one.name
        for one in functions
        if {*parameters} <= {it.arg for it in (*one.args.args, *one.args.kwonlyargs)}
    }
    found = {name: getattr(torch, name) for name in names - {"from_file"} if not name.startswith("_")}
    if "generator" not in parameters:
        found |= {one.__name__: one for one in torch.utils._device._device_constructors()}
    return found


def outcome(function, *args, **kwargs):
    """Return what a call makes, but for the number of its device, or the type of its error."""
    try:
        made = function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - any of PyTorch's
        return type(error).__name__
    return [made.device.type, made.dtype, made.requires_grad, made.is_leaf]


OPTIONS = (
    *(
        {},
        {"device": None},
        {"device": "cpu"},
        {"device": None, "requires_grad": True},
        {"requires_grad": True},
    ),
    *({"out": None}, {"dtype": None}, {"layout": None}, {"pin_memory": False}, {"device": None, "out": None}),
)


@gives([[], []])
def test_constructors():
    """Return what a block refuses or makes otherwise than PyTorch's own context, and what is not known here."""
    warnings.simplefilter("ignore")  # PyTorch warns of `range` and of sparse tensors
    functions, known, differ = taking("device"), arguments(), []
    for device in ("cpu", "pretend:1"):
        with torch.device(device):
            tensor, filled = torch.ones(2), torch.empty(0)
        calls = {name: (functions[name], args) for name, args in known.items() if name in functions}
        calls |= {
            name: (getattr(tensor, name), ((2,),))
            for name in ("new_empty", "new_ones", "new_zeros", "new_tensor")
        }
        calls |= {"new_full": (tensor.new_full, ((2,), 1.0))}
        calls |= {"new_empty_strided": (tensor.new_empty_strided, ((2,), (1,)))}
        del calls["normal"]  # PyTorch's own context leaves it on the CPU
        for options in (*OPTIONS, {"out": filled}, {"out": torch.empty(0)}):
            for name, (function, args) in calls.items():
                with torch.device(device):
                    expected = outcome(function, *args, **options)
                with on_gpu(device):
                    found = outcome(function, *args, **options)
                if found != expected:
                    differ.append([device, name, str(options), found, expected])
    return [differ, sorted(functions.keys() - known)]


@gives([[], []])
def test_constructors_with_a_generator():
    """Return what of a CPU's generator differs in a block on another device, and what is not known here."""
    functions, known, differ = taking("device", "generator"), arguments(), []
    for device in ("cpu", "pretend:1"):
        for name, function in functions.items():
            for options in OPTIONS:
                expected = drawn(function, known[name], options, "cpu")
                with on_gpu(device):
                    is_elsewhere = options.get("device") == "cpu"
                    args = [torch.full((2,), 0.5)] if "like" in name else known[name][:1]
                    found = drawn(
                        function, (*args, *known[name][1:]), options, "cpu" if is_elsewhere else device
                    )
                if found != expected:
                    differ.append([device, name, str(options), found, expected])
    return [differ, sorted(functions.keys() - known)]


def drawn(function, args, options, device):
    """Return the numbers that a call draws, if it makes a tensor on a device; the type of an error."""
    try:
        made = function(*args, **options, generator=seeded())
    except Exception as error:  # noqa: BLE001 - any of PyTorch's
        return type(error).__name__
    return [made.tolist(), str(made.device) == device, made.dtype, made.requires_grad, made.is_leaf]


# Tasks of asyncio, which take turns in one thread


async def blocks_device(begins):
    await begins.wait()
    return innermost()


@gives([None, "cuda:1"])
def test_variables_move_to_the_device_of_the_task_s_own_block():
    async def main():
        begins = asyncio.Event()
        other = asyncio.create_task(blocks_device(begins))
        with on_gpu(1):
            begins.set()
            return [await other, innermost()]

    return asyncio.run(main())


async def made(*pauses):
    """Return where tensors are made, before each pause and after the last one."""
    found = [torch.zeros(1).device]
    for pause in pauses:
        await asyncio.sleep(pause)
        found.append(torch.zeros(1).device)
    return found


async def made_on(wanted, *pauses):
    with on_gpu(wanted):
        found = await made(*pauses)
    return [*found, torch.zeros(1).device]


@gives([["pretend:1", "cpu"], ["cpu"] * 3, ["pretend:1"] * 2, "cpu"])
def test_a_task_from_outside_a_block_keeps_its_own_device():
    async def main():
        outside = asyncio.create_task(made(0.01, 0.01))
        await asyncio.sleep(0)
        with on_gpu(1):
            first = torch.zeros(1).device
            inside = asyncio.create_task(made(0.01))  # it begins in the block
            found = await outside
            kept = await inside
        return [[first, torch.zeros(1).device], found, kept]

    return [*asyncio.run(main()), torch.zeros(1).device]


@gives([[["pretend:1", "pretend:1", "cpu"], ["pretend:2", "pretend:2", "cpu"], ["cpu", "cpu"]]] * 3)
def test_blocks_of_tasks_that_take_turns_end_in_any_order():
    async def main(first, second):
        return await asyncio.gather(made_on(1, first), made_on(2, second), made(0.02))

    return [asyncio.run(main(*pauses)) for pauses in ((0.01, 0.03), (0.03, 0.01), (0.02, 0.02))]


async def unnumbered(wanted, *pauses):
    """Return where a device without a number is, before each pause and after the last one, and after the block."""

    def here():
        number = torch.ones(1, device="cpu").to("pretend").device, torch.ones(1, device="pretend").device
        return str(number[0]) if number[0] == number[1] else number

    found = []
    with on_gpu(wanted) if wanted is not None else contextlib.nullcontext():
        for pause in (0, *pauses):
            await asyncio.sleep(pause)
            found.append(here())
    return [*found, here()]


@gives([["pretend:1"] * 2 + ["pretend:3"], ["pretend:2"] * 2 + ["pretend:3"], ["pretend:3"] * 3, 3])
def test_a_device_without_a_number_is_that_of_the_task():
    """As `device="cuda"`: of a block of this task, or of what was current before the blocks of others.

    No block is told that its code has used the GPUs of others.
    """
    warnings.simplefilter("error", PlacementWarning)

    async def main(first, second):
        return await asyncio.gather(unnumbered(1, first), unnumbered(2, second), unnumbered(None, 0.02))

    torch.accelerator.set_device_index(3)
    found = [asyncio.run(main(*pauses)) for pauses in ((0.01, 0.03), (0.03, 0.01))]
    assert found[0] == found[1]
    return [*found[0], torch.accelerator.current_device_index()]


@gives([["pretend:1", "pretend:1", "pretend:1"], ["pretend:1", "pretend:1"], "pretend:1", "timeout", OUTSIDE])
def test_tasks_of_a_block_have_its_device_and_one_that_is_cancelled_ends_its_own():
    async def main():
        with on_gpu(1):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(made(0.01)) for _ in "ab"]
            found = [[str(one.result()[-1]) for one in tasks] + [torch.zeros(1).device]]
            found.append([device async for device in devices()])
            called = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(lambda: called.set_result(torch.zeros(1).device))
            found.append(await called)
        try:
            await asyncio.wait_for(made_on(3, 600), 0.01)
        except TimeoutError:
            found.append("timeout")
        return found

    async def devices():
        for _ in "ab":
            yield torch.zeros(1).device
            await asyncio.sleep(0)

    return [*asyncio.run(main()), state()]


@gives([["pretend:1", "pretend:1", "pretend:3"], ["pretend:3", "pretend:3"], OUTSIDE])
def test_other_tasks_keep_the_device_that_the_user_has_set():
    async def main():
        torch.set_default_device("pretend:3")
        return await asyncio.gather(made_on(1, 0.01), made(0.005))

    found = asyncio.run(main())
    torch.set_default_device(None)
    return [*found, state()]


@gives(["cpu", "No such device."])
def test_a_missing_device_is_no_error_of_another_task():
    """PyTorch lacks the device of a block that is another framework's."""

    async def other(begins):
        await begins.wait()
        return torch.zeros(1).device

    async def main():
        begins = asyncio.Event()
        task = asyncio.create_task(other(begins))
        await asyncio.sleep(0)
        blocks_here.set(("a block",))
        with RefusingMode("No such device."):
            begins.set()
            outside = await task
            try:
                return [outside, torch.zeros(1).device]
            except PlacementError as error:
                return [outside, str(error)]

    return asyncio.run(main())


@gives([[], [], []])
def test_nothing_of_a_block_stays_in_the_context():
    """A kernel runs all cells in one context."""
    found = []
    with contextlib.suppress(ZeroDivisionError), on_gpu(1):
        torch.zeros(1 // 0)
    found.append(blocks_here.get())
    with contextlib.suppress(PlacementError), on_gpu(9):
        torch.zeros(1)
    found.append(blocks_here.get())
    with on_gpu(1), on_gpu(2):
        pass
    return [*found, blocks_here.get()]
