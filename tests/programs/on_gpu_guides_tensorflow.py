"""Guides with TensorFlow, cell by cell, on four logical CPUs."""

import jax
import tensorflow as tf

from tests.programs.cells import run_guide

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def state():
    return [tf.random.normal([2]).device, str(jax.config.jax_default_device)]


def guide(name):
    return run_guide(name, "cpu:2", state)
