"""`to_gpu` with arrays of several frameworks in one object."""

import jax.numpy as jnp
import tensorflow as tf
import torch

from gpu_magic import to_cpu, to_gpu
from tests.programs.errors import placement_error


def several():
    things = [torch.ones(2, device="pretend:1"), jnp.ones(2), tf.ones(2)]
    to_cpu(things)
    found = {"on the CPU": [str(things[0].device), str(things[1].devices()), things[2].device[-5:]]}
    return {**found, "error": placement_error(to_gpu, things, 0), "after the error": str(things[0].device)}
