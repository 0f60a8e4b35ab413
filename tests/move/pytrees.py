"""TensorFlow and JAX on four logical CPUs, and pytrees. For processes that may import both."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


class State(NamedTuple):
    count: jax.Array
    mean: dict


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["name"])
@dataclasses.dataclass(frozen=True)
class Model:
    w: jax.Array
    name: str
