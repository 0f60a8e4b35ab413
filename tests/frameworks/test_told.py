"""What `%gpus` tells the frameworks: memory, and fewer GPUs in a process that can't change its mask."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh

Run = Callable[..., list[str]]

START = """
import os, sys
import gpu_magic
from gpu_magic import choose, ChoiceError

VARIABLES = ("TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION",
             "XLA_CLIENT_MEM_FRACTION")

def variables():
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}

def error(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except ChoiceError as problem:
        return str(problem)

def start():
    import ctypes
    ctypes.CDLL("libcuda.so.1").cuInit(0)
"""


@pytest.fixture
def machine(fresh: Fresh, native: Path, tmp_path: Path, pretend: dict[str, str]) -> Run:
    """Return a way to run code on a machine of four GPUs with its pretended driver; its lines."""
    Driver(CARDS).write(tmp_path / "machine")

    def run(code: str, **more: str) -> list[str]:
        around = {**environment(native, tmp_path / "machine"), "TF_CPP_MIN_LOG_LEVEL": "3", **pretend, **more}
        return fresh(START + textwrap.dedent(code), **around).strip().split("\n")

    return run


def test_growth_is_set_and_taken_back(machine: Run) -> None:
    assert machine(
        """
        print(repr(choose("1", growth=True)).split("\\n")[-1])
        print(variables())
        choose("1")  # each choice says all of it
        print(variables())
        choose("1", growth=True)
        choose("reset")
        print(variables(), os.environ.get("CUDA_VISIBLE_DEVICES"))
        print(repr(choose("1", growth=True, dry_run=True)).split("\\n")[-2:], variables())
        print(error(choose, "none", growth=True))
        """,
        XLA_PYTHON_CLIENT_PREALLOCATE="true",
    ) == [
        "TensorFlow and JAX take memory as they need it.",
        "{'TF_FORCE_GPU_ALLOW_GROWTH': 'true', 'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'}",
        "{'XLA_PYTHON_CLIENT_PREALLOCATE': 'true'}",
        "{'XLA_PYTHON_CLIENT_PREALLOCATE': 'true'} None",
        "['TensorFlow and JAX take memory as they need it.', 'Nothing was changed; it would be "
        "CUDA_VISIBLE_DEVICES=1, CUDA_DEVICE_ORDER=PCI_BUS_ID.'] {'XLA_PYTHON_CLIENT_PREALLOCATE': 'true'}",
        "--growth and --memory-limit go with GPUs, and there is none in this choice.",
    ]


def test_unloading_takes_it_back(machine: Run) -> None:
    assert machine(
        """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        for line in ("%load_ext gpu_magic", "%gpus 1 --growth --memory-limit 8GiB"):
            shell.run_cell(line)
        print(sorted(variables()))
        shell.run_cell("%unload_ext gpu_magic")
        print(variables(), [one for one in sys.meta_path if "gpu_magic" in type(one).__module__])
        """
    )[-3:] == [
        "['TF_FORCE_GPU_ALLOW_GROWTH', 'XLA_PYTHON_CLIENT_MEM_FRACTION', 'XLA_PYTHON_CLIENT_PREALLOCATE']",
        "Your choice is undone: CUDA_VISIBLE_DEVICES is not set again: all GPUs are visible. %gpus chooses anew, "
        "once gpu_magic is loaded.",
        "{} []",
    ]


@pytest.mark.parametrize("order", ["imported before", "imported after"])
def test_a_limit_reaches_each_framework_in_its_own_way(machine: Run, order: str) -> None:
    """What TensorFlow and PyTorch then hold is read where they keep it; on a GPU tests/gpu measures it."""
    imports = "import torch, tensorflow as tf"
    shown = machine(
        f"""
        {imports if order == "imported before" else ""}
        print(repr(choose("1,2", memory_limit="8GiB")).split("\\n")[-1])
        {imports}
        print(variables())
        context = sys.modules["tensorflow.python.eager.context"].context()
        sizes = {{gpu.name[-5:]: [part.memory_limit for part in parts]
                 for gpu, parts in context._virtual_device_map.items()}}
        print(sizes, context._context_handle, context._physical_devices)
        print([call.__name__ for call, _ in torch.cuda._queued_calls if "set_fractions" in call.__name__])
        from gpu_magic.frameworks.pytorch.framework import FRAMEWORK
        print(FRAMEWORK._limit == 8 << 30)
        choose("1,2")
        print(FRAMEWORK._limit, context._virtual_device_map, variables())
        """
    )
    assert shown == [
        "TensorFlow, JAX and PyTorch take at most 8.0 GiB of a GPU.",
        f"{{'XLA_PYTHON_CLIENT_MEM_FRACTION': '{int(10_000 * (8 << 30) / CARDS[1].total) / 10_000}'}}",
        "{'GPU:0': [8192.0], 'GPU:1': [8192.0]} None None",
        "['_set_fractions']",
        "True",
        "None {} {}",
    ]


def test_tensorflow_takes_such_a_logical_device_for_real(fresh: Fresh) -> None:
    """The same way with CPUs, which are there: a device that was described before it is listed."""
    assert (
        fresh(
            """
            import tensorflow as tf
            from tensorflow.python.eager import context
            cpu = context.PhysicalDevice("/physical_device:CPU:0", "CPU")
            context.context()._virtual_device_map[cpu] = [tf.config.LogicalDeviceConfiguration()] * 3
            print(len(tf.config.list_logical_devices("CPU")))
            """,
            TF_CPP_MIN_LOG_LEVEL="3",
        ).strip()
        == "3"
    )


def test_jax_s_new_name_of_the_fraction_is_kept_where_it_is_set(machine: Run) -> None:
    """With both names JAX refuses to start (jaxlib 0.10)."""
    assert machine(
        """
        choose("1", memory_limit="8GiB")
        print(list(variables()))
        from jaxlib.xla_client import generate_pjrt_gpu_plugin_options as options
        print(options()["memory_fraction"] < 0.5)
        """,
        XLA_CLIENT_MEM_FRACTION="0.9",
    ) == ["['XLA_CLIENT_MEM_FRACTION']", "True"]


def test_it_is_too_late_once_a_framework_has_a_gpu(machine: Run) -> None:
    assert machine(
        """
        import jax
        jax.devices()
        sys.modules["jax._src.xla_bridge"]._backends["cuda"] = None  # as JAX writes it
        print(error(choose, "1", growth=True))
        print(error(choose, "1", memory_limit="8GB"))
        print(variables(), os.environ.get("CUDA_VISIBLE_DEVICES"))
        """
    ) == [
        "--growth comes too late: JAX took its memory when it started on a GPU. Restart the kernel and choose "
        "before that; nothing was changed.",
        "--memory-limit comes too late: JAX took its memory when it started on a GPU. Restart the kernel and "
        "choose before that; nothing was changed.",
        "{} None",
    ]


def test_a_limit_is_too_late_for_tensorflow_as_well(machine: Run) -> None:
    assert machine(
        """
        import tensorflow as tf
        tf.constant(1)
        devices = sys.modules["tensorflow.python.eager.context"]._context._logical_devices
        devices.append(type(devices[0])("/device:GPU:0", "GPU"))  # as TensorFlow writes it
        print(error(choose, "1", memory_limit="8GB"))
        """
    ) == [
        "--memory-limit comes too late: TensorFlow took its memory when it started on a GPU. Restart the kernel and "
        "choose before that; nothing was changed."
    ]


def test_tensorflow_that_has_listed_its_gpus_is_told_of_each_and_gets_back_what_it_had(machine: Run) -> None:
    """With GPUs in its real context's lists, as it writes them: this build can't find any."""
    assert machine(
        """
        import tensorflow as tf
        tf.config.list_physical_devices()
        module = sys.modules["tensorflow.python.eager.context"]
        context, gpus = module.context(), [module.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in (0, 1)]
        context._physical_devices += gpus
        context._visible_device_list += gpus
        context._memory_growth_map |= {gpu: None for gpu in gpus}
        def told():
            sizes = [tf.config.get_logical_device_configuration(gpu) for gpu in gpus]
            return ([tf.config.experimental.get_memory_growth(gpu) for gpu in gpus],
                    [parts and [part.memory_limit for part in parts] for parts in sizes])
        tf.config.experimental.set_memory_growth(gpus[1], True)
        print(told())
        choose("1,2", growth=True)
        print(told())
        choose("1,2")
        print(told())
        tf.config.experimental.set_memory_growth(gpus[1], False)
        tf.config.set_logical_device_configuration(gpus[1], [tf.config.LogicalDeviceConfiguration(100)])
        choose("1,2", memory_limit="8GiB")
        print(told()[1])
        choose("reset")
        print(told()[1])
        """
    ) == [
        "([None, True], [None, None])",
        "([True, True], [None, None])",
        "([None, True], [None, None])",
        "[[8192.0], [8192.0]]",
        "[None, [100]]",
    ]


def test_the_same_choice_of_a_frozen_process_can_still_say_memory(machine: Run) -> None:
    assert machine(
        """
        choose("1")
        start()
        print(bool(choose("1", growth=True).refusal), sorted(variables())[:1])
        import warnings
        warnings.simplefilter("ignore")
        print(bool(choose("2").refusal), sorted(variables())[:1])
        """
    ) == ["False ['TF_FORCE_GPU_ALLOW_GROWTH']", "True ['TF_FORCE_GPU_ALLOW_GROWTH']"]


def test_in_process_tells_what_is_imported_and_says_what_came_of_it(machine: Run) -> None:
    assert machine(
        """
        print(error(choose, "2", in_process=True))
        choose("1,2,3")
        import torch, jax, tensorflow as tf
        start()
        print(choose("2", in_process=True, dry_run=True))
        print(torch.accelerator.current_device_index())
        print(choose("2", in_process=True))
        print(torch.accelerator.current_device_index(), os.environ["CUDA_VISIBLE_DEVICES"])
        print(choose("3", in_process=True).ordinals, torch.accelerator.current_device_index())
        print(error(choose, "0", in_process=True))
        print(error(choose, "3", in_process=True, growth=True))
        print(choose("reset", in_process=True))
        print(torch.accelerator.current_device_index())
        """
    ) == [
        "CUDA was not started here yet, so %gpus 2 chooses for every framework; --in-process is for later.",
        "cuda:1 = GPU 2 (NVIDIA A100-SXM4-80GB, 80 GiB free)",
        "Nothing was changed.",
        "0",
        "cuda:1 = GPU 2 (NVIDIA A100-SXM4-80GB, 80 GiB free)",
        "PyTorch: its current device is pretend:1; the others can still be named.",
        f"TensorFlow {_version('tensorflow-cpu')} is built without CUDA.",
        f"JAX {_version('jax')} has no GPU here.",
        "1 1,2,3",
        "(2,) 2",
        "CUDA was initialised, and this process can use GPU 1 (cuda:0), GPU 2 (cuda:1), GPU 3 (cuda:2) and no other.",
        "--in-process changes no mask and no memory: leave --growth out.",
        "PyTorch: as it was.",
        "0",
    ]


def test_tensorflow_is_narrowed_while_it_only_lists_its_devices(machine: Run) -> None:
    """TensorFlow's own context, with GPUs in its list as it writes them: this build can't find any."""
    assert machine(
        """
        import tensorflow as tf
        from gpu_magic.frameworks.tensorflow.framework import FRAMEWORK
        from gpu_magic.selection.target import LogicalDevice
        tf.config.list_physical_devices()
        context = sys.modules["tensorflow.python.eager.context"].context()
        kind = sys.modules["tensorflow.python.eager.context"].PhysicalDevice
        gpus = [kind(f"/physical_device:GPU:{i}", "GPU") for i in range(3)]
        context._physical_devices += gpus
        context._visible_device_list += gpus
        said, undo = FRAMEWORK.narrow([2, 1])
        print(said, [one.name[-5:] for one in tf.config.get_visible_devices("GPU")])
        print([FRAMEWORK.name_of(LogicalDevice("gpu", i)) for i in (1, 2)], FRAMEWORK.problem(LogicalDevice("gpu", 1)) or "there")
        print(FRAMEWORK.narrow([7])[0])
        undo.__exit__(None, None, None)
        print(len(tf.config.get_visible_devices("GPU")), FRAMEWORK.name_of(LogicalDevice("gpu", 2)))
        """
    ) == [
        "it sees cuda:1 as /GPU:0 and cuda:2 as /GPU:1 ['GPU:2', 'GPU:1']",
        "['/GPU:0', '/GPU:1'] there",
        "it does not list cuda:7",
        "3 /GPU:2",
    ]


def test_the_refusal_of_a_frozen_process_names_it(machine: Run) -> None:
    shown = machine(
        """
        import torch, warnings
        choose("1,2")
        start()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            choose("2")
        print(caught[0].message)
        """
    )
    assert "  any of them: %%on_gpu 1 for a cell, %gpus 2 --in-process from here on" in shown


def _version(package: str) -> str:
    return version(package)
