"""The statements that we propose for a device, on logical CPUs: the same calls with another kind of device."""

import jax
import tensorflow as tf

from gpu_magic.frameworks import get

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def in_tensorflow():
    line = get("tensorflow").statement_for(2).replace("GPU", "CPU").replace("...", "x = tf.constant(1) + 1")
    space = {"tf": tf}
    exec(line, space)
    return space["x"].device[-5:]


def in_jax():
    exec(get("jax").statement_for(2).replace('"gpu"', '"cpu"'), {"jax": jax})
    return {"made on": str(jax.numpy.zeros(1).devices()), "third": str({jax.devices("cpu")[2]})}
