"""The processes of this user that have memory on GPUs: this kernel, what it has started, and others."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.processes import gpu_process, numbers_are_ours
from gpu_magic.devices.status import GpuProcess
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import ProcessError
from gpu_magic.process.view import look_up_process, read_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from gpu_magic.devices.claim import Claim
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Device
    from gpu_magic.devices.unknown import Unknown
    from gpu_magic.process.session import Session

__all__ = ["Found", "Manager", "OwnProcess", "devices_with_processes", "find_own_processes"]


class Manager(NamedTuple):
    """What in this kernel has started a process.

    Parameters
    ----------
    name
        `task train`, `engine 0 (GPU 2)`.
    how_to_end
        What ends its processes, as a clause; empty where a process of it can be ended by itself.

    """

    name: str
    how_to_end: str = ""


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """A process of this user that has memory on GPUs, or has claimed some.

    Parameters
    ----------
    process
        As the driver lists it on the first of its devices; of one that only claims them, as it is known here.
    memory
        Bytes on each device; UNKNOWN where the driver does not give it.
    manager
        What in this kernel has started it; None where nothing here has, or nothing that is kept.
    claimed
        Of a process without memory on any device, those that it has claimed.

    """

    process: GpuProcess
    memory: Mapping[Device, int | Unknown]
    manager: Manager | None = None
    claimed: tuple[Device, ...] = ()

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    @property
    def name(self) -> str | Unknown:
        """Its script or program: `train.py`, `ipykernel`."""
        return self.process.name

    @property
    def notebook(self) -> str:
        """The path of the notebook whose kernel it is, or was started in; empty for none."""
        return self.process.notebook

    @property
    def age(self) -> int | Unknown:
        """Whole seconds since it was started."""
        return self.process.age

    @property
    def is_this(self) -> bool:
        """Whether it is this process."""
        return self.pid == os.getpid()


class Found(NamedTuple):
    """The processes on a machine's GPUs.

    Parameters
    ----------
    processes
        Those of this user, in the order of the GPUs.
    others
        The owners of all other processes that are listed, by number.
    machine
        The machine.
    claimants
        This user's other processes that have claimed devices, without memory on any.

    """

    processes: tuple[OwnProcess, ...]
    others: Mapping[int, str | Unknown]
    machine: Inventory
    claimants: tuple[OwnProcess, ...] = ()


def find_own_processes(session: Session, find_manager: Callable[[GpuProcess], Manager | None]) -> Found:
    """Read the machine, and find the processes that are this user's.

    Parameters
    ----------
    session
        This process's.
    find_manager
        Returns what in this process has started another one.

    Raises
    ------
    ProcessError
        It can't be known which they are.

    """
    machine = read_machine(session)
    if problem := machine.problem or machine.limitation:
        raise ProcessError(f"Which processes are on GPUs is not known. {problem}")
    if not machine.simulated and not numbers_are_ours():
        raise ProcessError(
            "Which processes on the GPUs are yours can't be known here: in a container, the driver's process "
            "numbers are those of the host."
        )
    first: dict[int, GpuProcess] = {}
    memory: dict[int, dict[Device, int | Unknown]] = {}
    for device in devices_with_processes(machine):
        for process in () if device.status.users is UNKNOWN else device.status.users:
            first.setdefault(process.pid, process)
            memory.setdefault(process.pid, {})[device] = process.memory
    own = [process for process in first.values() if process.is_own or process.mine]
    return Found(
        tuple(OwnProcess(process, memory[process.pid], find_manager(process)) for process in own),
        {pid: process.owner for pid, process in first.items() if process not in own},
        machine,
        tuple(_claimants(session, machine, first, find_manager)),
    )


def _claimants(
    session: Session,
    machine: Inventory,
    listed: Container[int],
    find_manager: Callable[[GpuProcess], Manager | None],
) -> Iterator[OwnProcess]:
    """Yield this user's processes that have claimed devices, and that the driver lists on none."""
    claims: dict[int, tuple[Claim, list[Device]]] = {}
    for device in devices_with_processes(machine):
        for claim in device.status.claims:
            if claim.is_own and claim.pid is not UNKNOWN and claim.pid not in listed:
                claims.setdefault(claim.pid, (claim, []))[1].append(device)
    for pid, (claim, devices) in claims.items():
        process = gpu_process(pid, look_up_process(session, pid), 0)
        if not process.is_own:  # on a simulated machine nothing is known of it
            process = GpuProcess(pid, claim.notebook or UNKNOWN, claim.owner, 0)
        yield OwnProcess(process, {}, find_manager(process), tuple(devices))


def devices_with_processes(machine: Inventory) -> Iterator[Device]:
    """Yield the devices that processes run on: of a GPU that is split by MIG its instances."""
    for gpu in machine.gpus:
        if gpu.is_split:
            yield from gpu.mig
        else:
            yield gpu
