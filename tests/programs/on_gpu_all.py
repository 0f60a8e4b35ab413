"""`on_gpu` where PyTorch, TensorFlow and JAX are imported."""

import asyncio
from contextlib import ExitStack

import jax
import jax.numpy as jnp
import tensorflow as tf
import torch

from gpu_magic import on_gpu
from tests.programs.threads import at_once

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def in_tensorflow():
    """Return where TensorFlow makes a tensor."""
    return tf.random.normal([2]).device[-5:]


def state():
    return [str(torch.ones(1).device), torch.accelerator.current_device_index(), in_tensorflow()]


def overlapping_tasks():
    block = on_gpu("cpu:1", only="tf")

    async def a():
        with on_gpu(1, only="torch"), block:
            await asyncio.sleep(0.01)

    async def b():
        with on_gpu(2, only="torch"), block:
            await asyncio.sleep(0.03)

    async def both():
        await asyncio.gather(a(), b())

    asyncio.run(both())
    return state()


def torch_device_left_open():
    before = state()
    with on_gpu(2, only="torch"):
        stray = torch.device("pretend:1")
        stray.__enter__()
    stray.__exit__(None, None, None)
    return {"before": before, "after": state()}


def suspended_generator():
    def generator():
        with on_gpu(3, only="torch"):
            yield

    suspended = generator()
    with on_gpu(2, only="torch"):
        next(suspended)
    suspended.close()
    return [
        str(torch.ones(1).device),
        str(torch.get_default_device()),
        torch.accelerator.current_device_index(),
    ]


def tensorflow_device_left_open():
    with on_gpu("cpu:1", only="tensorflow"):
        tf.device("/CPU:3").__enter__()
    return in_tensorflow()


def jax_configured_inside():
    found = {}
    with on_gpu("cpu", only="jax"):
        jax.config.update("jax_default_device", jax.devices()[3])
        with on_gpu("cpu:1", only="jax"):
            found["in an inner block"] = str(jnp.ones(1).devices())
    return {**found, "outside": str(jnp.ones(1).devices())}


def block_of(index):
    """Return a block on the device with this number of each framework."""
    blocks = ExitStack()
    blocks.enter_context(on_gpu(index, only="torch"))
    blocks.enter_context(on_gpu(f"cpu:{index}", only="tensorflow,jax"))
    return blocks


def state_of_all():
    return [*state(), str(jnp.ones(1).devices())]


def blocks_in_threads():
    def in_block(index, all_have_begun):
        with block_of(index):
            all_have_begun()
            return state_of_all()

    def without_block(all_have_begun):
        all_have_begun()
        return state_of_all()

    found = at_once([in_block, 1], [in_block, 2], here=[in_block, 3])
    return {
        "in blocks": found,
        "without one": at_once([in_block, 1], [without_block], here=[without_block]),
        "after": state_of_all(),
    }


def jax_configured_beside_a_block():
    def in_block(all_have_begun):
        with on_gpu("cpu:1", only="jax"):
            all_have_begun()
            all_have_begun()

    def configure(all_have_begun):
        all_have_begun()
        jax.config.update("jax_default_device", jax.devices()[3])
        all_have_begun()

    at_once([in_block], here=[configure])
    return str(jnp.ones(1).devices())
