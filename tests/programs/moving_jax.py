"""`to_gpu` with JAX, on four logical CPUs."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gpu_magic import to_gpu
from gpu_magic.frameworks import get
from gpu_magic.move.move import move_variables
from gpu_magic.move.names import Names
from gpu_magic.move.plan import Plan
from gpu_magic.selection.target import LogicalDevice
from tests.programs.errors import placement_error


class State(NamedTuple):
    count: jax.Array
    mean: dict


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["name"])
@dataclasses.dataclass(frozen=True)
class Model:
    w: jax.Array
    name: str


@jax.tree_util.register_pytree_node_class
class Custom:
    def __init__(self, x):
        self.x = x

    def tree_flatten(self):
        return (self.x,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def pytree():
    x, key = jnp.arange(3.0), jax.random.key(0)
    tree = {"x": x, "state": State(x, {"w": [x]}), "model": Model(x, "m"), "custom": Custom(x), "key": key}
    mean, structure = tree["state"].mean, jax.tree_util.tree_structure(tree)
    moved = to_gpu(tree, "cpu:2")
    new = moved["x"]
    return {
        "are the same": [moved is tree, moved["state"].mean is mean],
        "devices": {"array": str(new.devices()), "key": str(moved["key"].devices())},
        "devices before": {"array": str(x.devices()), "key": str(key.devices())},
        "type is as weak": new.weak_type == x.weak_type,
        "is the new array": [
            moved["state"].count is new,
            moved["state"].mean["w"][0] is new,
            moved["model"].w is new,
            moved["custom"].x is new,
        ],
        "name": moved["model"].name,
        "type": type(moved["custom"]).__name__,
        "structure is equal": jax.tree_util.tree_structure(moved) == structure,
    }


def donated():
    gone = jnp.ones(3)
    gone.delete()
    return placement_error(to_gpu, gone, "cpu:1")


def no_gpu():
    return placement_error(to_gpu, jnp.arange(3.0), 0)


def from_numpy():
    return str(to_gpu(np.ones(2, np.float32), "cpu:1", numpy="jax").devices())


def planned():
    plan = Plan(LogicalDevice("cpu", 1), "jax")
    plan.add("a", np.ones(2, np.float32))
    return {"bytes": plan.nbytes, "is started": get("jax").is_started()}


def from_numpy_of_more_bits():
    return placement_error(to_gpu, np.ones(2), "cpu:1", numpy="jax")


@jax.tree_util.register_pytree_node_class
class Counted:  # the user's own, which forgets its count in JAX's hands
    def __init__(self, x):
        self.x, self.count = x, 7

    def tree_flatten(self):
        return (self.x,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        made = cls(*children)
        made.count = 0
        return made


def own_pytree():
    counted = Counted(jnp.ones(2))
    moved = to_gpu(counted, "cpu:2")
    return {"is the same": moved is counted, "count": counted.count, "device": str(counted.x.devices())}


def dry_run_for_numpy(is_started):
    if is_started:
        jnp.ones(1)
    names = Names({"a": np.ones(2, "float32")}, ())
    asked = {}
    for what, is_dry in (("dry run", True), ("move", False)):
        options = {"device": "0", "numpy": "jax", "dry_run": is_dry}
        asked[what] = placement_error(move_variables, names, "a", **options)
        asked[f"started by the {what}"] = get("jax").is_started() and not is_started
    return asked
