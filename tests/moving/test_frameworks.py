"""`gpu_magic.to_gpu` with JAX, TensorFlow, CuPy's stand-in and NumPy; what they say of where things are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.placement.test_on_gpu import JAX, TF, TORCH, run  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from tests.placement.test_on_gpu import Run

MOVE = "from gpu_magic import to_gpu, to_cpu\nimport numpy as np\n"


def test_jax_arrays_and_pytrees(run: Run) -> None:  # noqa: F811
    assert run(
        JAX + MOVE,
        """
        import dataclasses, functools
        from typing import NamedTuple
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
            def __init__(self, x): self.x = x
            def tree_flatten(self): return (self.x,), None
            @classmethod
            def tree_unflatten(cls, _, children): return cls(*children)
        x, key = jnp.arange(3.0), jax.random.key(0)
        tree = {"x": x, "state": State(x, {"w": [x]}), "model": Model(x, "m"), "custom": Custom(x), "key": key}
        mean = tree["state"].mean
        moved = to_gpu(tree, "cpu:2")
        new = moved["x"]
        print(moved["state"].mean is mean)
        print(moved is tree, new.devices(), x.devices(), new.weak_type == x.weak_type)
        print(moved["state"].count is new, moved["state"].mean["w"][0] is new, moved["model"].w is new,
              moved["model"].name, type(moved["custom"]).__name__, moved["custom"].x is new, key.devices(),
              moved["key"].devices())
        print(jax.tree_util.tree_structure(moved) == jax.tree_util.tree_structure(tree))
        gone = jnp.ones(3)
        gone.delete()
        print(error(to_gpu, gone, "cpu:1"))
        print(error(to_gpu, x, 0))
        print(to_gpu(np.ones(2, np.float32), "cpu:1", numpy="jax").devices())
        """,
    ) == [
        "True",
        "True {CpuDevice(id=2)} {CpuDevice(id=0)} True",
        "True True True m Custom True {CpuDevice(id=0)} {CpuDevice(id=2)}",
        "True",
        "A JAX array of shape (3,) was donated, and deleted by that: it has no data to move.",
        "cuda:0 can't be used: JAX 0.10.2 has no GPU here.",
        "{CpuDevice(id=1)}",
    ]


def test_tensorflow_tensors(run: Run) -> None:  # noqa: F811
    assert run(
        TF + MOVE,
        """
        x = tf.constant([1.0, 2.0])
        ragged, sparse = tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[0, 1]])
        moved = to_gpu({"x": x, "again": [x], "ragged": ragged, "sparse": sparse, "text": tf.constant("a")}, "cpu:3")
        print(moved["x"].device[-5:], moved["again"][0] is moved["x"], x.device[-5:], moved["text"].device[-5:])
        print(type(moved["ragged"]).__name__, moved["ragged"].values.device[-5:], moved["ragged"].to_list())
        print(type(moved["sparse"]).__name__, moved["sparse"].values.device[-5:])
        variable = tf.Variable(x)
        print(error(to_gpu, [x, variable], "cpu:1"))
        import keras
        layer = keras.layers.Dense(2)
        print(error(to_gpu, layer, "cpu:1"))
        print(error(to_gpu, x, 1))
        """,
    ) == [
        "CPU:3 True CPU:0 CPU:0",
        "RaggedTensor CPU:3 [[1], [2, 3]]",
        "SparseTensor CPU:3",
        "TensorFlow can't move a tf.Variable: make it anew in a cell with %%on_gpu, and assign to it.",
        "Keras can't move what it has made (Dense): make it anew in a cell with %%on_gpu, then "
        "new.set_weights(old.get_weights()).",
        "cuda:1 can't be used: TensorFlow 2.21.0 is built without CUDA.",
    ]


def test_keras_on_pytorch_is_refused_too(run: Run) -> None:  # noqa: F811
    """Its layers are PyTorch's modules, but go back to Keras' own device when they are used."""
    (said,) = run(
        TORCH + MOVE,
        """
        import keras
        print(error(to_gpu, {"a": keras.layers.Dense(2)}, 1))
        """,
        KERAS_BACKEND="torch",
    )
    assert said.startswith("Keras can't move what it has made (Dense): ")


def test_cupy_arrays_keep_their_views(run: Run) -> None:  # noqa: F811
    assert run(
        "import cupy\n" + TORCH + MOVE,
        """
        x = cupy.ones(6)
        part = x[2:4]
        moved = to_gpu((x, part, [x]), 2)
        print(moved[0].device.id, moved[1].device.id, moved[2][0] is moved[0])
        print(moved[1].data.mem is moved[0].data.mem, moved[1].data.ptr - moved[0].data.ptr, cupy.asnumpy(moved[1]))
        print(x.device.id, type(to_cpu(moved[1])).__name__, to_gpu(np.ones(2), 1, numpy="cupy").device.id)
        """,
    ) == ["2 2 True", "True 16 [1. 1.]", "0 ndarray 1"]


def test_numpy_stays_unless_it_is_asked_for(run: Run) -> None:  # noqa: F811
    assert run(
        TORCH + MOVE,
        """
        a = np.arange(6.0).reshape(2, 3)
        batch = {"x": a, "row": a[1], "t": torch.ones(2), "names": np.array(["a"]), "nested": np.empty(2, object)}
        batch["nested"][0] = torch.ones(1)
        to_gpu(batch, 0)
        print(batch["x"] is a, batch["t"].device, batch["nested"][0].device)
        print(error(to_gpu, a, 0))
        to_gpu(batch, 0, numpy="torch")
        print(batch["x"].device, batch["row"].tolist(), type(batch["names"]).__name__)
        print(to_cpu([torch.ones(1), a], numpy="torch")[1].device, error(to_gpu, a, 0, numpy="pandas"))
        print(error(to_gpu, a, 0, numpy="jax"))
        """,
    ) == [
        "True pretend:0 pretend:0",
        "it is NumPy's, which knows no device: --numpy torch (or numpy='torch') makes it PyTorch's there; jax and cupy "
        "will do, too.",
        "pretend:0 [3.0, 4.0, 5.0] ndarray",
        "cpu NumPy's arrays can become those of torch or jax or cupy, and not of pandas.",
        "NumPy's arrays can't become JAX's before it is imported: import jax.",
    ]


def test_several_frameworks_in_one_object(run: Run) -> None:  # noqa: F811
    assert (
        run(
            TORCH + "import jax.numpy as jnp\nimport tensorflow as tf\n" + MOVE,
            """
        things = [torch.ones(2, device="pretend:1"), jnp.ones(2), tf.ones(2)]
        to_cpu(things)
        print(things[0].device, things[1].devices(), things[2].device[-5:])
        print(error(to_gpu, things, 0))  # none of it, though PyTorch could
        print(things[0].device)
        """,
        )[0]
        == "cpu {CpuDevice(id=0)} CPU:0"
    )
