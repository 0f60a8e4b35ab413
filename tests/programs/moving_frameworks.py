"""`to_gpu` with JAX, TensorFlow and Keras on four logical CPUs, CuPy's stand-in, and PyTorch beside them."""

import collections
import contextlib
import dataclasses
import functools
import io
from typing import NamedTuple

import cupy
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pretend_native
import tensorflow as tf
import torch
from torch import nn

from gpu_magic import to_cpu, to_gpu
from gpu_magic.frameworks import get
from gpu_magic.move.move import move_variables
from tests.programs.errors import placement_error
from tests.programs.reached import devices_of

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


def pytree():
    x, key = jnp.arange(3.0), jax.random.key(0)
    tree = {"x": x, "state": State(x, {"w": [x]}), "model": Model(x, "m"), "own": Counted(x), "key": key}
    mean, own, structure = tree["state"].mean, tree["own"], jax.tree_util.tree_structure(tree)
    moved = to_gpu(tree, "cpu:2")
    new, state, model = moved["x"], moved["state"], moved["model"]
    return {
        "kept": [moved is tree, state.mean is mean, moved["own"] is own, own.count, model.name],
        "devices": [new.devices(), moved["key"].devices(), x.devices()],
        "one is one": [one is new for one in (state.count, state.mean["w"][0], model.w, own.x)],
        "structure": [jax.tree_util.tree_structure(moved) == structure, new.weak_type == x.weak_type],
    }


def tensors():
    x, ragged, sparse = tf.ones(2), tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[0, 1]])
    moved, again, text, ragged, sparse = to_gpu([x, x, tf.constant("a"), ragged, sparse], "cpu:3")
    devices = [one.device[-5:] for one in (x, moved, text, ragged.values, sparse.values)]
    return [devices, again is moved, type(ragged).__name__, ragged.to_list(), type(sparse).__name__]


def cupy_arrays():
    x = cupy.ones(6)
    plan = move_variables({"x": x, "part": x[2:4]}, (), "x part", device="2", dry_run=True)
    pretend_native.set_total(2, 1000)  # PyTorch has less than CuPy there
    both = {"x": x, "t": torch.ones(2)}
    plan = [*plan[:2], move_variables(both, (), "x t", device="2", dry_run=True)[-1]]
    whole, part, (again,) = to_gpu((x, x[2:4], [x]), 2)
    is_view = part.data.mem is whole.data.mem and part.data.ptr - whole.data.ptr == 16
    found = [again is whole, is_view, cupy.asnumpy(part).tolist(), type(to_cpu(part)).__name__]
    return [plan, [x.device.id, whole.device.id, part.device.id], *found]


def from_numpy():
    small = np.ones(2, np.float32)
    return [to_gpu(small, "cpu:1", numpy="jax").devices(), to_gpu(small, 1, numpy="cupy").device.id]


def tensors_beside_jax():
    """PyTorch's tensors stay in containers of which JAX has its own idea."""
    key, x = torch.ones(2), torch.zeros(1)
    ordered = collections.OrderedDict([(key, 1), ("a", x), ("b", 2)])
    ordered["self"] = ordered
    default, state = collections.defaultdict(list, x=x), nn.BatchNorm1d(2).state_dict()
    given = ordered, default, state
    kept = [one is other for one, other in zip(to_gpu(given, 0), given, strict=True)]
    kept += [ordered["self"] is ordered, "version" in state._metadata[""], default["new"] == []]
    return [kept, [type(one).__name__ for one in ordered], devices_of(given)]


def several():
    """None of several frameworks' arrays goes to a GPU that only one has."""
    things = [torch.ones(2, device="pretend:1"), jnp.ones(2), tf.ones(2), nn.LSTM(2, 2).to("pretend:1")]
    to_cpu(things)
    found = [things[0].device, things[1].devices(), things[2].device[-5:], things[3].weight_hh_l0.device]
    return [found, placement_error(to_gpu, things, 0), things[0].device]


def refused(calls):
    """Return what is told of calls that are given as text."""
    space = globals() | {"gone": jnp.ones(3), "layer": keras.layers.Dense(2)}
    space["gone"].delete()
    space["on_torch"] = type("Dense", (keras.layers.Dense, nn.Module), {})
    return [placement_error(eval, call, space) for call in calls]


def dry_run_for_numpy(is_started=False):
    """A dry run does not start a framework to ask it; a move does."""
    if is_started:
        jnp.ones(1)
    found = []
    for is_dry in (True, False):
        options = {"device": "0", "numpy": "jax", "dry_run": is_dry}
        found.append(placement_error(move_variables, {"a": np.ones(2, "float32")}, (), "a", **options))
        found.append(get("jax").is_started())
    return found


def or_cpu():
    """Return what is moved where, and what is printed, with `or_cpu`."""

    def printed(call, *args, **options):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            result = call(*args, or_cpu=True, **options)
        return result, said.getvalue()

    def move_all(**space):
        move = functools.partial(move_variables, space, (), "", all_of_them=True)
        lines, said = printed(move)
        return [lines, said, space["t"].device[-5:]]

    x, t = torch.ones(2), tf.ones(2)
    moved, said = printed(to_gpu, [x, t], 0)
    return {
        "one has none": [[moved[0].device, moved[1].device[-5:]], said],
        "all, of which one can": move_all(x=x, t=t, y=x, v=tf.Variable([1.0]), a=np.ones(2), n=3),
        "all": move_all(t=t),
    }
