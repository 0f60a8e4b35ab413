"""`on_gpu` where PyTorch, TensorFlow and JAX are imported."""

import asyncio

import jax
import jax.numpy as jnp
import tensorflow as tf
import torch

from gpu_magic import on_gpu

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
