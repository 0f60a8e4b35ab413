"""NVIDIA's own checkpoints: whether another process can free a kernel's GPU memory, and give it back.

gpu_magic does not use them. `%gpu_park` moves variables, and CUDA's context stays on the GPU. These measurements say
what a parking by checkpoints would have to reckon with. The functions: `cuCheckpointProcess…` in cuda.h (CUDA 12.8 and
newer), https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__CHECKPOINT.html.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu.claim import Claim, Need, NotTriedError, Seen, measurement
from tests.gpu.programs.cuda import CudaProcess, Step
from tests.gpu.programs.holder import ANSWERING, Holder

if TYPE_CHECKING:
    from collections.abc import Callable

WHERE = "park/park.py"
MIB, GIB = 1 << 20, 1 << 30
_ROOM_OF_HOST = 1.25  # times the bytes of the GPU, which go to the host's memory
_OTHER: Any = {"user": 65534, "group": 65534, "extra_groups": []}  # nobody
_WAIT = 1.5  # seconds in which a call that does not wait for a restore comes back
_STEPS = ("lock", "checkpoint", "restore", "unlock")


def taken(pid: int, between: Callable[[], object] = lambda: None) -> list[Step]:
    """Lock, checkpoint, restore and unlock a process. The steps end at the first that fails."""
    process, done = CudaProcess(pid), list[Step]()
    for name in _STEPS:
        done.append(process.do(name))
        if done[-1].error:
            break
        if name == "checkpoint":
            between()
    if done[-1].name == "checkpoint" and done[-1].error:
        process.do("unlock")
    return done


def _told(steps: list[Step]) -> str:
    return ", ".join(map(str, steps))


@measurement(
    "Whether the driver has `cuCheckpointProcess…`, and what Linux lets a user without root trace.",
    WHERE,
    "a driver",
)
def possible() -> Seen:
    import pynvml

    from tests.gpu.programs.common import alone, number_of

    number = number_of(alone())
    state = CudaProcess(os.getpid()).state()
    pynvml.nvmlInit()
    try:
        mode = pynvml.nvmlDeviceGetPersistenceMode(pynvml.nvmlDeviceGetHandleByIndex(number))
    except pynvml.NVMLError as error:
        mode = str(error)
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    allowed = scope.read_text(encoding="ascii").strip() if scope.exists() else "none"
    return Seen(
        True,
        f"the driver has them; this process is {state}; user {os.getuid()}, ptrace_scope {allowed}, "
        f"persistence mode {mode}",
    )


def around(library: str, nbytes: int) -> Seen:
    """Checkpoint and restore a process that holds memory with a library."""
    from gpu_magic.objects.host import free_host_bytes
    from tests.gpu.programs.common import alone, bytes_used, processes_on

    uuid, room = alone(), free_host_bytes()
    if room is not None and room < nbytes * _ROOM_OF_HOST:
        raise NotTriedError(f"the host has {room // GIB} GiB free, too few for {nbytes // GIB} GiB")
    CudaProcess(os.getpid())  # starts CUDA here, before the memory is looked at
    empty, between = bytes_used(uuid), list[Any]()
    with Holder(library, nbytes) as holder:
        pid, full = holder.process.pid, bytes_used(uuid)
        steps = taken(
            pid, lambda: between.extend([bytes_used(uuid), [one.pid for one in processes_on(uuid)]])
        )
        told, figures = [_told(steps)], {f"{step.name}, s": step.seconds for step in steps}
        if between:
            parked, listed = between
            back, stays = (full - parked) / MIB, (parked - empty) / MIB
            figures |= {"MiB held": (full - empty) / MIB, "MiB given back": back, "MiB that stay": stays}
            told.append(f"of {figures['MiB held']:.0f} MiB, {back:.0f} are given back and {stays:.0f} stay")
            told.append(f"meanwhile NVML {'lists' if pid in listed else 'does not list'} the process")
        if not steps[-1].error:
            same, used = holder.ask("same"), holder.ask("use")
            is_same = same is not None and same.get("value") is True
            works = used is not None and "failed" not in used
            told.append("afterwards the same numbers" if is_same else f"afterwards other numbers ({same})")
            told.append("more work succeeds" if works else f"more work fails ({used})")
            figures["MiB afterwards"] = (bytes_used(uuid) - empty) / MIB
    return Seen(True, "; ".join(told), figures)


def asked(who: str, is_traced: bool, is_root: bool) -> Seen:
    """Have another process checkpoint and restore one, as root or as another user."""
    from tests.gpu.programs.common import alone

    alone()
    if is_root and os.getuid() != 0:
        raise NotTriedError("this run is not root's")
    if is_root or os.getuid() != 0:
        return Seen(True, _told(_by(who, is_traced=is_traced)))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        # A copy, because this folder can be one that only root may read.
        shutil.copytree(Path(__file__).parent.parent, Path(folder, "tests", "gpu"))
        Path(folder, "tests", "__init__.py").touch()
        try:
            done = subprocess.run(
                [
                    _python_for_others(),
                    "-m",
                    "tests.gpu.programs.checkpoint",
                    who,
                    "traced" if is_traced else "",
                ],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": folder, "HOME": folder, "PYTHONDONTWRITEBYTECODE": "1"},
                check=True,
                capture_output=True,
                text=True,
                timeout=ANSWERING * 2,
                **_OTHER,
            )
        except subprocess.CalledProcessError as error:
            why = (error.stderr.strip().splitlines() or ["it prints nothing"])[-1]
            raise NotTriedError(f"a process of another user fails here: {why[:200]}") from None
    return Seen(True, _told([Step(*step) for step in json.loads(done.stdout)]))


def _python_for_others() -> str:
    """Return a Python that another user can run. It needs no packages."""
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"):
        with suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(
                [python, "-c", "import ctypes, typing; typing.Self"], check=True, cwd="/", **_OTHER
            )
            return python
    raise NotTriedError("no Python (3.11 or newer) here can be run by another user")


def _by(who: str, *, is_traced: bool) -> list[Step]:
    """Have the parent, a child or another child of the parent checkpoint a process."""
    with Holder("driver", 64 * MIB) as holder:
        if is_traced and (holder.ask("traced") or {}).get("value") != 0:
            raise NotTriedError("this Linux has no Yama, so it has no prctl(PR_SET_PTRACER)")
        if who == "parent":
            return taken(holder.process.pid)
        if who == "child":
            found = holder.ask("be checkpointed") or {"failed": "no answer"}
            if "failed" in found:
                raise RuntimeError(f"its child: {found['failed']}")
            return [Step(*step) for step in found["value"]]
        command = [sys.executable, "-m", "tests.gpu.programs.checkpoint", "this", str(holder.process.pid)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=ANSWERING)
        return [Step(*step) for step in json.loads(done.stdout)]


@measurement(
    "What code sees that calls CUDA while its process is checkpointed: whether the guard's question is answered, how "
    "long a call waits, and whether an interrupt ends the wait.",
    WHERE,
    "a driver",
)
def calls_wait() -> Seen:
    from tests.gpu.programs.common import alone

    alone()
    with Holder("driver", 64 * MIB) as holder:
        process, steps = CudaProcess(holder.process.pid), list[Step]()
        for name in ("lock", "checkpoint"):
            steps.append(process.do(name))
            if steps[-1].error:
                return Seen(True, _told(steps))
        told = list[str]()
        for question, call in (("count", "cuDeviceGetCount"), ("use", "an allocation")):
            answer = holder.ask(question, _WAIT)
            told.append(f"{call} {'waits' if answer is None else _answered(answer)}")
            if answer is None:
                break
        if is_waiting := answer is None:
            holder.interrupt()
            answer = holder.answer(_WAIT)
            told.append(f"an interrupt {'does not end' if answer is None else 'ends'} the wait")
        steps += [process.do("restore"), process.do("unlock")]
        if is_waiting:
            answer = answer or holder.answer(ANSWERING)
            told.append("the wait never ends" if answer is None else f"then it {_answered(answer)}")
    return Seen(True, f"{'; '.join(told)}. {_told(steps)}", {"s": (answer or {}).get("seconds", 0.0)})


def _answered(answer: dict[str, Any]) -> str:
    """Return how a call has ended: `returns 0 after 0.0 s`."""
    how = f"fails ({answer['failed']})" if "failed" in answer else f"returns {answer['value']}"
    return f"{how} after {answer.get('seconds', 0.0):.1f} s"


@measurement(
    "What a restore does if another process has taken the memory: its error, and whether a second restore works once "
    "the memory is free again.",
    WHERE,
    "a driver",
    "whole GPUs",
)
def room_is_taken() -> Seen:
    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN
    from tests.gpu.programs.common import alone, number_of

    number = number_of(alone())
    with Holder("driver", 8 * GIB) as holder:
        process = CudaProcess(holder.process.pid)
        steps = [process.do("lock"), process.do("checkpoint")]
        if steps[-1].error:
            return Seen(True, _told(steps))
        free = gpu_magic.gpus()[number].status.memory_free
        if free is UNKNOWN:
            raise NotTriedError("NVML does not give the free memory here")
        # Another half GiB is its context.
        with Holder("driver", (free - GIB) // 4 * 4):
            steps.append(process.do("restore"))
        without_room = process.state()
        if steps[-1].error:
            steps.append(process.do("restore"))
        with_room = process.state()
        if not steps[-1].error:
            steps.append(process.do("unlock"))
        answer = holder.ask("same", _WAIT)
    same = "waits" if answer is None else _answered(answer)
    what = f"{_told(steps)}; it is {without_room} after the first restore, {with_room} after the last; a copy {same}"
    return Seen(True, what)


def _around(name: str, library: str, nbytes: int, held: str, *needs: Need) -> Claim:
    sentence = (
        f"Another process checkpoints a process that holds {held}, and restores it: the time of each step, the bytes "
        "that NVML gets back and that stay, and whether the process computes the same afterwards."
    )
    return Claim(f"checkpoint.around:{name}", sentence, WHERE, ("a driver", *needs), False, (library, nbytes))


def _asked(who: str, *, is_traced: bool, is_root: bool) -> Claim:
    asker = {
        "parent": "The process that has started a process",
        "child": "A process that a process has started",
        "sibling": "A process beside it",
    }[who]
    called = " after the process has called prctl(PR_SET_PTRACER)" if is_traced else ""
    user = "root" if is_root else "a user who is not root"
    sentence = f"{asker} checkpoints it and restores it, as {user}{called}: the answer of each step."
    name = f"{who} as {'root' if is_root else 'nobody'}{', traced' if is_traced else ''}"
    arguments = (who, is_traced, is_root)
    return Claim(f"checkpoint.asked:{name}", sentence, WHERE, ("a driver",), False, arguments)


CLAIMS = (
    _around("1 GiB", "driver", GIB, "1 GiB"),
    _around("10 GiB", "driver", 10 * GIB, "10 GiB"),
    _around("PyTorch", "torch", GIB, "arrays and a model of PyTorch", "PyTorch for CUDA"),
    _around("JAX", "jax", GIB, "an array of JAX", "JAX for CUDA"),
    _around("CuPy", "cupy", GIB, "an array of CuPy", "CuPy"),
    _asked("child", is_traced=False, is_root=True),
    *(
        _asked(who, is_traced=is_traced, is_root=False)
        for who in ("parent", "child", "sibling")
        for is_traced in (False, True)
    ),
    _around("40 GiB", "driver", 40 * GIB, "40 GiB"),  # last, because it takes longest
)


if __name__ == "__main__":
    who, argument = sys.argv[1:]
    print(json.dumps(taken(int(argument)) if who == "this" else _by(who, is_traced=bool(argument))))
