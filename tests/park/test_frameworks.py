"""Parking with JAX, TensorFlow and CuPy's stand-in, beside PyTorch."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from gpu_magic import park, unpark
from gpu_magic.objects.where import where_lines
from tests.eight_gpus import installed
from tests.programs.runner import ELSEWHERE, gives

if ELSEWHERE:
    import cupy
    import jax
    import jax.numpy as jnp
    import keras  # noqa: F401 - as in the other file with all frameworks: they have one server
    import pretend_native  # noqa: F401
    import tensorflow as tf
    import torch

    from tests.move.pytrees import Model, State
    from tests.programs.cells import shell_with_magics


def space_with(**variables):
    shell = shell_with_magics()
    shell.push(variables)
    return shell.user_ns


def with_gpus():
    """Return a context in which JAX and TensorFlow have GPUs."""
    known = {"jax": "tests.park.on_gpus:JAX", "tensorflow": "tests.park.on_gpus:TENSORFLOW"}
    return installed(Path(tempfile.mkdtemp()), known)


@gives(
    [
        ["ndarray", "ndarray", True, 2, "ndarray"],
        ["x  the CPU, parked from cuda:2: 48 bytes"],
        [2, 2, True, 8, [1.0, 7.0], True, 0],
        "ndarray",
    ]
)
def test_cupy_arrays_become_numpy_arrays_and_come_back_as_views_of_one_block():
    with cupy.cuda.Device(2):
        x = cupy.ones(6)
    own = np.ones(2)
    space = space_with(x=x, part=x[1:3], pair=(x,), own=own)
    del x
    park()
    x, part = space["x"], space["part"]
    found = [
        [type(x).__name__, type(part).__name__, part.base is x.base, len(part), type(space["own"]).__name__]
    ]
    part[1] = 7.0  # which `x` shows
    found.append(where_lines(shell_with_magics(), ["x"]))
    del x, part
    unpark()
    x, part = space["x"], space["part"]
    is_view = part.data.mem is x.data.mem
    back = [x.device.id, part.device.id, is_view, part.data.ptr - x.data.ptr, cupy.asnumpy(part).tolist()]
    found.append([*back, space["pair"][0] is x, int(space["own"] is not own)])
    return [*found, type(space["own"]).__name__]


@gives(
    [
        ["{CpuDevice(id=0)}", "{CpuDevice(id=0)}", True, True],
        [True, "cuda:0"],
        ["{CpuDevice(id=2)}", "{CpuDevice(id=3)}", True, True, "m", "{CpuDevice(id=0)}", [0.0, 1.0, 2.0]],
    ]
)
def test_jax_arrays():
    """Also in pytrees, but for those that are sharded over several GPUs, and for those on the CPU."""
    with with_gpus():
        devices = jax.devices()
        x, y = jax.device_put(jnp.arange(3.0), devices[2]), jax.device_put(jax.random.key(0), devices[3])
        mesh = jax.sharding.Mesh(devices[1:3], ("d",))
        over = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
        space = space_with(
            tree={"x": x, "state": State(x, {"w": [y]})},
            model=Model(x, "m"),
            split=jax.device_put(jnp.ones(4), over),
            here=jnp.ones(2),
        )
        del x, y

        def same():
            return [
                space["tree"]["state"].count is space["tree"]["x"],
                space["model"].w is space["tree"]["x"],
            ]

        text = park().text
        tree = space["tree"]
        found = [[str(tree["x"].devices()), str(tree["state"].mean["w"][0].devices()), *same()]]
        found.append(
            [len(space["split"].devices()) == 2, "cuda:0" if "Still held by split" in text else text]
        )
        del tree
        unpark()
        tree = space["tree"]
        back = [str(tree["x"].devices()), str(tree["state"].mean["w"][0].devices()), *same()]
        return [*found, [*back, space["model"].name, str(space["here"].devices()), tree["x"].tolist()]]


@gives(
    [
        ["CPU:0", "CPU:2", "CPU:0", "CPU:1", True],
        ["CPU:1", "CPU:2", "CPU:3", "CPU:1", "pretend:1"],
        "box stays on the GPU (4 bytes): TensorFlow cannot move a tf.Variable: create it again in a cell with %%on_gpu, "
        "and assign to it.",
    ]
)
def test_tensors_of_tensorflow_are_parked_and_its_variables_are_named():
    with with_gpus():
        with tf.device("/CPU:1"):
            x = tf.ones(2)
        with tf.device("/CPU:2"):
            v = tf.Variable([1.0])
        with tf.device("/CPU:3"):
            rows = tf.ragged.constant([[1], [2, 3]])
            rows = tf.RaggedTensor.from_row_splits(tf.identity(rows.values), tf.identity(rows.row_splits))
        t = torch.ones(2, device="pretend:1")
        space = space_with(x=x, box=[v, x], rows=rows, t=t)
        shell_with_magics().push({"v": v})
        del x, t, rows
        text = park().text

        def where():
            return [
                one.device[-5:] for one in (space["x"], space["v"], space["rows"].values, space["box"][1])
            ]

        found = [[*where()[:3], "CPU:1", space["x"].device == space["box"][1].device]]
        unpark()
        found.append([*where(), str(space["t"].device)])
        lines = [line for line in text.splitlines() if line.startswith("box ")]
        return [*found, lines[-1]]
