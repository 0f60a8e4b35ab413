"""`gpu_magic.on_gpu`: real frameworks on real devices that are not GPUs, each test in a process of its own.

PyTorch has a pretend accelerator of four devices, TensorFlow and JAX four logical CPUs, CuPy a stand-in. What
is asked is always the frameworks' own answer: the device of something that was made.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from tests.native import SOURCES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh

FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "TF_CPP_MIN_LOG_LEVEL": "3"}
SPLIT = (
    "tf.config.set_logical_device_configuration("
    "tf.config.list_physical_devices('CPU')[0], [tf.config.LogicalDeviceConfiguration()] * 4)"
)
START = """
import sys, warnings
import gpu_magic
from gpu_magic import on_gpu, PlacementError

def error(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except PlacementError as problem:
        return str(problem)

def enter(*args, **kwargs):
    with on_gpu(*args, **kwargs):
        print("ran")
"""
TORCH = START + "import torch\n"
TF = START + f"import tensorflow as tf\n{SPLIT}\ndef where(): return tf.random.normal([2]).device[-5:]\n"
JAX = START + "import jax, jax.numpy as jnp\n"


@pytest.fixture
def run(fresh: Fresh, pretend: dict[str, str], tmp_path: Path) -> Callable[..., list[str]]:
    """Return a way to run code with all of the pretended devices; its lines.

    `helper` is the source of a module that the module of that name takes what it has from: other packages,
    which use what the block does not name.
    """

    def lines(start: str, code: str, *, helper: str = "", **variables: str) -> list[str]:
        (tmp_path / "inner.py").write_text(helper)
        (tmp_path / "helper.py").write_text("from inner import make\n" if "make" in helper else helper)
        path = os.pathsep.join([pretend["PYTHONPATH"], str(SOURCES / "standin"), str(tmp_path)])
        shown = fresh(start + textwrap.dedent(code), **{**FOUR, "PYTHONPATH": path, **variables})
        return shown.strip().split("\n")

    return lines


Run = Callable[..., list[str]]


# PyTorch


def test_pytorch_has_the_device_as_its_default_and_its_current_one(run: Run) -> None:
    assert run(
        TORCH,
        """
        with on_gpu(2):
            print(torch.ones(1).device, torch.empty(1, device="pretend").device, torch.get_default_device())
            with on_gpu("gpu:1"):
                print(torch.ones(1).device, torch.accelerator.current_device_index())
            with on_gpu("cpu"):
                print(torch.ones(1).device, torch.accelerator.current_device_index())
            print(torch.ones(1).device, torch.accelerator.current_device_index())
        print(torch.ones(1).device, torch.accelerator.current_device_index(), torch.get_default_device())
        for name in ("/GPU:3", "/device:GPU:3", "pretend:3", torch.device("pretend:3"), 3, "3", "GPU:3"):
            with on_gpu(name):
                assert str(torch.ones(1).device) == "pretend:3", name
        """,
    ) == [
        "pretend:2 pretend:2 pretend:2",
        "pretend:1 1",
        "cpu 2",
        "pretend:2 2",
        "cpu 0 cpu",
    ]


def test_what_a_plain_torch_device_breaks_works(run: Run) -> None:
    """The traps of `with torch.device(...)`; the first line is the proof that they are there."""
    assert run(
        TORCH,
        """
        import numpy as np
        from torch.utils.data import DataLoader, TensorDataset, RandomSampler
        data = TensorDataset(torch.arange(8.), torch.arange(8))
        pairs = [(i, float(i)) for i in range(8)]
        seeded = lambda: torch.Generator().manual_seed(1)
        try:
            with torch.device("pretend:1"):
                list(DataLoader(data, shuffle=True))
        except RuntimeError as problem:
            print(problem)
        plain = torch.randperm(8, generator=seeded())
        with on_gpu(1):
            print(len(list(DataLoader(data, batch_size=4, shuffle=True))))
            first, again = (list(DataLoader(data, 8, shuffle=True, generator=seeded())) for _ in range(2))
            print(torch.equal(first[0][0], again[0][0]))
            print(next(iter(DataLoader(pairs, 8, num_workers=1)))[0].device)
            print(torch.equal(torch.randperm(8, generator=seeded()), plain))
            print(torch.rand(2, generator=seeded()).device, torch.empty(3).normal_(generator=seeded()).device)
            print(torch.from_numpy(np.ones(2)).device, torch.zeros_like(torch.ones(1, device="cpu")).device)
        """,
    ) == [
        "Expected a 'pretend' device type for generator but found 'cpu'",
        "2",
        "True",
        "cpu",
        "True",
        "cpu pretend:1",
        "cpu cpu",
    ]


def test_training_and_compiled_functions_work_inside(run: Run) -> None:
    assert run(
        TORCH,
        """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)])
                self.register_buffer("scale", torch.full((4,), 2.0))
            def forward(self, x):
                for layer in self.inner:
                    x = layer(x)
                return x * self.scale + torch.zeros(4)

        compiled = torch.compile(lambda x: x * 2 + torch.ones(3), backend="eager", fullgraph=True)
        for place in (3, 1, 3):
            with on_gpu(place):
                net = Net()
                optimizer = torch.optim.Adam(net.parameters())
                loss = net(torch.randn(2, 4)).square().mean()
                loss.backward()
                optimizer.step()
                used = {str(p.device) for p in net.parameters()} | {str(p.grad.device) for p in net.parameters()}
                used |= {str(s["exp_avg"].device) for s in optimizer.state.values()} | {str(net.scale.device)}
                print(used, compiled(torch.zeros(3)).device)
        print(compiled(torch.zeros(3)).device)
        """,
    ) == ["{'pretend:3'} pretend:3", "{'pretend:1'} pretend:1", "{'pretend:3'} pretend:3", "cpu"]


def test_what_the_block_sets_itself_ends_with_it(run: Run) -> None:
    assert run(
        TORCH,
        """
        def state():
            return str(torch.get_default_device()), torch.accelerator.current_device_index(), str(torch.ones(1).device)
        for before in (None, "pretend:1", "cpu"):
            torch.set_default_device(before)
            expected = state()
            for inside in ("pretend:3", "cpu", None):
                with on_gpu(2):
                    torch.set_default_device(inside)
                    torch.accelerator.set_device_index(1)
                assert state() == expected, (before, inside)
                try:
                    with on_gpu(2):
                        with torch.device("pretend:0"):
                            raise KeyError
                except KeyError:
                    pass
                assert state() == expected, (before, inside)
        print("as it was")
        """,
    ) == ["as it was"]


def test_a_device_that_pytorch_has_not_got_is_refused_and_nothing_runs(run: Run) -> None:
    assert run(
        TORCH,
        """
        def use(place):
            with on_gpu(place):
                print("ran", torch.ones(1))
        print(error(use, 4))
        print(error(use, "cuda:0"))
        print(error(use, "xpu:0"))
        print(torch.ones(1).device, torch.accelerator.current_device_index())
        """,
    ) == [
        "cuda:4 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3.",
        f"cuda:0 can't be used: PyTorch {_version('torch')} has no cuda.",
        f"xpu:0 can't be used: PyTorch {_version('torch')} has no xpu.",
        "cpu 0",
    ]


def test_pytorch_without_cuda_is_refused_where_it_is_named_and_raises_where_it_is_not(run: Run) -> None:
    shown = run(
        START,
        """
        import cupy, helper, torch
        def direct():
            with on_gpu(0):
                print("ran")
                torch.ones(1)
        def hidden():
            with on_gpu(0):
                print("began", cupy.ones(1).device.id)
                helper.make()
        print(error(direct))
        print(error(hidden))
        print(torch.ones(1).device)
        """,
        helper=_helper("torch", "torch.ones(1)"),
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    built = f"PyTorch {_version('torch')} is built without CUDA"
    assert shown == [
        f"cuda:0 can't be used: {built}.",
        "began 0",
        f"This is to run on cuda:0, and {built}.",
        "cpu",
    ]


# TensorFlow


def test_tensorflow_has_the_device(run: Run) -> None:
    assert run(
        TF,
        """
        with on_gpu("cpu:2"):
            print(where(), tf.Variable(1.0).device[-5:], tf.function(lambda: tf.random.normal([2]))().device[-5:])
            with on_gpu("/CPU:1"):
                print(where())
            print(where())
        print(where())
        def use(place):
            with on_gpu(place):
                print("ran", tf.random)
        print(error(use, "cpu:4"))
        print(error(use, 0))
        """,
    ) == [
        "CPU:2 CPU:2 CPU:2",
        "CPU:1",
        "CPU:2",
        "CPU:0",
        "cpu:4 can't be used: TensorFlow has cpu:0, cpu:1, cpu:2 and cpu:3.",
        f"cuda:0 can't be used: TensorFlow {_version('tensorflow-cpu')} is built without CUDA.",
    ]


def test_tensorflow_is_not_started_by_a_block_that_does_not_use_it(run: Run) -> None:
    assert run(
        TF,
        """
        from gpu_magic.frameworks.tensorflow.framework import FRAMEWORK
        def unrelated():
            with on_gpu("cpu:1"):
                pass
        unrelated()
        print(FRAMEWORK.is_started())
        with on_gpu("cpu:1"):
            print(where(), FRAMEWORK.is_started())
        print(where())
        """,
    ) == ["False", "CPU:1 True", "CPU:0"]


def test_tensorflow_that_is_used_after_all_does_not_fall_back_in_silence(run: Run) -> None:
    """Its own soft placement would: the names of the block say nothing of TensorFlow."""
    helper = _helper("tensorflow as tf", "tf.random.normal([2]).device")
    shown = run(
        TORCH,
        """
        import helper
        def hidden():
            with on_gpu(1):
                print(torch.ones(1).device)
                return helper.make()
        warnings.simplefilter("ignore")
        print(error(hidden))
        try:
            hidden()
        except Exception as problem:
            print(type(problem).__name__, "GPU:1" in str(problem))
        print(helper.make()[-5:])
        """,
        helper=helper,
    )
    built = f"TensorFlow {_version('tensorflow-cpu')} is built without CUDA"
    assert shown == [
        "pretend:1",
        f"TensorFlow was used here and ran on the CPU, not on cuda:1: {built}.",
        "pretend:1",
        "InvalidArgumentError True",
        "CPU:0",
    ]


def test_mirrored_over_exactly_these_and_keras_fit_uses_both(run: Run) -> None:
    shown = run(
        TF + "import keras, numpy as np\n",
        """
        def devices(): return [value.device[-5:] for value in model.variables[0].value.values]
        with on_gpu("cpu:1,cpu:3", mirror=True):
            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=4, verbose=0)
            print(tf.distribute.get_strategy().num_replicas_in_sync, devices())
        with on_gpu("cpu:1,cpu:3", mirror=True):  # in another cell
            model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
        print(tf.distribute.has_strategy(), where())
        print(error(enter, "cpu:0,cpu:1"))
        print(error(enter, "cpu:0,cpu:9", mirror=True))
        """,
    )
    assert shown == [
        "2 ['CPU:1', 'CPU:3']",
        "False CPU:0",
        "A cell runs on one device. For cpu:0,cpu:1: --mirror (TensorFlow, Keras on it), "
        "torch.nn.DataParallel(model, device_ids=[0, 1]), or a launcher (torchrun).",
        "cpu and cpu:9 can't be used: TensorFlow has cpu:0, cpu:1, cpu:2 and cpu:3.",
    ]


# JAX


def test_jax_has_the_device(run: Run) -> None:
    assert run(
        JAX,
        """
        f = jax.jit(lambda x: x + jnp.ones(2))
        with on_gpu("cpu:2"):
            print(jnp.ones(2).devices(), f(jnp.ones(2)).devices(), jax.random.normal(jax.random.key(0)).devices())
            with on_gpu("cpu"):
                print(jnp.ones(2).devices())
        print(jnp.ones(2).devices())
        def use(place):
            with on_gpu(place):
                print("ran", jnp.ones(1))
        print(error(use, "cpu:4"))
        print(error(use, 0))
        """,
    ) == [
        "{CpuDevice(id=2)} {CpuDevice(id=2)} {CpuDevice(id=2)}",
        "{CpuDevice(id=0)}",
        "{CpuDevice(id=0)}",
        "cpu:4 can't be used: JAX has cpu:0, cpu:1, cpu:2 and cpu:3.",
        f"cuda:0 can't be used: JAX {_version('jax')} has no GPU here.",
    ]


def test_jax_is_not_started_by_a_block_that_does_not_use_it_and_never_falls_back(run: Run) -> None:
    shown = run(
        TORCH,
        """
        import helper
        from gpu_magic.frameworks.jax import FRAMEWORK
        def unrelated(place):
            with on_gpu(place):
                return torch.ones(1).device
        print(unrelated(0), FRAMEWORK.is_started())
        def hidden(place):
            with on_gpu(place):
                return helper.make()
        print(unrelated(2), FRAMEWORK.is_started())
        print(error(hidden, "cpu:3"))  # JAX can't be told of its fourth device before it starts
        print(hidden("cpu:3"), helper.make())
        print(error(hidden, 0))
        """,
        helper=_helper("jax", "jax.numpy.ones(1).devices()"),
    )
    assert shown == [
        "pretend:0 False",
        "pretend:2 False",
        "This is to run on cpu:3, and JAX could not: only its first device can be named before it starts. It has "
        "started now: run it again.",
        "{CpuDevice(id=3)} {CpuDevice(id=0)}",
        f"This is to run on cuda:0, and JAX could not: JAX {_version('jax')} has no GPU here.",
    ]


def test_jax_that_has_not_started_raises_by_itself_where_it_has_no_gpu(run: Run) -> None:
    assert run(
        TORCH,
        """
        import helper
        def hidden():
            with on_gpu(0):
                return helper.make()
        try:
            hidden()
        except RuntimeError as problem:
            print(str(problem)[:30])
        """,
        helper=_helper("jax", "jax.numpy.ones(1).devices()"),
    ) == ["Unknown backend: 'gpu' request"]


@pytest.mark.parametrize("place", ["pretend:0", "pretend:2"])
def test_jax_that_is_only_imported_is_no_hindrance_to_a_device_that_it_does_not_know(
    run: Run, place: str
) -> None:
    assert run(
        TORCH + JAX,
        f"""
        def work():
            with on_gpu({place!r}):
                print(torch.ones(1).device)
        work()
        from gpu_magic.frameworks.jax import FRAMEWORK
        print(FRAMEWORK.is_started())
        """,
    ) == [place, "False"]


def test_cuda_0_is_told_to_a_jax_that_has_not_started(run: Run) -> None:
    assert run(
        JAX,
        """
        import cupy
        def work():  # which does not name JAX
            with on_gpu("cuda:0"):
                print(cupy.ones(1).device.id, sys.modules["jax"].config.jax_default_device)
        work()
        """,
    ) == ["0 gpu"]


# Keras


@pytest.mark.parametrize(
    ("backend", "place", "expected"),
    [
        ("tensorflow", "cpu:2", "/job:localhost/replica:0/task:0/device:CPU:2"),
        ("jax", "cpu:2", "cpu:2"),
        ("torch", "2", "pretend:2"),
        ("torch", "cpu", "cpu"),
    ],
)
def test_keras_on_each_backend(run: Run, backend: str, place: str, expected: str) -> None:
    start = {"tensorflow": TF, "jax": JAX, "torch": TORCH}[backend]
    shown = run(
        start,
        f"""
        import keras, numpy as np
        assert keras.backend.backend() == {backend!r}
        def device(model): return str(getattr(model.variables[0].value, "device"))
        with on_gpu({place!r}):
            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
            print(device(model))
        print(device(keras.Sequential([keras.layers.Dense(1), keras.Input((2,))][::-1])) != {expected!r}
              or {expected!r} == "cpu")
        """,
        KERAS_BACKEND=backend,
    )
    assert shown == [expected, "True"]


def test_keras_does_not_start_the_jax_that_it_drags_in(run: Run) -> None:
    assert run(
        TORCH,
        """
        with on_gpu(2):
            import keras
            layer = keras.layers.Dense(1)
            layer.build((1, 2))
            print(layer.kernel.value.device)
        from gpu_magic.frameworks import get
        print(keras.backend.backend(), "jax" in sys.modules, get("jax").is_started())
        """,
        KERAS_BACKEND="torch",
    ) == ["pretend:2", "torch True False"]


def test_a_keras_backend_without_gpus_is_refused(run: Run) -> None:
    assert run(
        START + "import keras\n",
        "def go():\n    with on_gpu(0):\n        keras.ops.ones(2)\nprint(error(go))",
        KERAS_BACKEND="numpy",
    ) == ["cuda:0 can't be used: Keras runs on its numpy backend, which has no GPU."]


def test_mirror_is_tensorflow_s(run: Run) -> None:
    shown = run(
        START + "import keras\n",
        "def go():\n    with on_gpu('cpu:0,cpu:1', mirror=True):\n        keras.ops.ones(2)\nprint(error(go))",
        KERAS_BACKEND="jax",
    )
    assert shown == ["cpu and cpu:1 can't be used: --mirror is TensorFlow's, and Keras runs on jax."]


# CuPy


def test_cupy_has_the_device(run: Run) -> None:
    assert run(
        START + "import cupy\n",
        """
        with on_gpu(3):
            print(cupy.ones(2).device.id)
            with on_gpu("cpu"):  # it has none
                print(cupy.ones(2).device.id)
        def use(place):
            with on_gpu(place):
                print("ran", cupy.ones(1))
        print(cupy.ones(2).device.id, error(use, 4))
        """,
    ) == ["3", "3", "0 cuda:4 can't be used: CuPy sees cuda:0, cuda:1, cuda:2 and cuda:3."]
    shown = run(
        START + "import cupy\n",
        "def use():\n    with on_gpu(0):\n        cupy.ones(1)\nprint(error(use))",
        CUPY_STANDIN_BROKEN="1",
    )
    assert shown == [
        "cuda:0 can't be used: CuPy can't use CUDA here (cudaErrorNoDevice: no CUDA-capable device is detected)."
    ]


# Imports inside


@pytest.mark.parametrize(
    "code", ["import torch", "import helper", "from torch import nn", "__import__('torch')"]
)
def test_a_framework_that_the_block_imports_is_placed(run: Run, code: str) -> None:
    assert run(
        START + "import cupy  # which says that there is a GPU 2\n",
        f"""
        with on_gpu(2):
            cupy.ones(1)
            {code}
            print(sys.modules["torch"].ones(1).device)
            with on_gpu(1):
                print(sys.modules["torch"].ones(1).device)
        import torch
        print(torch.ones(1).device, [one for one in sys.meta_path if "PostImportHook" in type(one).__name__])
        loader = torch.__spec__.loader
        print("exec_module" in vars(loader), type(loader).__name__)
        """,
        helper=_helper("torch", "torch.ones(1)"),
    ) == ["pretend:2", "pretend:1", "cpu []", "False SourceFileLoader"]


def test_in_nested_blocks_an_import_in_the_inner_one_is_placed_in_both(run: Run) -> None:
    assert run(
        START + "import cupy\n",
        """
        with on_gpu(2):
            with on_gpu(1):
                import torch
                print(torch.ones(1).device, cupy.ones(1).device.id)
            print(torch.ones(1).device, cupy.ones(1).device.id)
        print(torch.ones(1).device)
        """,
    ) == ["pretend:1 1", "pretend:2 2", "cpu"]


def test_tensorflow_and_jax_are_placed_when_the_block_imports_them(run: Run) -> None:
    assert run(
        START,
        """
        with on_gpu("cpu:2", only="jax"):
            import helper
            import jax
            print(jax.numpy.ones(1).devices(), helper.make().devices())
        with on_gpu("cpu"):
            import tensorflow as tf
            print(tf.random.normal([2]).device[-5:])
        print(jax.numpy.ones(1).devices())
        """,
        helper=_helper("jax", "jax.numpy.ones(1)"),
    ) == ["{CpuDevice(id=2)} {CpuDevice(id=2)}", "CPU:0", "{CpuDevice(id=0)}"]


def test_one_that_can_not_run_there_is_told_at_the_end_of_a_block_and_its_import_is_whole(run: Run) -> None:
    shown = run(
        START + "import cupy\n",
        """
        def go():
            with on_gpu(1):
                cupy.ones(1)
                import tensorflow as tf
                return tf
        print(error(go))
        import tensorflow as tf
        print(tf.constant(1).device[-5:])
        """,
    )
    built = f"TensorFlow {_version('tensorflow-cpu')} is built without CUDA"
    assert shown == [f"cuda:1 can't be used: {built}.", "CPU:0"]


def test_an_import_that_fails_can_be_tried_again_and_one_in_a_thread_is_told(run: Run) -> None:
    assert run(
        START + "import cupy\n",
        """
        import threading, pathlib
        broken = pathlib.Path(__import__("helper").__file__).parent / "keras.py"
        broken.write_text("raise ImportError('broken')")
        sys.path.insert(0, str(broken.parent))
        with on_gpu(2):
            for _ in range(2):
                try:
                    import keras
                except ImportError as problem:
                    print(problem, "keras" in sys.modules)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with on_gpu(2):
                thread = threading.Thread(target=__import__, args=("torch",))
                thread.start()
                thread.join()
        print([str(one.message)[:51] for one in caught if one.category is gpu_magic.PlacementWarning])
        """,
        helper="pass",
    ) == [
        "broken False",
        "broken False",
        "['PyTorch was first imported in another thread, or by']",
    ]


def test_what_the_code_reaches_is_looked_into(run: Run) -> None:
    """A package of its own that imports the framework; a function behind a decorator; not a mere word."""
    assert run(
        TORCH + JAX,
        """
        import functools, pathlib
        def logged(function):
            @functools.wraps(function)
            def inner(*args):
                return function(*args)
            return inner
        @logged
        def compute():
            return jnp.ones(1)
        def decorated():
            with on_gpu(1):
                print("ran", compute())
        def own(x):
            return x * 2
        class Net(torch.nn.Module):
            def forward(self, x):
                return own(x)
        net = Net()
        def word():
            with on_gpu(1):
                for jax in [1]:
                    pass
                print(net(torch.ones(1)).device, "no jax here", torch.normal(0., 1., (1,), out=torch.empty(1)).device)
        print(error(decorated))
        word()
        """,
    ) == [
        f"cuda:1 can't be used: JAX {_version('jax')} has no GPU here.",
        "pretend:1 no jax here pretend:1",
    ]


def test_keras_that_the_block_imports_brings_its_backend_into_use(run: Run) -> None:
    shown = run(
        START,
        """
        def go():
            with on_gpu("cpu:3"):
                import keras
                print("imported")
        print(error(go))
        import keras
        def only():
            with on_gpu("cpu:3", only="keras"):
                keras.ops.ones(1)
        print(error(only))
        """,
        KERAS_BACKEND="tensorflow",
    )
    assert shown == [
        "imported",
        "cpu:3 can't be used: TensorFlow has cpu:0.",
        "cpu:3 can't be used: TensorFlow has cpu:0.",
    ]


def test_namesakes_and_other_generations_of_a_framework_are_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "keras.py").write_text("class Model: ...\n")
    assert run(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import keras\n" + TORCH,
        """
        with on_gpu(1):
            print(torch.ones(1).device, keras.Model)
        print(gpu_magic.devices_of(keras.Model()))
        """,
    ) == ["pretend:1 <class 'keras.Model'>", "No arrays."]


# What the block leaves open, and what overlaps


def test_blocks_that_overlap_in_tasks_leave_nothing_behind(run: Run) -> None:
    assert run(
        TF + "import torch, jax, jax.numpy as jnp\n",
        """
        import asyncio
        block = on_gpu("cpu:1", only="tf")
        async def a():
            with on_gpu(1, only="torch"), block:
                await asyncio.sleep(0.01)
        async def b():
            with on_gpu(2, only="torch"), block:
                await asyncio.sleep(0.03)
        async def main():
            await asyncio.gather(a(), b())
        asyncio.run(main())
        print(torch.ones(1).device, torch.accelerator.current_device_index(), where())
        """,
    ) == ["cpu 0 CPU:0"]


def test_contexts_that_the_block_leaves_open_do_not_stay(run: Run) -> None:
    assert run(
        TF + "import torch, jax, jax.numpy as jnp\n",
        """
        def state():
            return str(torch.ones(1).device), torch.accelerator.current_device_index(), where()
        before = state()
        with on_gpu(2, only="torch"):
            stray = torch.device("pretend:1")
            stray.__enter__()
        stray.__exit__(None, None, None)
        print(state() == before)
        def generator():
            with on_gpu(3, only="torch"):
                yield
        suspended = generator()
        with on_gpu(2, only="torch"):
            next(suspended)
        suspended.close()
        print(torch.ones(1).device, torch.get_default_device(), torch.accelerator.current_device_index())
        with on_gpu("cpu:1", only="tensorflow"):
            tf.device("/CPU:3").__enter__()
        print(where())
        with on_gpu("cpu", only="jax"):
            jax.config.update("jax_default_device", jax.devices()[3])
            with on_gpu("cpu:1", only="jax"):
                print(jnp.ones(1).devices())
        print(jnp.ones(1).devices())
        """,
    ) == ["True", "cpu cpu 0", "CPU:0", "{CpuDevice(id=1)}", "{CpuDevice(id=0)}"]


def test_lazy_loaders_and_libraries_that_only_look_for_a_framework_find_nothing_of_ours(run: Run) -> None:
    assert run(
        START,
        """
        import importlib.util
        with on_gpu("cpu:2", only="jax"):
            spec = importlib.util.find_spec("jax")
            loader = importlib.util.LazyLoader(spec.loader)
            spec.loader = loader
            module = importlib.util.module_from_spec(spec)
            sys.modules["jax"] = module
            loader.exec_module(module)
        import jax
        print(jax.numpy.ones(1).devices(), type(jax.__loader__).__name__, type(jax.__spec__.loader).__name__)
        """,
    ) == ["{CpuDevice(id=0)} SourceFileLoader SourceFileLoader"]


# The block itself


def test_a_decorator_for_functions_and_one_object_used_often(run: Run) -> None:
    assert run(
        TORCH,
        """
        import asyncio, threading

        @on_gpu(2)
        def make(n, *, plus=0):
            \"\"\"Make it.\"\"\"
            return torch.ones(n).device, n + plus

        print(make(1, plus=2), make.__name__, make.__doc__)
        block = on_gpu(1)
        with block:
            with block:
                print(torch.ones(1).device)
            print(torch.ones(1).device)
        with block:
            seen = []
            def other():
                seen.append(torch.ones(1).device)
                with block:
                    seen.append(torch.ones(1).device)
                seen.append(torch.ones(1).device)
            thread = threading.Thread(target=other)
            thread.start(); thread.join()
            print(*seen, torch.ones(1).device)

        def numbers():
            yield 1
        async def later():
            await asyncio.sleep(0)
        print(error(on_gpu(1), numbers) == error(on_gpu(1), later))
        print(error(on_gpu(1), numbers))
        class Caller:
            async def __call__(self):
                return torch.ones(1).device
        print(error(on_gpu(1), Caller()) == error(on_gpu(1), later))
        for wrong in (Caller, 3, "x"):
            print(error(on_gpu(1), wrong))
        for wrong in (b"1", {0, 1}, True, print):
            assert "names no device" in error(on_gpu, wrong)
        assert "only=3 names no frameworks" in error(on_gpu, 0, only=3)
        print(torch.ones(1).device, torch.accelerator.current_device_index())
        """,
    ) == [
        "(device(type='pretend', index=2), 3) make Make it.",
        "pretend:1",
        "pretend:1",
        "cpu pretend:1 cpu pretend:1",
        "True",
        "on_gpu can't decorate a coroutine or a generator: what else runs while it waits would be on that "
        "device, too. Write with on_gpu(...): around what it computes.",
        "True",
        "on_gpu decorates functions, and <class '__main__.Caller'> is none.",
        "on_gpu decorates functions, and 3 is none.",
        "on_gpu decorates functions, and 'x' is none.",
        "cpu 0",
    ]


def test_a_block_is_left_where_it_was_not_entered_from(run: Run) -> None:
    """A cell that awaits runs in a task of its own."""
    assert run(
        TORCH,
        """
        import asyncio
        block = on_gpu(2)
        async def enter():
            block.__enter__()
        asyncio.run(enter())
        print(torch.ones(1).device)
        block.__exit__(None, None, None)
        print(torch.ones(1).device, torch.accelerator.current_device_index())
        """,
    ) == ["pretend:2", "cpu 0"]


def test_a_block_that_is_kept_does_not_keep_variables(run: Run) -> None:
    assert run(
        TORCH,
        """
        import gc, weakref
        x = torch.ones(10)
        def make(y):
            return on_gpu(1), on_gpu(1)(lambda: None)
        blocks, seen = [on_gpu(1), make(x)], weakref.ref(x)
        del x
        gc.collect()
        print(seen())
        """,
    ) == ["None"]


def test_a_pytorch_that_is_too_old_is_told_so(run: Run) -> None:
    assert run(
        TORCH,
        """
        del torch.accelerator.device_index  # as before 2.8
        def use():
            with on_gpu(1):
                print(torch.ones(1))
        print(error(use))
        with on_gpu("cpu"):
            print(torch.ones(1).device)
        """,
    ) == [f"cuda:1 can't be used: PyTorch {_version('torch')} is too old for it: 2.8 is needed.", "cpu"]


def test_a_framework_that_fails_to_be_told_is_one_line_and_the_others_are_told_back(run: Run) -> None:
    """Another version of it, with other insides."""
    assert run(
        TORCH + "import tensorflow as tf\n",
        """
        def use():
            with on_gpu(1):
                print("ran")
        del type(sys.modules["tensorflow.python.eager.context"].context())._set_device
        print(error(use))
        print(torch.ones(1).device, torch.accelerator.current_device_index())
        """,
    ) == [
        "TensorFlow can't be told of cuda:1: AttributeError: 'Context' object has no attribute '_set_device'.",
        "cpu 0",
    ]


def test_only_limits_it(run: Run) -> None:
    assert run(
        TORCH + JAX,
        """
        with on_gpu(2, only="torch"):
            print(torch.ones(1).device, jnp.ones(1).devices())
        with on_gpu("cpu:1", only=["jax", "tf"]):
            print(torch.ones(1).device, jnp.ones(1).devices())
        def both():
            with on_gpu(2):
                torch.ones(1), jnp.ones(1)
        print(error(both))
        print(error(on_gpu, 2, only="jaxx"))
        print(error(on_gpu, 2, only=""))
        """,
    ) == [
        "pretend:2 {CpuDevice(id=0)}",
        "cpu {CpuDevice(id=1)}",
        f"cuda:2 can't be used: JAX {_version('jax')} has no GPU here. --only torch leaves the others out.",
        "--only jaxx: there is no framework of that name; it can be torch, tensorflow, jax, cupy and keras.",
        "--only needs a framework: torch, tensorflow, jax, cupy and keras.",
    ]


def test_or_cpu_says_so_in_a_line(run: Run) -> None:
    assert run(
        TORCH,
        """
        def go(place, **how):
            with on_gpu(place, or_cpu=True, **how) as scope:
                print(torch.ones(1).device)
        go(1)
        go(7)
        go("smi:0")
        """,
    ) == [
        "pretend:1",
        "Running on the CPU, as cuda:7 can't be used: PyTorch sees pretend:0, pretend:1, pretend:2 and pretend:3.",
        "cpu",
        "Running on the CPU: No NVIDIA driver was found (libnvidia-ml.so.1 is not there).",
        "cpu",
    ]


def test_another_package_can_add_a_framework(run: Run, tmp_path: Path) -> None:
    """By an entry point, named like its module."""
    info = tmp_path / "abacus-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gpu_magic.frameworks]\nabacus = abacus_gpu_magic:FRAMEWORK\nbroken = not_there:FRAMEWORK\n"
    )
    (tmp_path / "abacus.py").write_text("device = 'cpu'\n")
    (tmp_path / "broken.py").write_text("")
    (tmp_path / "abacus_gpu_magic.py").write_text(ABACUS)
    assert run(
        START,
        """
        import abacus
        def use():
            with on_gpu(1):
                print(abacus.device)
        use()
        print(abacus.device)
        def past():
            with on_gpu(2):
                print(abacus.device)
        print(error(past))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import broken
            use()
        print(caught[0].message)
        """,
    ) == [
        "rod 1",
        "cpu",
        "cuda:2 can't be used: the abacus has two rods.",
        "rod 1",
        "gpu_magic can't use what knows broken: ModuleNotFoundError(\"No module named 'not_there'\")",
    ]


ABACUS = """
import contextlib, sys
from gpu_magic.frameworks.base import Framework

class Abacus(Framework):
    name, module = "Abacus", "abacus"
    def statement_for(self, ordinal): return "abacus.use()"
    def problem(self, place): return "" if place.index < 2 else "the abacus has two rods"
    def name_of(self, place): return f"rod {place.index}"
    def narrow(self, ordinals): return "it can't be narrowed", None
    @contextlib.contextmanager
    def scope(self, place, is_used):
        abacus = sys.modules["abacus"]
        before, abacus.device = abacus.device, self.name_of(place)
        try:
            yield
        finally:
            abacus.device = before

FRAMEWORK = Abacus()
"""


def _version(package: str) -> str:
    return (
        f"{version(package)}+cpu" if package == "torch" and "+" not in version(package) else version(package)
    )


def _helper(module: str, expression: str) -> str:
    return f"import {module}\ndef make(): return {expression}\n"
