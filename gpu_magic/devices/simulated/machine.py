"""A simulated machine: GPUs, processes with owners, figures that move, and everything that can go wrong."""

from __future__ import annotations

import random
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_magic.devices.processes import UNKNOWN_PROCESS, Process, name_text
from gpu_magic.devices.simulated.profiles import MIB, Model, parse_profile

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Machine", "SimulatedGpu", "SimulatedMig", "SimulatedProcess"]

GIB = 1 << 30
_NAMESPACE = uuid.UUID("6a0f3a5e-7c1c-4b5e-9d5b-0f4b7f6f2a11")
_IDLE_MEMORY = 520 * MIB
_SOMEBODY = ("chen", "maria", "tom", "aisha")
_PROGRAMS = ("train.py", "ipykernel", "finetune.py", "eval.py")


@dataclass
class SimulatedProcess:
    """A process on a simulated GPU; `memory` in bytes, None where the driver would not say."""

    pid: int
    owner: str
    name: str
    memory: int | None
    work: int = 0  # percent of the GPU that it keeps busy, on average


@dataclass
class SimulatedMig:
    """A MIG instance: its UUID, its kind (`3g.40gb`), its memory in bytes, and who uses it."""

    uuid: str
    name: str
    memory: int
    processes: list[SimulatedProcess] = field(default_factory=list)

    @property
    def memory_used(self) -> int:
        return 20 * MIB + sum(process.memory or 0 for process in self.processes)


class SimulatedGpu:
    """One GPU of a simulated machine. Change it while others look.

    Parameters
    ----------
    machine
        Whose clock and seed the figures follow.
    index
        As nvidia-smi would number it.
    model
        What kind of GPU it is.

    """

    def __init__(self, machine: Machine, index: int, model: Model) -> None:
        self.model = model
        self.index = index
        self.uuid = f"GPU-{machine.make_uuid(f'gpu {index}')}"
        self.bus_id = f"{0:08X}:{7 + 4 * index:02X}:00.0" if index < 60 else f"{index:08X}:07:00.0"  # noqa: PLR2004
        self.processes: list[SimulatedProcess] = []
        self.mig: list[SimulatedMig] = []
        self.is_split = False
        self.errors: dict[str, int] = {}
        self._machine = machine

    def run(
        self, name: str, owner: str, memory: int | None, *, pid: int = 0, work: int = 0
    ) -> SimulatedProcess:
        """Start a process on it: `memory` in bytes, `work` in percent of the GPU's time."""
        process = SimulatedProcess(pid or self._machine.next_pid(), owner, name, memory, work)
        self.processes.append(process)
        return process

    def split(self, *kinds: str) -> None:
        """Turn MIG on and make these instances, `3g.40gb` and the like."""
        self.is_split = True
        for kind in kinds:
            number = len(self.mig)
            identity = f"MIG-{self._machine.make_uuid(f'mig {self.index} {number}')}"
            memory = int(kind.partition(".")[2].removesuffix("gb")) * GIB
            self.mig.append(SimulatedMig(identity, f"{self.model.name} MIG {kind}", memory))

    def lose(self) -> None:
        """Let it fall off the bus: from now on every call about it, by handle or index, says GPU_IS_LOST."""
        self.fail("nvml", 15)

    def recover(self) -> None:
        """Undo `lose` and `fail`."""
        self.errors.clear()

    def fail(self, call: str, error: int) -> None:
        """Answer an NVML error code to calls about this GPU whose name starts so.

        `fail("nvmlDeviceGetPowerUsage", pynvml.NVML_ERROR_NOT_SUPPORTED)`; `fail("nvml", 4)` refuses all.
        """
        self.errors[call] = error

    @property
    def memory_used(self) -> int:
        """Bytes: an idle GPU's half GiB, and what its processes hold."""
        held = sum(process.memory or 0 for process in self.processes)
        return min(self.model.memory, _IDLE_MEMORY + held + sum(part.memory_used for part in self.mig))

    @property
    def utilization(self) -> int:
        """Percent: the work of its processes, wandering a little with the clock."""
        work = sum(process.work for process in self.processes)
        return max(0, min(100, round(work + 12 * self._wander("work")))) if work else 0

    @property
    def power(self) -> int:
        """Milliwatts."""
        idle, limit = 0.14 * self.model.watts, 0.95 * self.model.watts
        return round(1000 * (idle + (limit - idle) * self.utilization / 100 + self._wander("power")))

    @property
    def temperature(self) -> int:
        """Degrees Celsius."""
        return round(31 + 40 * self.utilization / 100 + 2 * self._wander("heat"))

    def _wander(self, what: str) -> float:
        """Return -1 to 1, moving smoothly with the clock, the same for the same seed and second."""
        second, part = divmod(self._machine.clock(), 1.0)
        seed = f"{self._machine.seed}/{self.index}/{what}/"
        before, after = (random.Random(f"{seed}{second + n:.0f}").uniform(-1, 1) for n in (0, 1))  # noqa: S311
        return before + (after - before) * part


class Machine:
    """A machine with simulated GPUs.

    Parameters
    ----------
    profile
        Which GPUs: `8xA100-80GB`, `2xRTX-4090+1xT4`, `1xA100-80GB(3g.40gb,4g.40gb)`.
    seed
        UUIDs and figures follow from it.
    clock
        Seconds. The figures move with it; one that always says the same keeps them still.
    driver, cuda
        Versions, as NVML gives them (13000 for CUDA 13.0).

    """

    def __init__(
        self,
        profile: str = "8xA100-80GB",
        *,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        driver: str = "580.65.06",
        cuda: int = 13000,
    ) -> None:
        self.profile, self.seed, self.clock = profile, seed, clock
        self.driver, self.cuda = driver, cuda
        self.described_by = ""  # the GPU_MAGIC_SIMULATE that asked for it, where one did
        self.refusal = 0  # what nvmlInit answers, where not 0 (success)
        self.missing: set[str] = set()  # symbols that this driver's library does not have
        self._hanging: dict[tuple[str, int | None], threading.Event] = {}
        self._last_pid = 4000
        self.gpus = []
        for index, (model, parts) in enumerate(parse_profile(profile)):
            gpu = SimulatedGpu(self, index, model)
            if parts:
                gpu.split(*parts)
            self.gpus.append(gpu)

    def populate(self) -> None:
        """Put people and programs on some of the GPUs, as on any shared machine on a weekday."""
        dice = random.Random(f"{self.seed}/people")  # noqa: S311
        whole = [gpu for gpu in self.gpus if not gpu.is_split]
        for gpu in dice.sample(whole, k=len(whole) * 3 // 8):
            memory = round(gpu.model.memory * dice.uniform(0.15, 0.8))
            gpu.run(dice.choice(_PROGRAMS), dice.choice(_SOMEBODY), memory, work=dice.randint(20, 95))

    def hang(self, call: str, gpu: int | None = None) -> threading.Event:
        """Let an NVML call never come back (about one GPU, or all) until the returned event is set."""
        event = self._hanging[call, gpu] = threading.Event()
        return event

    def wait_if_hanging(self, call: str, gpu: int | None) -> None:
        """Wait, where the call is one that hangs."""
        for key in ((call, gpu), (call, None)):
            if key in self._hanging:
                self._hanging[key].wait()

    def look_up(self, pid: int) -> Process:
        """Name a process's owner and program, as /proc does on a real machine."""
        for gpu in self.gpus:
            for process in [*gpu.processes, *(process for part in gpu.mig for process in part.processes)]:
                if process.pid == pid:
                    return Process(name_text(process.name), name_text(process.owner))
        return UNKNOWN_PROCESS

    def make_uuid(self, what: str) -> uuid.UUID:
        """Return a UUID that follows from the profile, the seed and what it is for."""
        return uuid.uuid5(_NAMESPACE, f"{self.profile}/{self.seed}/{what}")

    def next_pid(self) -> int:
        """Return a process number that no other process here has."""
        self._last_pid += 7
        return self._last_pid
