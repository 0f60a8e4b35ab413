"""`to_gpu` with JAX, TensorFlow and Keras on four logical CPUs, CuPy's stand-in, and PyTorch beside them."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from gpu_magic import to_cpu, to_gpu
from gpu_magic.frameworks import get
from gpu_magic.move.move import move_variables
from tests.programs.errors import placement_error
from tests.programs.runner import ELSEWHERE, gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import cupy
    import jax
    import jax.numpy as jnp
    import keras
    import pretend_native
    import tensorflow as tf
    import torch
    from torch import nn

    from tests.move.pytrees import Model, State
    from tests.programs.reached import devices_of

NO_CUDA = f"cuda:0 cannot be used: TensorFlow {version('tensorflow-cpu')} is built without CUDA."
OR = " To move to the CPU instead, add --or-cpu"
NO_GPU = f"cuda:0 cannot be used: JAX {version('jax')} has no GPU here."
AGAIN = "create it again in a cell with %%on_gpu"
KERAS = f"Keras cannot move its own objects (Dense): {AGAIN}, then new.set_weights(old.get_weights())."
VARIABLE = f"TensorFlow cannot move a tf.Variable: {AGAIN}, and assign to it."
CPU = "Moving to the CPU: "

if ELSEWHERE:

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


@gives(
    {
        "kept": [True, True, True, 7, "m"],
        "devices": ["{CpuDevice(id=2)}", "{CpuDevice(id=2)}", "{CpuDevice(id=0)}"],
        "one is one": [True] * 4,
        "structure": [True, True],
    }
)
def test_pytree():
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


@gives(
    [
        # The original, the new one, text, which stays, and composite ones.
        ["CPU:0", "CPU:3", "CPU:0", "CPU:3", "CPU:3"],
        *(True, "RaggedTensor", [[1], [2, 3]], "SparseTensor"),
    ]
)
def test_tensors():
    x, ragged, sparse = tf.ones(2), tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[0, 1]])
    moved, again, text, ragged, sparse = to_gpu([x, x, tf.constant("a"), ragged, sparse], "cpu:3")
    devices = [one.device[-5:] for one in (x, moved, text, ragged.values, sparse.values)]
    return [devices, again is moved, type(ragged).__name__, ragged.to_list(), type(sparse).__name__]


@gives(
    [
        [
            "x     ndarray (6,): 1 array  48 bytes  cuda:0 → cuda:2",
            "part  ndarray (2,): 1 array   0 bytes  cuda:0 → cuda:2",
            "56 bytes would move to cuda:2, where 1000 bytes are free. Nothing was changed.",
        ],
        *([0, 2, 2], True, True, [1, 1], "ndarray"),
    ]
)
def test_cupy_arrays():
    x = cupy.ones(6)
    plan = move_variables({"x": x, "part": x[2:4]}, (), "x part", device="2", dry_run=True)
    pretend_native.set_total(2, 1000)  # PyTorch has less than CuPy there
    both = {"x": x, "t": torch.ones(2)}
    plan = [*plan[:2], move_variables(both, (), "x t", device="2", dry_run=True)[-1]]
    whole, part, (again,) = to_gpu((x, x[2:4], [x]), 2)
    is_view = part.data.mem is whole.data.mem and part.data.ptr - whole.data.ptr == 16
    found = [again is whole, is_view, cupy.asnumpy(part).tolist(), type(to_cpu(part)).__name__]
    return [plan, [x.device.id, whole.device.id, part.device.id], *found]


@gives(["{CpuDevice(id=1)}", 1])
def test_from_numpy():
    small = np.ones(2, np.float32)
    return [to_gpu(small, "cpu:1", numpy="jax").devices(), to_gpu(small, 1, numpy="cupy").device.id]


@gives([[True] * 6, ["Tensor", "str", "str", "str"], ["pretend:0"]])
def test_tensors_beside_jax():
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


def dry_run_for_numpy(is_started):
    """A dry run does not start a framework to ask it; a move does."""
    if is_started:
        jnp.ones(1)
    found = []
    for is_dry in (True, False):
        options = {"device": "0", "numpy": "jax", "dry_run": is_dry}
        found.append(placement_error(move_variables, {"a": np.ones(2, "float32")}, (), "a", **options))
        found.append(get("jax").is_started())
    return found


def test_a_dry_run_starts_no_framework(run: Runner) -> None:
    no_gpu = f"a: {NO_GPU}{OR}"
    assert run(dry_run_for_numpy, False) == [None, False, no_gpu, True]
    assert run(dry_run_for_numpy, True) == [no_gpu, True, no_gpu, True]


@gives(
    {
        "one has none": [["cpu", "CPU:0"], f"{CPU}{NO_CUDA}\n"],
        "all, of which one can": [
            [
                "x  Tensor (2,): 1 array  8 bytes  cpu → pretend:0",
                "y  Tensor (2,)                    shared with x",
                "8 bytes moved to pretend:0.",
                f"t stays: {NO_CUDA}",
                f"v stays: {VARIABLE}",
            ],
            *("", "CPU:0"),
        ],
        "all": [
            ["Everything is already on the CPU."],
            *(f"{CPU}t: {NO_CUDA}\n", "CPU:0"),
        ],
    }
)
def test_or_cpu():
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


# Calls, and why each is refused.
REFUSED: dict[str, str | None] = {
    "to_gpu(gone, 'cpu:1')": "A JAX array of shape (3,) was donated and thereby deleted: it has no data to move.",
    "to_gpu(np.ones(2), 'cpu:1', numpy='jax')": "JAX would convert float64 to float32 because jax_enable_x64 is not set: "
    'convert it yourself, with .astype("float32").',
    "to_gpu(jnp.ones(2), 0)": NO_GPU + OR,
    "to_gpu(tf.ones(2), 1)": NO_CUDA.replace("cuda:0", "cuda:1") + OR,
    "to_gpu([tf.ones(2), tf.Variable([1.0])], 'cpu:1')": VARIABLE,
    "to_gpu(layer, 'cpu:1')": KERAS,
    "to_gpu({'a': on_torch(2)}, 1)": KERAS,  # as with KERAS_BACKEND=torch
    "to_gpu(keras.Sequential([keras.layers.Input((2,)), layer]), 'cpu')": None,  # it is there already
}


def test_what_can_not_be_moved_says_why(run: Runner) -> None:
    assert dict(zip(REFUSED, run(refused, list(REFUSED)), strict=True)) == REFUSED


def test_several_frameworks_in_one_object_in_a_process_that_ends_as_any_other(run: Runner) -> None:
    assert run.to_the_end(several) == [
        ["cpu", "{CpuDevice(id=0)}", "CPU:0", "cpu"],
        NO_CUDA + OR,
        "cpu",
    ]
