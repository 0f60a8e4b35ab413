"""A process that holds memory of a GPU, as a kernel does: `python -m tests.gpu.programs.holder LIBRARY BYTES`.

It answers questions: each is a line of its standard input, and each answer is a line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Holder"]

STARTING, ANSWERING = 60.0, 30.0  # seconds
_PR_SET_PTRACER, _PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)  # prctl.h of Linux


class Holder:
    """The process, from outside: a context manager, at whose end it is killed.

    Parameters
    ----------
    library
        The library that holds the memory: `driver`, `torch`, `jax` or `cupy`.
    nbytes
        The bytes that it holds.

    """

    def __init__(self, library: str, nbytes: int) -> None:
        command = [sys.executable, "-m", "tests.gpu.programs.holder", library, str(nbytes)]
        # Unbuffered, because `select` knows only of what the pipe still holds.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def __enter__(self) -> Self:
        started = self.answer(STARTING)
        if started != {"pid": self.process.pid}:
            self.__exit__()
            why = "does not start" if started is None else started.get("failed", "cannot be used")
            raise RuntimeError(f"the process that holds the memory: {why}")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, question: str, seconds: float = ANSWERING) -> dict[str, Any] | None:
        """Return the answer. None if there is none in time: then `answer` returns it later."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{question}\n".encode())
        return self.answer(seconds)

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """Return the answer to the last question. None if it does not come in time."""
        output = self.process.stdout
        assert output is not None
        if not select.select([output], [], [], seconds)[0]:
            return None
        line = output.readline()
        if not line:
            return {"failed": f"the process ended with status {self.process.wait()}"}
        found: dict[str, Any] = json.loads(line)
        return found

    def interrupt(self) -> None:
        """Send the signal that Jupyter sends to a kernel whose cell is interrupted."""
        self.process.send_signal(signal.SIGINT)


def main(library: str, nbytes: str) -> None:
    """Hold the memory, and answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries can print
    try:
        is_same, use = _MAKERS[library](int(nbytes))
        found: dict[str, Any] = {"pid": os.getpid()}
    except Exception as error:  # noqa: BLE001 - it is the answer
        found = {"failed": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    print(json.dumps(found), file=answers, flush=True)
    questions: dict[str, Callable[..., Any]] = {
        "same": is_same,
        "use": use,
        "count": _count,
        "traced": _let_others_trace,
        "be checkpointed": _be_checkpointed,
    }
    for question in sys.stdin:
        began = time.monotonic()
        try:
            found = {"value": questions[question.strip()]()}
        except KeyboardInterrupt:
            found = {"failed": "KeyboardInterrupt"}
        except Exception as error:  # noqa: BLE001 - likewise
            found = {"failed": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
        found["seconds"] = time.monotonic() - began
        print(json.dumps(found), file=answers, flush=True)


def _hold_by_driver(nbytes: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    from tests.gpu.programs.cuda import Memory

    memory = Memory(nbytes)
    return memory.is_same, memory.use


def _hold_by_torch(nbytes: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Hold a model and its optimizer, which has made a step, and an array."""
    import torch

    from tests.gpu.programs.common import accelerator

    torch.manual_seed(0)
    kind = accelerator()
    array = torch.arange(nbytes // 4, dtype=torch.float32, device=kind)
    model = torch.nn.Linear(256, 256).to(kind)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(32, 256).to(kind)

    def computed() -> list[float]:
        return [array.sum().item(), model(x).sum().item(), (x @ x.T).sum().item()]

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        torch.accelerator.synchronize()

    step()
    before = computed()
    return (lambda: computed() == before), step


def _hold_by_jax(nbytes: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import jax

    array = jax.numpy.arange(nbytes // 4, dtype="float32")
    doubled = jax.jit(lambda one: (one * 2).sum())
    before = float(doubled(array))
    return (lambda: float(doubled(array)) == before), (lambda: float(jax.numpy.ones(1 << 20).sum()))


def _hold_by_cupy(nbytes: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import cupy

    array = cupy.arange(nbytes // 4, dtype="float32")
    before = float((array * 2).sum())
    return (lambda: float((array * 2).sum()) == before), (lambda: float(cupy.ones(1 << 20).sum()))


_MAKERS = {"driver": _hold_by_driver, "torch": _hold_by_torch, "jax": _hold_by_jax, "cupy": _hold_by_cupy}


def _count() -> int:
    """Return the driver's answer to gpu_magic's question whether CUDA has started."""
    from tests.gpu.programs.cuda import Cuda

    return Cuda().count_answer()


def _let_others_trace() -> int:
    """Let any process of this user trace this one, where Yama (Linux) restricts it to ancestors."""
    return int(ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0))


def _be_checkpointed() -> Any:
    """Have a child checkpoint this process, and restore it."""
    command = [sys.executable, "-m", "tests.gpu.programs.checkpoint", "this", str(os.getpid())]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=ANSWERING)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
