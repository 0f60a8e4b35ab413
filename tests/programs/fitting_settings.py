"""What a followed step sets for the whole process, and random numbers that it draws."""

import array
import os
import random
import threading
from random import random as drawn

import numpy as np
import torch
import torch._dynamo
from torch import nn

import gpu_magic

model, x = nn.Linear(4, 4), torch.randn(2, 4)
dropping = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
own = {
    "numpy": np.random.default_rng(1),
    "legacy": np.random.RandomState(1),
    "python": random.Random(1),
    "torch": torch.Generator().manual_seed(1),
    "array": array.array("d", [1, 2]),
    "bytes": bytearray(b"12"),
}
os.environ["FITTING_CHANGED"] = "before"
os.environ["FITTING_REMOVED"] = "before"


def sets(x):
    found = x + 1
    os.environ["FITTING_CHANGED"] = "after"
    os.environ["FITTING_NEW"] = "after"
    os.environ.pop("FITTING_REMOVED", None)
    torch.autograd.set_detect_anomaly(True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("medium")
    torch.backends.cuda.enable_flash_sdp(False)
    torch.set_autocast_enabled("cpu", True)
    torch.set_grad_enabled(False)
    return found


def settings():
    return {
        "variables": {name: value for name, value in os.environ.items() if name.startswith("FITTING")},
        "process": {
            name: os.popen(f"printenv {name}").read().strip()
            for name in ("FITTING_NEW", "FITTING_CHANGED", "FITTING_REMOVED")
        },
        "anomaly": torch.is_anomaly_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn": [torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic],
        "device": str(torch.get_default_device()),
        "dtype": str(torch.get_default_dtype()),
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "attention": torch.backends.cuda.flash_sdp_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "gradients": torch.is_grad_enabled(),
    }


def set_by_a_step():
    torch.set_num_threads(2)
    before = settings()
    gpu_magic.fit(sets, x)
    after = settings()
    return [name for name in before if before[name] != after[name]]


def draws(x):
    own["numpy"].random()
    own["legacy"].rand()
    own["python"].random()
    torch.rand(2, generator=own["torch"].manual_seed(5))
    own["array"].append(3)
    own["bytes"].append(3)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    drawn() + random.random() + random.randint(1, 2) + np.random.rand() + np.random.randint(3)  # noqa: NPY002
    random.shuffle([1, 2])
    return model(x).sum().backward()


def states():
    return {
        "numpy": repr(own["numpy"].bit_generator.state),
        "legacy": repr(own["legacy"].get_state()),
        "python": own["python"].getstate(),
        "torch": own["torch"].get_state().tolist(),
        "array": own["array"].tolist(),
        "bytes": bytes(own["bytes"]),
        "of random": random.getstate(),
        "of numpy": repr(np.random.get_state()),  # noqa: NPY002
        "of torch": torch.get_rng_state().tolist(),
    }


def drawn_by_a_step():
    before = states()
    gpu_magic.fit(draws, x)
    gpu_magic.fit(dropping, x)
    after = states()
    return [name for name in before if before[name] != after[name]]


def drawn_by_a_library():
    """Draw in code that is not the user's: an installed package's."""
    namespace = {"random": random, "np": np, "__name__": "library", "__file__": np.__file__}
    code = compile("def f(): random.random(); np.random.rand()", np.__file__, "exec")
    exec(code, namespace)
    before = states()
    gpu_magic.fit(lambda x: (namespace["f"](), model(x))[1], x)
    after = states()
    return [name for name in before if before[name] != after[name]]


def drawn_by_another_thread():
    """Draw numbers in another thread during predictions: none comes twice."""
    numbers, ends, begun = [], threading.Event(), threading.Event()

    def draw():
        while not ends.is_set():
            numbers.append((random.random(), np.random.rand(), torch.rand(2, dtype=torch.float64)[0].item()))  # noqa: NPY002
            begun.set()

    thread = threading.Thread(target=draw)
    thread.start()
    begun.wait()
    try:
        for _ in range(20):
            gpu_magic.fit(draws, x)
    finally:
        ends.set()
        thread.join()
    return {
        "drawn": len(numbers),
        "twice": [len(numbers) - len({one[k] for one in numbers}) for k in range(3)],
    }
