"""`gpu_magic.devices_of`: where real frameworks' variables live; each test in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.placement.test_on_gpu import JAX, TF, TORCH, run  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from tests.placement.test_on_gpu import Run


def test_pytorch(run: Run) -> None:  # noqa: F811
    assert run(
        TORCH,
        """
        from gpu_magic import devices_of
        x = torch.ones(10, device="pretend:1")
        print(dict(devices_of(x)), dict(devices_of(x[:2], x.view(5, 2))), devices_of([x, {"a": (x,)}]))
        model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Linear(10, 10)).to("pretend:2")
        model[1].weight = model[0].weight  # tied
        model.register_buffer("mean", torch.ones(3))
        print(dict(devices_of(model)))
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(1, 10, device="pretend:2")).sum().backward()
        optimizer.step()
        print(devices_of(optimizer)["pretend:2"])
        print(dict(devices_of(torch.eye(4).to_sparse(), torch.ones(2, device="meta"))))
        print(devices_of(3, "x", None, object()), dict(devices_of(torch.nn.Linear)))
        loop = [x]; loop.append(loop)
        print(dict(devices_of(loop)))

        class Trainer:
            def __init__(self):
                self.model, self.name = model, "trainer"
        print(sorted(devices_of(Trainer())))
        lazy = torch.nn.LazyLinear(3)
        print(sum(devices_of(lazy).values()))
        """,
    ) == [
        "{'pretend:1': 40} {'pretend:1': 40} pretend:1: 40 bytes",
        "{'cpu': 12, 'pretend:2': 480}",
        str(480 * 4),  # with the gradients
        "{'cpu': 80, 'meta': 8}",
        "No arrays. {}",
        "{'pretend:1': 40}",
        "['cpu', 'pretend:2']",
        "0",
    ]


def test_tensorflow_and_keras(run: Run) -> None:  # noqa: F811
    assert run(
        TF,
        """
        import keras
        from gpu_magic import devices_of
        with on_gpu("cpu:2"):
            x = tf.ones([10])
            v = tf.Variable(tf.ones([5], tf.float64))
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        print(dict(devices_of(x)), dict(devices_of(v)), dict(devices_of(model)))
        with on_gpu("cpu:0,cpu:1", mirror=True):
            m = tf.Variable(tf.ones([4]))
        print(dict(devices_of(m)))
        print(dict(devices_of(tf.sparse.from_dense([[0, 1.0]]), tf.ragged.constant([[1], [2, 3]]))))

        class Mine(tf.Module):
            def __init__(self):
                self.w = tf.Variable([1.0])
        print(dict(devices_of(Mine())))
        """,
    ) == [
        "{'cpu:2': 40} {'cpu:2': 40} {'cpu:2': 40}",
        "{'cpu': 16, 'cpu:1': 16}",
        "{'cpu': 72}",
        "{'cpu': 4}",
    ]


def test_jax_and_numpy(run: Run) -> None:  # noqa: F811
    assert run(
        JAX,
        """
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        from gpu_magic import devices_of
        mesh = Mesh(jax.devices()[:2], "x")
        split = jax.device_put(jnp.ones(8), NamedSharding(mesh, P("x")))
        same = jax.device_put(jnp.ones(8), NamedSharding(mesh, P()))
        print(dict(devices_of(split)), dict(devices_of(same)))
        print(dict(devices_of({"w": [jnp.ones(2)]}, jax.random.key(0))))
        jax.jit(lambda x: print(devices_of(x)) or x)(jnp.ones(1))
        gone = jnp.ones(3); gone.delete()
        print(dict(devices_of(gone)))

        @jax.tree_util.register_pytree_node_class
        class Module:
            def __init__(self, w): self.w = w
            def tree_flatten(self): return (self.w,), None
            @classmethod
            def tree_unflatten(cls, _, children): return cls(*children)
        Module.__module__ = "elsewhere"
        print(dict(devices_of(Module(jnp.ones(4)))))
        a = np.ones(100)
        print(dict(devices_of(a[:3], a)), devices_of(np.ones((1024, 1024)), np.ones(1024)))
        """,
    ) == [
        "{'cpu': 16, 'cpu:1': 16} {'cpu': 32, 'cpu:1': 32}",
        "{'cpu': 16}",
        "No arrays.",
        "{}",
        "{'cpu': 16}",
        "{'cpu': 800} the CPU: 8.0 MiB in 2 arrays",
    ]


def test_cupy(run: Run) -> None:  # noqa: F811
    assert run(
        "import cupy\n",
        """
        from gpu_magic import devices_of
        with cupy.cuda.Device(3):
            x = cupy.ones(10)
        print(dict(devices_of(x, x[:2])), devices_of(x))
        """,
    ) == ["{'cuda:3': 80} cuda:3: 80 bytes"]


def test_what_shares_memory_across_frameworks_is_counted_once(run: Run) -> None:  # noqa: F811
    assert run(
        TORCH + JAX,
        """
        import numpy as np
        from gpu_magic import devices_of
        a = np.ones(1000)
        print(dict(devices_of(a, torch.from_numpy(a), a[10:20])), dict(devices_of(torch.from_numpy(a).numpy())))
        j = jnp.ones(1000)
        print(dict(devices_of(j, np.asarray(j))))
        print(dict(devices_of(np.lib.stride_tricks.as_strided(np.ones(1), (10**6,), (0,)))))
        """,
    ) == ["{'cpu': 8000} {'cpu': 8000}", "{'cpu': 4000}", "{'cpu': 8}"]


def test_containers_of_all_kinds_are_looked_into(run: Run) -> None:  # noqa: F811
    assert run(
        TORCH,
        """
        import collections, dataclasses, functools, types
        import numpy as np
        from gpu_magic import devices_of
        from torch.utils.data import DataLoader, TensorDataset
        x = torch.ones(10, device="pretend:1")

        @dataclasses.dataclass
        class Batch:
            x: object
        class Slotted:
            __slots__ = ("__x", "empty")
            def __init__(self):
                self.__x = x
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.plain = [x]
        objects = np.empty(2, object)
        objects[0] = x
        things = [collections.deque([x]), types.SimpleNamespace(x=x), collections.UserList([x]), {1: x}.values(),
                  collections.UserDict({1: x}), functools.partial(print, x), Batch(x), Slotted(), Net(),
                  objects, TensorDataset(x), DataLoader(TensorDataset(x)), (x, {x})]
        print([devices_of(thing).get("pretend:1") for thing in things] == [40] * len(things))
        """,
    ) == ["True"]


def test_odd_objects_are_passed_over(run: Run) -> None:  # noqa: F811
    assert run(
        TF + "import torch, jax\n",
        """
        import unittest.mock, shelve, tempfile, dataclasses
        from gpu_magic import devices_of
        class Raising:
            def __getattribute__(self, name):
                raise RuntimeError(name)
        class Len(list):
            def __len__(self): raise RuntimeError
            def __iter__(self): raise RuntimeError
        class Dict(dict):
            def values(self): raise RuntimeError
        @dataclasses.dataclass
        class Data:
            x: int
            def __getattribute__(self, name): raise RuntimeError(name)
        class Net(torch.nn.Module):
            def modules(self): raise RuntimeError
        closed = shelve.open(tempfile.mktemp()); closed.close()
        odd = [Raising(), Len([1]), Dict(a=1), Data(1), Net(), closed, unittest.mock.MagicMock(spec=torch.Tensor),
               unittest.mock.MagicMock(spec=jax.Array), unittest.mock.MagicMock(spec=tf.Tensor)]
        print(dict(devices_of(odd, torch.ones(1))))
        """,
    ) == ["{'cpu': 4}"]
