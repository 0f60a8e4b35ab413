"""Reads the GPUs of the vendor whose GPUs this process uses."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from gpu_magic.devices.idle import Idleness
from gpu_magic.devices.model import Inventory, Limits, OtherGpus
from gpu_magic.devices.nvml import STARTING_SECONDS, Nvml
from gpu_magic.devices.problems import Cause, Problem
from gpu_magic.text import is_off, printable, shortened

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpu_magic.devices.amd import Amd
    from gpu_magic.devices.model import Counters, Gpu, GpuProcess, Vendor

__all__ = ["MachineReader"]

_log = logging.getLogger("gpu_magic.devices")


_VENDORS: dict[str, Vendor | None] = {"nvidia": "nvidia", "amd": "amd", "": None}
_HUNG = (Cause.HUNG, Cause.AMD_HUNG)  # a driver that may answer later


class MachineReader:
    """Reads NVIDIA's GPUs if the machine has any, else AMD's. GPU_MAGIC_VENDOR decides otherwise.

    The vendor is decided once, when a GPU is first found. AMD's GPUs are read with amdsmi, if it and its
    library are installed. NVIDIA's driver may take `starting` seconds to start.
    """

    def __init__(self, starting: float = STARTING_SECONDS) -> None:
        self.idleness = Idleness()
        self.simulated = ""  # the profile of the simulated machine that was read last; empty for a real one
        self._wanted = os.environ.get("GPU_MAGIC_VENDOR", "").strip().lower()
        self._vendor = _VENDORS.get(self._wanted)  # None: not decided yet
        self._others: OtherGpus | None = None
        self._has_looked_for_others = False
        # NVIDIA's driver can take a minute to start, for which a process that wants AMD's GPUs does not wait.
        self._nvidia = Nvml(starting=0.0 if self._vendor == "amd" else starting)
        self._amd: Amd | None = None
        self._has_looked_for_amd = False
        self._amd_problem: Problem | None = None  # why AMD's GPUs cannot be read
        self._problems: set[str] = set()  # of the last reading, as logged

    @property
    def reads_amd(self) -> bool:
        """Whether amdsmi and its library are installed, so there may be AMD GPUs."""
        if not self._has_looked_for_amd:
            self._has_looked_for_amd = True
            if PathFinder.find_spec("amdsmi") is not None:
                from gpu_magic.devices.amd import Amd, find_amdsmi

                try:
                    amdsmi = find_amdsmi()
                    self._amd = None if amdsmi is None else Amd(amdsmi)
                except (AttributeError, KeyError, OSError):
                    self._amd_problem = Problem(Cause.AMD_MISFIT)
                except ImportError as error:
                    self._amd_problem = Problem(Cause.AMD_ERROR, str(error))
        return self._amd is not None

    def inventory(self) -> Inventory:
        """Return all GPUs of this process's vendor with their current figures. See `Nvml.inventory`."""
        machine = self._read()
        self.simulated = machine.simulated
        # A problem that lasts is logged once, not with each reading.
        problems = {str(one) for one in (machine.problem, machine.limitation) if one}
        problems |= {f"{gpu.label} is {gpu.problem}" for gpu in machine.gpus if gpu.problem}
        for problem in problems - self._problems:
            _log.debug("%s", printable(problem))
        self._problems = problems
        return machine

    def _read(self) -> Inventory:
        if self._vendor == "amd" and self._has_looked_for_others and not _may_be_simulated():
            return replace(self._read_amd(), others=self._others)
        nvidia = self._nvidia.inventory()
        if nvidia.simulated:
            return nvidia
        if self._wanted not in _VENDORS:
            return Inventory(problem=Problem(Cause.NO_VENDOR, printable(shortened(self._wanted, 40))))
        if self._vendor == "nvidia" and self._has_looked_for_others:
            return replace(nvidia, others=self._others)
        amd = self._read_amd()
        if self._vendor is None and (nvidia.gpus or (amd.gpus and not _is_hung(nvidia))):
            self._vendor = "nvidia" if nvidia.gpus else "amd"
        own, other = (amd, nvidia) if self._vendor == "amd" else (nvidia, amd)
        self._others = OtherGpus(other.vendor, tuple(gpu.name for gpu in other)) if other.gpus else None
        if self._vendor and not _is_hung(other):
            self._has_looked_for_others = True
            self._close(other.vendor)
        elif self._vendor is None and nvidia.problem and not amd.gpus:
            own = replace(nvidia, problem=nvidia.problem._replace(amd=amd.problem))
        return replace(own, others=self._others)

    def _read_amd(self) -> Inventory:
        if self.reads_amd and self._amd:
            return self._amd.inventory()
        missing = Problem(Cause.AMD_MISSING) if self._vendor == "amd" else None
        return Inventory(vendor="amd", problem=self._amd_problem or missing)

    def limits(self, gpu: Gpu) -> Limits:
        """Return the limits of a GPU. UNKNOWN if it does not answer."""
        if gpu.vendor == "amd":
            return Limits() if self._amd is None else self._amd.limits(gpu.index)
        return self._nvidia.limits(gpu.index)

    def counters(
        self, identities: Collection[str], since: int | None, *, with_energy: bool = True
    ) -> dict[str, Counters]:
        """Return the counters of devices by identity. Call `inventory` first. See `Nvml.counters`."""
        amd = {} if self._amd is None else self._amd.counters(identities)
        return self._nvidia.counters(identities, since, with_energy=with_energy) | amd

    def look_up(self, pid: int) -> GpuProcess:
        """Return the facts about a process that a driver has listed, except its memory."""
        return self._nvidia.look_up(pid)

    def close(self) -> None:
        """Shut the drivers' libraries down. The next read opens them again."""
        self._close("nvidia")
        self._close("amd")

    def _close(self, vendor: Vendor) -> None:
        if vendor == "nvidia":
            self._nvidia.close()
        elif self._amd is not None:
            self._amd.close()


def _is_hung(machine: Inventory) -> bool:
    return machine.problem is not None and machine.problem.cause in _HUNG


def _may_be_simulated() -> bool:
    """Return whether NVIDIA's library may be a simulated one, which GPU_MAGIC_SIMULATE or a test has made."""
    is_asked_for = not is_off(os.environ.get("GPU_MAGIC_SIMULATE"))
    return is_asked_for or "gpu_magic.devices.simulated" in sys.modules
