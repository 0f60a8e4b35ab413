"""A simulated machine: GPUs, processes with owners, figures that change, and failures."""

from __future__ import annotations

import math
import os
import random
import re
import threading
import time
import uuid
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.model import UNKNOWN, GpuProcess, Unknown
from gpu_magic.devices.processes import name_text
from gpu_magic.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpu_magic.devices.model import ComputeMode

__all__ = ["Machine", "SimulatedGpu", "SimulatedMig", "SimulatedProcess"]

MIB, GIB = 1 << 20, 1 << 30
_MOST_GPUS, _MOST_INSTANCES = 256, 7
_NAMESPACE = uuid.UUID("6a0f3a5e-7c1c-4b5e-9d5b-0f4b7f6f2a11")
_IDLE_MEMORY, _RESERVED = 520 * MIB, 450 * MIB
_STEPS = 10  # updates of the driver's counters in a second
_IDLE = 1  # nvmlClocksEventReasonGpuIdle
_SOMEBODY = ("chen", "maria", "tom", "aisha")
_KERNEL, _NOTEBOOK = "ipykernel", "work/evaluate.ipynb"
_PROGRAMS = ("train.py", _KERNEL, "finetune.py", "eval.py")


class Model(NamedTuple):
    """A kind of GPU."""

    name: str  # NVML's
    memory: int  # bytes
    watts: int  # the power limit
    capability: tuple[int, int]  # CUDA's compute capability
    cores: int  # CUDA cores
    clock: int  # their highest frequency in MHz
    has_mig: bool = False  # whether MIG can split it


# Names and memory as nvidia-smi prints them for these cards. The rest is from NVIDIA's data sheets.
_CATALOGUE = {
    "A100-40GB": Model("NVIDIA A100-SXM4-40GB", 40960 * MIB, 400, (8, 0), 6912, 1410, has_mig=True),
    "A100-80GB": Model("NVIDIA A100-SXM4-80GB", 81920 * MIB, 400, (8, 0), 6912, 1410, has_mig=True),
    "H100-80GB": Model("NVIDIA H100 80GB HBM3", 81559 * MIB, 700, (9, 0), 16896, 1980, has_mig=True),
    "H200": Model("NVIDIA H200", 143771 * MIB, 700, (9, 0), 16896, 1980, has_mig=True),
    "L4": Model("NVIDIA L4", 23034 * MIB, 72, (8, 9), 7424, 2040),
    "L40S": Model("NVIDIA L40S", 46068 * MIB, 350, (8, 9), 18176, 2520),
    "RTX-3090": Model("NVIDIA GeForce RTX 3090", 24576 * MIB, 350, (8, 6), 10496, 2100),
    "RTX-4090": Model("NVIDIA GeForce RTX 4090", 24564 * MIB, 450, (8, 9), 16384, 3105),
    "RTX-A6000": Model("NVIDIA RTX A6000", 49140 * MIB, 300, (8, 6), 10752, 2100),
    "T4": Model("Tesla T4", 15360 * MIB, 70, (7, 5), 2560, 1590),
    "V100-32GB": Model("Tesla V100-SXM2-32GB", 32768 * MIB, 300, (7, 0), 5120, 1530),
}


@dataclass
class SimulatedProcess:
    """A process on a simulated GPU. `memory` is in bytes; None: the driver does not give it."""

    pid: int
    owner: str | Unknown  # UNKNOWN: nothing but its memory can be seen, as in a container
    name: str
    memory: int | None
    work: int = 0  # percent of the GPU that it keeps busy, on average
    age: int | Unknown = UNKNOWN  # seconds
    is_same_user: bool = False  # whether it belongs to the current user, who can read its notebook
    notebook: str = ""


@dataclass
class SimulatedMig:
    """A simulated MIG instance: UUID, name, memory in bytes, its GPU instance's number, and processes."""

    uuid: str
    name: str
    memory: int
    gpu_instance: int = 1
    reserved: int = 0  # bytes. The driver's share counts on the GPU
    processes: list[SimulatedProcess] = field(default_factory=list)

    @property
    def memory_used(self) -> int:
        return 20 * MIB + sum(process.memory or 0 for process in self.processes)


class SimulatedGpu:
    """A GPU of a simulated machine. You can change it at any time.

    Attributes
    ----------
    compute_mode
        Which processes can use CUDA on it: `Default`, `Exclusive_Process` (one at a time), `Prohibited`.
    slowdowns
        NVML's reasons for lower clocks, other than idleness (`nvmlClocksEventReason…`), as bits.
    minor
        The number of its device file, /dev/nvidiaN.
    reserved
        Bytes that the driver reserves. They are neither used nor free.

    """

    def __init__(self, machine: Machine, index: int, model: Model) -> None:
        self.model = model
        self.index = index
        self.uuid = f"GPU-{machine.make_uuid(f'gpu {index}')}"
        domain, place = divmod(index, 60)
        self.bus_id = f"{domain:08X}:{7 + 4 * place:02X}:00.0"
        self.processes: list[SimulatedProcess] = []
        self.mig: list[SimulatedMig] = []
        self.is_split = False
        self.compute_mode: ComputeMode = "Default"
        self.errors: dict[str, int] = {}
        self.slowdowns = 0
        self.minor = index
        self.reserved = _RESERVED
        self._machine = machine
        # Millijoules up to the latest reading, its time, and the power then, in milliwatts.
        self._counted, self._counted_at, self._last_power = 0.0, self._moment, 0.0

    def run(
        self,
        name: str,
        owner: str | Unknown,
        memory: int | None,
        *,
        pid: int = 0,
        work: int = 0,
        age: int | Unknown = UNKNOWN,
        is_same_user: bool = False,
        notebook: str = "",
    ) -> SimulatedProcess:
        """Start a process. `memory` is in bytes, `work` in percent of the GPU's time, `age` in seconds.

        With `pid=os.getpid()`, the simulated process is the calling process. With `is_same_user`, it belongs
        to the current user:
        `run("ipykernel", "maria", 12 << 30, is_same_user=True, notebook="work/train.ipynb")`. With an UNKNOWN
        owner, only the PID and the memory can be seen, as in a container.
        """
        if not pid:
            self._machine.last_pid += 7
        process = SimulatedProcess(
            pid or self._machine.last_pid, owner, name, memory, work, age, is_same_user, notebook
        )
        self.processes.append(process)
        return process

    def split(self, *kinds: str) -> None:
        """Turn MIG mode on and make instances of these kinds: `3g.40gb`, `1g.10gb`."""
        self.is_split = True
        for kind in kinds:
            number = len(self.mig)
            identity = f"MIG-{self._machine.make_uuid(f'mig {self.index} {number}')}"
            memory = int(kind.partition(".")[2].removesuffix("gb")) * GIB
            self.mig.append(SimulatedMig(identity, f"{self.model.name} MIG {kind}", memory, number + 1))

    def lose(self) -> None:
        """Lose the GPU from the bus. Every call about it returns GPU_IS_LOST."""
        self.fail("nvml", 15)

    def recover(self) -> None:
        """Undo `lose` and `fail`."""
        self.errors.clear()

    def fail(self, call: str, error: int) -> None:
        """Let NVML calls about this GPU return an error code, if their names start with `call`.

        `fail("nvmlDeviceGetPowerUsage", pynvml.NVML_ERROR_NOT_SUPPORTED)` fails the calls that read power.
        `fail("nvml", 4)` fails all calls.
        """
        self.errors[call] = error

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def memory(self) -> int:
        """Bytes."""
        return self.model.memory

    @property
    def memory_used(self) -> int:
        """Bytes: half a GiB, as on an idle GPU, and the memory of its processes."""
        held = sum(process.memory or 0 for process in self.processes)
        held += sum(instance.memory_used for instance in self.mig)
        return min(self.model.memory - self.reserved, _IDLE_MEMORY + held)

    @property
    def utilization(self) -> int:
        """Percent: the work of its processes, which varies a little with the clock."""
        work = sum(process.work for process in self.processes)
        return max(0, min(100, round(work + 12 * self._variation("work")))) if work else 0

    @property
    def power(self) -> int:
        """Milliwatts."""
        idle, limit = 0.14 * self.model.watts, 0.95 * self.model.watts
        return round(1000 * (idle + (limit - idle) * self.utilization / 100 + self._variation("power")))

    @property
    def energy(self) -> int:
        """Millijoules since the machine was made, from the mean power between two readings."""
        now, power = self._moment, self.power
        self._counted += (now - self._counted_at) * (power + (self._last_power or power)) / 2
        self._counted_at, self._last_power = now, power
        return round(self._counted)

    @property
    def clock_reasons(self) -> int:
        """NVML's reasons for lower clocks, as bits."""
        return self.slowdowns if self.utilization else _IDLE | self.slowdowns

    @property
    def temperature(self) -> int:
        """Degrees Celsius."""
        return round(31 + 40 * self.utilization / 100 + 2 * self._variation("heat"))

    @property
    def _moment(self) -> float:
        """When the driver last updated its counters, by the machine's clock."""
        return math.floor(self._machine.clock() * _STEPS) / _STEPS

    def _variation(self, what: str) -> float:
        """Return a number from -1 to 1 that changes slowly with the clock and depends on the seed."""
        second, fraction = divmod(self._moment, 1.0)
        seed = f"{self._machine.seed}/{self.index}/{what}/"
        before, after = (random.Random(f"{seed}{second + n:.0f}").uniform(-1, 1) for n in (0, 1))  # noqa: S311
        return before + (after - before) * fraction


class Machine:
    """A machine with simulated GPUs.

    Parameters
    ----------
    profile
        The GPUs: `8xA100-80GB`, `2xRTX-4090+1xT4`, `1xA100-80GB(3g.40gb,4g.40gb)`.
    seed
        A number. UUIDs and figures depend on it.
    clock
        A function that returns seconds. The figures depend on it. With a number, they do not change.
    driver, cuda
        Versions, as NVML gives them (13000 for CUDA 13.0).

    """

    def __init__(
        self,
        profile: str = "8xA100-80GB",
        *,
        seed: int = 0,
        clock: Callable[[], float] | float = time.monotonic,
        driver: str = "580.65.06",
        cuda: int = 13000,
    ) -> None:
        if not callable(clock) and not isinstance(clock, int | float):
            raise SimulationError(
                f"clock={clock!r:.40} is neither a number of seconds nor a function. Try clock=0"
            )
        self.clock: Callable[[], float] = clock if callable(clock) else lambda: float(clock)
        self.profile, self.seed = profile, seed
        self.driver, self.cuda = driver, cuda
        self.described_by = ""  # the value of GPU_MAGIC_SIMULATE, if that made the machine
        self.refusal = 0  # the error code of nvmlInit, or 0 (success)
        self.missing: set[str] = set()  # symbols that this driver's library does not have
        self._hanging: dict[tuple[str, int | None], threading.Event] = {}
        self.last_pid = 4000
        self.gpus = []
        for index, (model, instances) in enumerate(_parse_profile(profile)):
            gpu = SimulatedGpu(self, index, model)
            if instances:
                gpu.split(*instances)
            self.gpus.append(gpu)

    def populate(self) -> None:
        """Start programs of several users on some of the GPUs, as on a shared machine.

        The first kernel among them is another notebook of the current user.
        """
        dice = random.Random(f"{self.seed}/people")  # noqa: S311
        whole = [gpu for gpu in self.gpus if not gpu.is_split]
        for gpu in dice.sample(whole, k=len(whole) * 3 // 8):
            memory = round(gpu.model.memory * dice.uniform(0.15, 0.8))
            gpu.run(dice.choice(_PROGRAMS), dice.choice(_SOMEBODY), memory, work=dice.randint(20, 95))
        for gpu in whole:
            for process in gpu.processes:
                process.age = dice.randint(60, 200_000)
        for process in [process for gpu in whole for process in gpu.processes if process.name == _KERNEL][:1]:
            process.is_same_user, process.notebook = True, _NOTEBOOK

    def hang(self, call: str, gpu: int | None = None) -> threading.Event:
        """Let an NVML call hang, for one GPU or all. It ends when you set the returned event."""
        event = self._hanging[call, gpu] = threading.Event()
        return event

    def wait_if_hanging(self, call: str, gpu: int | None) -> None:
        """Wait if this call hangs."""
        for key in ((call, gpu), (call, None)):
            if key in self._hanging:
                self._hanging[key].wait()

    def look_up(self, pids: Iterable[int]) -> dict[int, GpuProcess]:
        """Return processes by PID, as from /proc on a real machine."""
        running: dict[int, SimulatedProcess] = {}
        for gpu in self.gpus:
            for process in chain(gpu.processes, *(instance.processes for instance in gpu.mig)):
                if process.owner is not UNKNOWN:
                    running.setdefault(process.pid, process)
        return {pid: _seen(running[pid]) if pid in running else GpuProcess(pid) for pid in pids}

    def make_uuid(self, what: str) -> uuid.UUID:
        """Return a UUID that depends on the profile, the seed and `what`, the thing that it names."""
        return uuid.uuid5(_NAMESPACE, f"{self.profile}/{self.seed}/{what}")


def _seen(process: SimulatedProcess) -> GpuProcess:
    """Return what this user sees of a process, without its figures."""
    is_here = process.pid == os.getpid()
    is_same_user = process.is_same_user or is_here
    notebook = process.notebook if is_same_user else ""
    name, owner = name_text(process.name), name_text(str(process.owner))
    return GpuProcess(process.pid, name, owner, UNKNOWN, is_here, is_same_user, notebook, age=process.age)


def _parse_profile(profile: str) -> list[tuple[Model, tuple[str, ...]]]:
    """Return the model of each GPU of a profile, in order, and the kinds of its MIG instances.

    A component has a count, a model, and its MIG instances, if any. "+" joins components:
    `2xRTX-4090+1xT4`, `1xA100-80GB(3g.40gb,4g.40gb)+7xA100-80GB`. `0xT4` is a machine without GPUs.
    """
    models: list[tuple[Model, tuple[str, ...]]] = []
    for component in profile.split("+"):
        match = re.fullmatch(r"(?:([0-9]{1,9})x)?([A-Za-z0-9-]+?)(?:\(([\w.,]+)\))?", component.strip())
        model = _CATALOGUE.get(match[2]) if match else None
        if not match or model is None:
            raise SimulationError(
                f"{component.strip()!r} is not a machine to simulate. Write COUNTxMODEL, joined by '+', "
                f"with a model of {', '.join(sorted(_CATALOGUE))}."
            )
        count = int(match[1] or 1)
        if len(models) + count > _MOST_GPUS:
            raise SimulationError(f"{profile!r} has more than {_MOST_GPUS} GPUs.")
        kinds = tuple(match[3].split(",")) if match[3] else ()
        fits = all(re.fullmatch(r"[1-7]g\.[0-9]{1,3}gb", kind) for kind in kinds)
        if kinds and not (fits and model.has_mig and len(kinds) <= _MOST_INSTANCES):
            how = f"A100-80GB(3g.40gb,4g.40gb), at most {_MOST_INSTANCES}"
            raise SimulationError(f"{component.strip()!r}: write MIG parts like {how}.")
        models += [(model, kinds)] * count
    return models
