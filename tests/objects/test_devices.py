"""`gpu_magic.devices_of` with arrays of every framework, and with what holds them."""

from __future__ import annotations

import ast
import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime as dt
import functools
import multiprocessing.pool
import queue
import shelve
import sys
import tempfile
import threading
import unittest.mock
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpu_magic import devices_of, on_gpu
from gpu_magic.objects.walk import Walker
from gpu_magic.objects.where import holdings_of
from tests.programs.runner import ELSEWHERE, gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

if ELSEWHERE:
    import cupy
    import jax
    import jax.numpy as jnp
    import keras
    import tensorflow as tf
    import torch
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P
    from torch.utils.data import DataLoader, TensorDataset

MODEL = 4 * (10 * 10 + 10 + 10)  # bytes: two layers with one weight

if ELSEWHERE:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    x = torch.ones(10, device="pretend:1")


class Trainer:
    def __init__(self, model):
        self.model, self.name = model, "trainer"


@dataclasses.dataclass
class Batch:
    x: object


class Slotted:
    __slots__ = ("__x", "empty")

    def __init__(self):
        self.__x = x


if ELSEWHERE:

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = [x]

        def modules(self):
            raise RuntimeError

    class WithoutStorage(torch.Tensor):
        def untyped_storage(self):
            raise TypeError

    class Variables(tf.Module):
        def __init__(self):
            self.w = tf.Variable([1.0])


class Pytree:
    def __init__(self, w):
        self.w = w


Pytree.__module__ = "elsewhere"

if ELSEWHERE:
    jax.tree_util.register_pytree_node(
        Pytree, lambda tree: ((tree.w,), None), lambda _, inner: Pytree(*inner)
    )


@gives(
    {
        "model": {"cpu": 12, "pretend:2": MODEL},
        "trainer": {"cpu": 12, "pretend:2": MODEL},
        "optimizer": {"cpu": 12, "pretend:2": 4 * MODEL},
        "views": {"pretend:1": 40},
        "sparse and meta": {"cpu": 80, "meta": 8},
        "a class": {},
        "lazy": 0,
        "shown": ["pretend:1: 40 bytes", "No arrays."],
    }
)
def test_of_torch():
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Linear(10, 10)).to("pretend:2")
    model[1].weight = model[0].weight  # tied
    model.register_buffer("mean", torch.ones(3))
    found = {"model": devices_of(model), "trainer": devices_of(Trainer(model))}
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 10, device="pretend:2")).sum().backward()
    optimizer.step()
    loop = [x]
    loop.append(loop)
    return found | {
        "optimizer": devices_of(optimizer),
        "views": devices_of(x[:2], x.view(5, 2), loop),
        "sparse and meta": devices_of(torch.eye(4).to_sparse(), torch.ones(2, device="meta")),
        "a class": devices_of(torch.nn.Linear),
        "lazy": sum(devices_of(torch.nn.LazyLinear(3)).values()),
        "shown": [repr(devices_of([x, {"a": (x,)}])), repr(devices_of(3, "x", None, object()))],
    }


@gives(dict.fromkeys(("slots", "module", "dataset", "data loader"), 40))
def test_containers():
    """Those that no move builds: `moving_structures` has the others."""
    things = {
        "slots": Slotted(),
        "module": Net(),
        "dataset": TensorDataset(x),
        "data loader": DataLoader(TensorDataset(x)),
    }
    return {name: devices_of(thing).get("pretend:1") for name, thing in things.items()}


@gives(
    {
        "TensorFlow": [{"cpu:2": 40}, {"cpu:2": 40}],
        "Keras": {"cpu:2": 40},
        "mirrored": {"cpu": 16, "cpu:1": 16},
        "composite": {"cpu": 72},
        "tf.Module": {"cpu": 4},
        "sharded": [{"cpu": 16, "cpu:1": 16}, {"cpu": 32, "cpu:1": 32}],
        "tree": {"cpu": 16},
        "pytree": {"cpu": 16},
        "traced and deleted": ["No arrays.", {}],
        "CuPy": [{"cuda:3": 80}, "cuda:3: 80 bytes"],
        "NumPy": [{"cpu": 8000}, "the CPU: 8.0 MiB in 2 arrays"],
        "strided": {"cpu": 8},
        "shared with PyTorch": [{"cpu": 8000}, {"cpu": 8000}],
        "shared with JAX": {"cpu": 4000},
    }
)
def test_of_others():
    with on_gpu("cpu:2"):
        placed = tf.ones([10]), tf.Variable(tf.ones([5], tf.float64))
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with on_gpu("cpu:0,cpu:1", mirror=True):
        mirrored = tf.Variable(tf.ones([4]))
    composite = tf.sparse.from_dense([[0, 1.0]]), tf.ragged.constant([[1], [2, 3]])
    mesh, traced, gone = Mesh(jax.devices()[:2], "x"), [], jnp.ones(3)
    split, same = (jax.device_put(jnp.ones(8), NamedSharding(mesh, one)) for one in (P("x"), P()))
    jax.jit(lambda x: traced.append(repr(devices_of(x))) or x)(jnp.ones(1))
    gone.delete()
    with cupy.cuda.Device(3):
        of_cupy = cupy.ones(10)
    a, j = np.ones(1000), jnp.ones(1000)
    return {
        "TensorFlow": list(map(devices_of, placed)),
        "Keras": devices_of(model),
        "mirrored": devices_of(mirrored),
        "composite": devices_of(*composite),
        "tf.Module": devices_of(Variables()),
        "sharded": [devices_of(split), devices_of(same)],
        "tree": devices_of({"w": [jnp.ones(2)]}, jax.random.key(0)),
        "pytree": devices_of(Pytree(jnp.ones(4))),
        "traced and deleted": [*traced, devices_of(gone)],
        "CuPy": [devices_of(of_cupy, of_cupy[:2]), repr(devices_of(of_cupy))],
        "NumPy": [devices_of(a[:3], a), repr(devices_of(np.ones((1024, 1024)), np.ones(1024)))],
        "strided": devices_of(np.lib.stride_tricks.as_strided(np.ones(1), (10**6,), (0,))),
        "shared with PyTorch": [
            devices_of(a, torch.from_numpy(a), a[9:]),
            devices_of(torch.from_numpy(a).numpy()),
        ],
        "shared with JAX": devices_of(j, np.asarray(j)),
    }


def failing(size, **attributes):
    local = [torch.ones(size)]
    error = ValueError(len(local), torch.ones(1))
    vars(error).update(attributes)
    raise error


def wrapping():
    try:
        failing(3)
    except ValueError as error:
        raise RuntimeError("second") from error


def caught(call, *args, **options):
    try:
        return call(*args, **options)
    except Exception as error:  # noqa: BLE001 - that is what is looked at
        return error


@gives(
    {
        "of a function": {"cpu": 8 + 4},
        "that led to it": {"cpu": 12 + 4},
        "with an attribute": {"cpu": 16 + 4 + 8},
        "in a group": {"cpu": 28 + 4},
        "of a cell": {},
    }
)
def test_saved_errors():
    """They keep the local variables of functions that raised them, and not a cell's, which are the user's."""
    errors = {
        "of a function": caught(failing, 2),
        "that led to it": caught(wrapping),
        "with an attribute": caught(failing, 4, more=torch.ones(2)),
        "in a group": ExceptionGroup("several", [caught(failing, 7)]),
    }
    space = vars(sys.modules["__main__"])
    code = "try:\n    1 / 0\nexcept Exception as error:\n    saved = error"
    exec(compile(code, "<cell>", "exec"), space)
    return {name: devices_of(error) for name, error in (errors | {"of a cell": space["saved"]}).items()}


async def failing_later(size):
    await asyncio.sleep(0)
    failing(size)


async def waiting(size):
    more = torch.ones(size)
    await asyncio.sleep(100)
    return more


async def outer(size):
    await waiting(size)


async def tasks_seen():
    """The tasks of a notebook: one that has failed, one that waits two levels below, one that is cancelled."""
    made = [asyncio.ensure_future(one) for one in (failing_later(2), outer(3), waiting(4))]
    await asyncio.sleep(0.01)
    made[2].cancel()
    await asyncio.sleep(0.01)
    made += [asyncio.gather(failing_later(7), return_exceptions=True), asyncio.Queue()]
    made[4].put_nowait(torch.ones(8))
    await asyncio.sleep(0.01)
    seen = [*map(devices_of, made)]
    made[1].cancel()
    return [*seen, isinstance(made[0].exception(), ValueError)]


@gives([{"cpu": 8 + 4}, {"cpu": 12}, {"cpu": 16}, {"cpu": 28 + 4}, {"cpu": 32}, True, {}])
def test_tasks():
    """The coroutine of a cell does not keep the variables, which are the user's."""
    cell = compile("await None", "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    space = vars(sys.modules["__main__"])
    space["mine"] = torch.ones(2)
    return [*asyncio.run(tasks_seen()), devices_of(coroutine := eval(cell, space)), coroutine.close()][:-1]


@functools.lru_cache
def remembered(size):
    return torch.ones(size)


async def streaming(size):
    batch = torch.ones(size)
    yield len(batch)


@gives(
    {
        "a failed future": {"cpu": 8 + 4},
        "a result": {"cpu": 12},
        "a result of a pool": {"cpu": 16},
        "a queue": {"cpu": 20},
        "a simple queue": {"cpu": 24},
        "a cache": {"cpu": 28},
        "an asynchronous generator": {"cpu": 32},
        "of a thread": {"cpu": 36},
        "empty": {},
    }
)
def test_what_holds_a_value_of_another_thread_or_call():
    with concurrent.futures.ThreadPoolExecutor(1) as pool, multiprocessing.pool.ThreadPool(1) as other:
        failed, made = pool.submit(failing, 2), pool.submit(torch.ones, 3)
        result = other.apply_async(torch.ones, (4,))
        result.wait()
    queues = queue.Queue(), queue.SimpleQueue()
    for number, one in enumerate(queues):
        one.put(torch.ones(5 + number))
    remembered(7)
    stream = streaming(8)
    with contextlib.suppress(StopIteration):
        anext(stream).send(None)
    local = threading.local()
    local.x = torch.ones(9)
    held = [failed, made, result, *queues, remembered, stream, local]
    empty = [queue.Queue(), asyncio.Queue(), concurrent.futures.Future(), threading.local()]
    names = "a failed future, a result, a result of a pool, a queue, a simple queue, a cache, "
    names += "an asynchronous generator, of a thread, empty"
    return dict(zip(names.split(", "), map(devices_of, [*held, empty]), strict=True))


TABLES = (
    lambda: [(i, i + 0.5, str(i)) for i in range(1000)],
    lambda: [{"id": i, "tags": ["a", "b"]} for i in range(1000)],
    lambda: [dt.date(2000, 1, 1) + dt.timedelta(i) for i in range(1000)],
    lambda: {(i, i): {i, i + 1} for i in range(1000)},
    lambda: [[[0] * 100] * 100] * 100,
    lambda: torch.nn.Linear(2, 2),  # with its two parameters, and without its hooks: there are none
)


@gives([[*[1] * 5, 3], [1] * 9])
def test_plain_values():
    """Return how many objects are visited in tables of plain values, and how many arrays are found among such."""
    visited, found, cycle = [], [], [(1, 2)]
    for make in TABLES:
        walker = Walker()
        collections.deque(walker.walk([make()]), maxlen=0)
        visited.append(len(walker.visited))
    for depth in range(8):
        value = x
        for _ in range(depth):
            value = [(1, 2), value, {"a": [3]}]
        found.append(len(holdings_of([[*((i, [i]) for i in range(100)), value]])))
    cycle += [cycle, [cycle, {"x": x}]]
    return [visited, [*found, len(holdings_of([cycle]))]]


class Raising:
    def __getattribute__(self, name):
        raise RuntimeError(name)


class RaisingBatch(Raising, Batch):
    pass


class Len(list):
    def __len__(self):
        raise RuntimeError

    def __iter__(self):
        raise RuntimeError


class Dict(dict):
    def values(self):
        raise RuntimeError


def odd_objects():
    """Return where objects are that raise when they are asked, each beside a tensor, and what is said of them."""
    with tempfile.TemporaryDirectory() as folder, shelve.open(str(Path(folder) / "shelf")) as shelf:
        pass
    odd = [Raising(), RaisingBatch(1), Len([1]), Dict(a=1), shelf]  # the last is closed
    odd += [unittest.mock.MagicMock(spec=kind) for kind in (torch.Tensor, jax.Array, tf.Tensor)]
    odd.append(torch.ones(1).as_subclass(WithoutStorage))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = [devices_of([one, torch.ones(1)]) for one in odd]
        found.append(devices_of(odd, torch.ones(1)))
    return [found, [str(one.message) for one in said]]


def test_odd_objects_are_passed_over_and_each_type_is_warned_of_once(run: Runner) -> None:
    found, said = run(odd_objects)
    assert found == [{"cpu": 4}] * 10
    assert len(said) == len(set(said))
    for kind, error in (("Raising", "RuntimeError"), ("WithoutStorage", "TypeError")):
        assert any(f"{kind}'> cannot be searched ({error})" in one for one in said)


@gives([{"cpu": 12, "/job:worker/replica:0/task:0/device:CPU:0": 8}])
def test_tensors_of_another_worker():
    server = tf.distribute.Server({"worker": ["localhost:0"]}, "worker", 0)
    tf.config.experimental_connect_to_host(server.target.partition("//")[2])
    with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
        there = tf.ones(2)
    return [devices_of(tf.ones(3), there)]
