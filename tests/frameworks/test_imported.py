"""What `%gpus` tells frameworks that are imported: memory, and fewer GPUs in a process that can't change its mask.

TensorFlow's real context has GPUs in its lists as it writes them, and so has JAX: these builds find none.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic import choose, on_gpu
from gpu_magic.frameworks import get, started
from gpu_magic.frameworks.base import MemorySettings
from gpu_magic.frameworks.private import PRIVATE
from gpu_magic.frameworks.target import LogicalDevice
from tests.machine import CARDS
from tests.programs.cells import shell_with_magics
from tests.programs.choosing import start_cuda, variables, visible_devices
from tests.programs.errors import choice_error
from tests.programs.runner import ELSEWHERE, gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import jax
    import tensorflow as tf
    import torch

TOO_LATE = "{} has already started. Nothing was changed. Restart, and choose before that."


def context() -> Any:
    return sys.modules["tensorflow.python.eager.context"].context()


# Memory


def limit(imported_later=()):
    """Return what a choice of 8 GiB on two GPUs has set, and what the next one leaves of it."""
    said = repr(choose("1,2", memory_limit="8GiB"))
    for name in imported_later:
        import_module(name)
    calls = [call.__name__ for call, _ in sys.modules["torch"].cuda._queued_calls]
    found = {
        "said": "TensorFlow, JAX and PyTorch use at most 8 GiB of each GPU." in said,
        "variables": variables(),
        "TensorFlow": {
            gpu.name[-5:]: [one.memory_limit for one in devices]
            for gpu, devices in context()._virtual_device_map.items()
        },
        "TensorFlow has started": [context()._context_handle, context()._physical_devices] != [None, None],
        "PyTorch calls when it starts": [name for name in calls if "set_fractions" in name],
        "PyTorch": get("torch")._limit,
    }
    choose("1,2")
    after = [variables(), len(context()._virtual_device_map), get("torch")._limit]
    return {**found, "after another choice": after}


LIMITED = {
    "said": True,
    "variables": {"XLA_PYTHON_CLIENT_MEM_FRACTION": str(int(10_000 * (8 << 30) / CARDS[1].total) / 10_000)},
    "TensorFlow": {"GPU:0": [8192], "GPU:1": [8192]},
    "TensorFlow has started": False,
    "PyTorch calls when it starts": ["_set_fractions"],
    "PyTorch": 8 << 30,
    "after another choice": [{}, 0, None],
}


def test_a_limit_reaches_each_framework_in_its_own_way(on_four_gpus: Runner) -> None:
    """What TensorFlow and PyTorch then hold is read where they keep it; on a GPU tests/gpu measures it."""
    assert on_four_gpus(limit) == LIMITED


@gives(
    {"fractions": {"0": 0.25, "1": 0.5, "2": 1.0}, "current": [1, 1, 1], "made current": [1, 1]},
    on="on_four_gpus",
)
def test_a_limit_keeps_the_current_device_of_pytorch():
    """Its allocator as in PyTorch 2.8, which makes each device current whose fraction it sets, also if it fails, and as in 2.13."""
    cuda, fractions, made_current = torch.cuda, {}, []
    sizes, now = [32 << 30, 16 << 30, 4 << 30], [1]

    def set_device(index):
        now[0] = index
        made_current.append(index)

    def as_in_2_8(fraction, index):
        now[0], fractions[index] = index, fraction

    cuda.is_initialized, cuda.device_count = lambda: True, lambda: 3
    cuda.current_device, cuda.set_device = lambda: now[0], set_device
    cuda.get_device_properties = lambda index: SimpleNamespace(total_memory=sizes[index])
    cuda.set_per_process_memory_fraction = as_in_2_8
    limit, current = MemorySettings(limit=8 << 30, gpus=3), []
    get("torch").limit_memory(limit)
    current.append(now[0])
    cuda.set_per_process_memory_fraction = lambda *_: None
    get("torch").limit_memory(limit)
    current.append(now[0])
    cuda.set_per_process_memory_fraction = lambda _, index: now.__setitem__(0, index) or 1 / (index < 2)
    with contextlib.suppress(ZeroDivisionError):
        get("torch").limit_memory(limit)
    current.append(now[0])
    return {"fractions": fractions, "current": current, "made current": made_current}


@gives(3, on="on_four_gpus")
def test_tensorflow_takes_such_logical_devices_for_real():
    """Describe logical CPUs of one that is not listed yet, as we do with GPUs; CPUs are there."""
    eager = sys.modules["tensorflow.python.eager.context"]
    cpu = eager.PhysicalDevice("/physical_device:CPU:0", "CPU")
    eager.context()._virtual_device_map[cpu] = [tf.config.LogicalDeviceConfiguration()] * 3
    return len(tf.config.list_logical_devices("CPU"))


def start_jax_on_a_gpu():
    jax.devices()
    sys.modules["jax._src.xla_bridge"]._backends["cuda"] = None  # as JAX writes it


def too_late_for_jax(options):
    """Return why the same choice with other memory is refused, and that with the same memory is not."""
    choose("1", memory_limit="4GB")
    start_jax_on_a_gpu()
    before = variables(), visible_devices()
    error = choice_error(choose, "1", **options)
    return [error, (variables(), visible_devices()) == before, choose("1", memory_limit="4GB").is_applied]


@pytest.mark.parametrize(
    ("option", "options"), [("--growth", {"growth": True}), ("--memory-limit", {"memory_limit": "8GB"})]
)
def test_it_is_too_late_once_jax_has_started(
    on_four_gpus: Runner, option: str, options: dict[str, object]
) -> None:
    assert on_four_gpus(too_late_for_jax, options) == [
        f"Too late for {option}: {TOO_LATE.format('JAX')}",
        True,
        True,
    ]


@gives(
    [f"Too late for {one}: {TOO_LATE.format('TensorFlow')}" for one in ("--memory-limit", "--growth")],
    on="on_four_gpus",
)
def test_it_is_too_late_for_tensorflow_as_well():
    """A limit once it has started on a GPU, and growth also once it has started on the CPU."""
    tf.constant(1)
    growth = choice_error(choose, "0", growth=True)
    devices = context()._logical_devices
    devices.append(type(devices[0])("/device:GPU:0", "GPU"))  # as TensorFlow writes it
    return [choice_error(choose, "1", memory_limit="8GB"), growth]


def list_gpus(count):
    """Return so many GPUs, which TensorFlow has listed."""
    tf.config.list_physical_devices()
    kind = sys.modules["tensorflow.python.eager.context"].PhysicalDevice
    gpus = [kind(f"/physical_device:GPU:{i}", "GPU") for i in range(count)]
    context()._physical_devices += gpus
    context()._visible_device_list += gpus
    return gpus


@gives([[[8192], [8192]], [None, [100]]], on="on_four_gpus")
def test_tensorflow_that_has_listed_its_gpus_is_told_of_each_and_gets_back_what_it_had():
    gpus = list_gpus(2)
    context()._memory_growth_map |= dict.fromkeys(gpus)

    def limits():
        sizes = [tf.config.get_logical_device_configuration(gpu) for gpu in gpus]
        return [devices and [one.memory_limit for one in devices] for devices in sizes]

    tf.config.set_logical_device_configuration(gpus[1], [tf.config.LogicalDeviceConfiguration(100)])
    choose("1,2", memory_limit="8GiB")
    found = limits()
    choose("reset")
    return [found, limits()]


@gives([2, 2], on="on_four_gpus")
def test_a_limit_that_tensorflow_has_started_with_stays_what_it_says():
    choose("1,2", memory_limit="8GiB")
    tf.constant(1)
    found = [len(context()._virtual_device_map)]
    choose("reset")
    return [*found, len(context()._virtual_device_map)]


# In a process where CUDA has started


def current():
    return torch.accelerator.current_device_index()


def in_process():
    choose("1,2,3")
    start_cuda()
    found = {"dry run": str(choose("2", in_process=True, dry_run=True)).split("\n"), "after it": current()}
    found["said"] = str(choose("2", in_process=True)).split("\n")
    found["current"], found["visible devices"] = current(), visible_devices()
    found["another"] = [list(choose("3", in_process=True).ordinals), current()]
    found["one that it can't use"] = choice_error(choose, "0", in_process=True)
    found["with memory"] = choice_error(choose, "3", in_process=True, growth=True, memory_limit="8GB")
    found["reset"] = [str(choose("reset", in_process=True)), current()]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        choose("2")
    ways = "one block: with gpu_magic.on_gpu(1):\n  from here on: gpu_magic.choose('2', in_process=True)"
    return {**found, "refused": [ways in str(one.message) for one in caught]}


def test_in_process_tells_what_is_imported_and_says_what_came_of_it(on_four_gpus: Runner) -> None:
    gpu = "cuda:1 = GPU 2 (NVIDIA A100-SXM4-80GB, 79 GiB free)"
    assert on_four_gpus(in_process) == {
        "dry run": [gpu, "Dry run: nothing was changed."],
        "after it": 0,
        "said": [
            gpu,
            "PyTorch: its current device is pretend:1. Others can still be named.",
            f"TensorFlow {version('tensorflow-cpu')} is built without CUDA.",
            f"JAX {version('jax')} has no GPU here.",
        ],
        "current": 1,
        "visible devices": "1,2,3",
        "another": [[2], 2],
        "one that it can't use": "Too late: CUDA has started. This process keeps GPU 1 (cuda:0), GPU 2 (cuda:1), "
        "GPU 3 (cuda:2) and cannot use other GPUs.",
        "with memory": "--in-process sets neither CUDA_VISIBLE_DEVICES nor memory limits. Omit --growth and --memory-limit.",
        "reset": ["PyTorch: reset.", 0],
        "refused": [True],
    }


@gives(
    [
        "",
        "Other code has made pretend:0 the current device of PyTorch, not pretend:1. "
        "To restore: %gpus 2 --in-process\n",
        "",
        "",
        1,
    ],
    on="on_four_gpus",
)
def test_another_current_device_than_was_chosen_is_told_once():
    """As TrainingArguments and Accelerator make GPU 0 the current device."""
    choose("1,2,3")
    start_cuda()
    shell = shell_with_magics()

    def said(cell):
        with contextlib.redirect_stderr(io.StringIO()) as told, contextlib.redirect_stdout(io.StringIO()):
            shell.run_cell(f"import torch, gpu_magic\n{cell}", store_history=True).raise_error()
        return told.getvalue()

    chosen, move = "gpu_magic.choose('2', in_process=True)", "torch.accelerator.set_device_index({})"
    return [*map(said, (chosen, move.format(0), move.format(2), chosen)), current()]


@gives(
    {
        "within": "/job:localhost/replica:0/task:0/device:GPU:1",
        "said": "it sees cuda:1 as /GPU:0 and cuda:2 as /GPU:1",
        "visible": ["GPU:2", "GPU:1"],
        "names": ["/GPU:0", "/GPU:1"],
        "problem": "",
        "one that is not there": "TensorFlow does not list cuda:7",
        "visible afterwards": 3,
        "name afterwards": "/GPU:2",
    },
    on="on_four_gpus",
)
def test_tensorflow_is_narrowed_while_it_only_lists_its_devices():
    list_gpus(3)
    framework = get("tensorflow")
    said, undo = framework.narrow([2, 1])
    with framework.scope(LogicalDevice("gpu", 2), bool):
        within = context().device_name
    found = {
        "within": within,
        "said": said,
        "visible": [one.name[-5:] for one in tf.config.get_visible_devices("GPU")],
        "names": [framework.name_of(LogicalDevice("gpu", i)) for i in (1, 2)],
        "problem": framework.problem(LogicalDevice("gpu", 1)),
        "one that is not there": framework.narrow([7])[0],
    }
    undo.__exit__(None, None, None)
    visible = len(tf.config.get_visible_devices("GPU"))
    return {
        **found,
        "visible afterwards": visible,
        "name afterwards": framework.name_of(LogicalDevice("gpu", 2)),
    }


# Built without CUDA: a choice of GPUs does nothing for them.


@gives(
    [
        ["TensorFlow ", 'pip install "tensorflow[and-cuda]",', "JAX ", 'pip install -U "jax[cuda13]"'],
        [],
    ],
    on="on_four_gpus",
)
def test_a_choice_says_how_to_install_a_framework_with_cuda():
    """And nothing of PyTorch, which has an accelerator here, and nothing where no GPU is chosen."""
    marks = [
        "PyTorch ",
        "TensorFlow ",
        'pip install "tensorflow[and-cuda]",',
        "JAX ",
        'pip install -U "jax[cuda13]"',
    ]
    said = [line for line in str(choose("1")).splitlines() if "uses no GPU" in line]
    none = [line for line in str(choose("none")).splitlines() if "without CUDA" in line]
    return [[mark for mark in marks if any(mark in line for line in said)], none]


# Other things that we ask of them


def without_name_of_tensorflow(name):
    """Take a private name away, and return what is warned of, and what has started."""
    module, _, path = name.partition(":")
    eager = sys.modules[module]
    owner = eager.context() if path.startswith("Context.") else eager
    last = path.rpartition(".")[2]
    delattr(type(owner) if last in vars(type(owner)) else owner, last)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with on_gpu("cpu"):
            pass
        framework = get("tensorflow")
        framework.limit_memory(MemorySettings(limit=1 << 30, gpus=1))
        framework.limit_memory(MemorySettings())
    return {"warned": [str(one.message) for one in caught], "started": started()}


# Nor can TensorFlow do without its context.
OF_TENSORFLOW = [name for name in sorted(PRIVATE) if re.match("tensorflow.*:(Context.|Physical)", name)]


@pytest.mark.parametrize("name", OF_TENSORFLOW)
def test_without_a_private_name_of_tensorflow_one_line_says_what_is_lost(
    on_four_gpus: Runner, name: str
) -> None:
    found = on_four_gpus(without_name_of_tensorflow, name)
    assert (found["started"], len(found["warned"])) == ([], "a warning is shown" in PRIVATE[name][1])
    assert all(text.startswith("TensorFlow") for text in found["warned"])


@gives(["/CPU:0", "begun", "ended"], on="on_four_gpus")
def test_a_started_tensorflow_without_a_private_name_is_set_in_the_public_way():
    """Its own `tf.device` also needs the name, so another one stands there."""
    tf.constant(1)
    seen = []

    @contextlib.contextmanager
    def device(name):
        seen.append(name)
        yield seen.append("begun")
        seen.append("ended")

    del type(context()).device_spec
    tf.device = device
    with get("tensorflow").scope(LogicalDevice("cpu", 0), bool):
        pass
    return seen


@gives(["TensorFlow", "JAX"], on="on_four_gpus")
def test_a_gpu_among_its_devices_is_seen():
    """The real frameworks' own lists, with a GPU's entry in them as the framework would write it."""
    tf.constant(1)
    devices = context()._logical_devices
    devices.append(type(devices[0])("/device:GPU:0", "GPU"))
    start_jax_on_a_gpu()
    return sorted(started(), reverse=True)


@gives(["CPU:2", "{CpuDevice(id=2)}"], on="on_four_gpus")
def test_the_lines_to_type_run():
    """On logical CPUs: the same calls with another kind of device."""
    logical = [tf.config.LogicalDeviceConfiguration()] * 4
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], logical)
    line = get("tensorflow").statement_for(2).replace("GPU", "CPU").replace("...", "x = tf.constant(1) + 1")
    exec(line, space := {"tf": tf})
    exec(get("jax").statement_for(2).replace('"gpu"', '"cpu"'), {"jax": jax})
    return [space["x"].device[-5:], jax.numpy.zeros(1).devices()]
