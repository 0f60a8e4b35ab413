"""`devices_of` with JAX and NumPy."""

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from gpu_magic import devices_of
from gpu_magic.frameworks import get


def sharded():
    mesh = Mesh(jax.devices()[:2], "x")
    split = jax.device_put(jnp.ones(8), NamedSharding(mesh, P("x")))
    same = jax.device_put(jnp.ones(8), NamedSharding(mesh, P()))
    return {"split": devices_of(split), "replicated": devices_of(same)}


def unlisted_backends():
    """Return whether JAX has started where it does not list its backends, and what is said of that."""
    del sys.modules["jax._src.xla_bridge"]._backends
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = [get("jax").is_started(), get("jax").has_gpu()]
    return {"started": started, "said": [str(one.message) for one in caught]}


def tree():
    return devices_of({"w": [jnp.ones(2)]}, jax.random.key(0))


def traced():
    seen = []
    jax.jit(lambda x: seen.append(repr(devices_of(x))) or x)(jnp.ones(1))
    return seen


def deleted():
    gone = jnp.ones(3)
    gone.delete()
    return devices_of(gone)


@jax.tree_util.register_pytree_node_class
class Module:
    def __init__(self, w):
        self.w = w

    def tree_flatten(self):
        return (self.w,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


Module.__module__ = "elsewhere"


def pytree_of_another_package():
    return devices_of(Module(jnp.ones(4)))


def numpy_arrays():
    a = np.ones(100)
    return {
        "views": devices_of(a[:3], a),
        "shown": repr(devices_of(np.ones((1024, 1024)), np.ones(1024))),
    }
