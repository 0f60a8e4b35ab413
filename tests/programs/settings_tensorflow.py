"""What `choose` tells TensorFlow. Its real context has GPUs in its lists as it writes them: this build finds none."""

import sys

import tensorflow as tf

from gpu_magic import choose
from gpu_magic.frameworks import get
from gpu_magic.frameworks.target import LogicalDevice
from tests.programs.errors import choice_error

eager = sys.modules["tensorflow.python.eager.context"]


def with_gpus(count):
    """Return so many GPUs, which TensorFlow has listed."""
    tf.config.list_physical_devices()
    context, gpus = (
        eager.context(),
        [eager.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(count)],
    )
    context._physical_devices += gpus
    context._visible_device_list += gpus
    return gpus


def limit_too_late():
    tf.constant(1)
    devices = eager._context._logical_devices
    devices.append(type(devices[0])("/device:GPU:0", "GPU"))  # as TensorFlow writes it
    return choice_error(choose, "1", memory_limit="8GB")


def growth_too_late():
    tf.constant(1.0)
    return choice_error(choose, "0", growth=True)


def unlisted_logical_devices():
    """Describe logical CPUs of one that is not listed yet, as we do with GPUs; CPUs are there."""
    cpu = eager.PhysicalDevice("/physical_device:CPU:0", "CPU")
    eager.context()._virtual_device_map[cpu] = [tf.config.LogicalDeviceConfiguration()] * 3
    return len(tf.config.list_logical_devices("CPU"))


def listed():
    gpus = with_gpus(2)
    eager.context()._memory_growth_map |= dict.fromkeys(gpus)

    def limits():
        sizes = [tf.config.get_logical_device_configuration(gpu) for gpu in gpus]
        return [devices and [one.memory_limit for one in devices] for devices in sizes]

    tf.config.set_logical_device_configuration(gpus[1], [tf.config.LogicalDeviceConfiguration(100)])
    choose("1,2", memory_limit="8GiB")
    found = limits()
    choose("reset")
    return {"with a limit": found, "reset": limits()}


def limit_of_a_started_one():
    """Return what TensorFlow says of its GPUs' limits after it has started, and after a reset."""
    choose("1,2", memory_limit="8GiB")
    tf.constant(1)
    found = [len(eager.context()._virtual_device_map)]
    choose("reset")
    return [*found, len(eager.context()._virtual_device_map)]


def narrowed():
    with_gpus(3)
    framework = get("tensorflow")
    said, undo = framework.narrow([2, 1])
    with framework.scope(LogicalDevice("gpu", 2), bool):
        within = eager.context().device_name
    found = {
        "within": within,
        "said": said,
        "visible": [one.name[-5:] for one in tf.config.get_visible_devices("GPU")],
        "names": [framework.name_of(LogicalDevice("gpu", i)) for i in (1, 2)],
        "problem": framework.problem(LogicalDevice("gpu", 1)),
        "one that is not there": framework.narrow([7])[0],
    }
    undo.__exit__(None, None, None)
    return {
        **found,
        "visible afterwards": len(tf.config.get_visible_devices("GPU")),
        "name afterwards": framework.name_of(LogicalDevice("gpu", 2)),
    }
