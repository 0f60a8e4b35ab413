"""Reads the GPUs of both vendors into one inventory."""

from __future__ import annotations

import logging
from dataclasses import replace
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from gpu_magic.devices.idle import Idleness
from gpu_magic.devices.model import Inventory, Limits
from gpu_magic.devices.nvml import Nvml
from gpu_magic.devices.problems import Cause, Problem
from gpu_magic.text import printable

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpu_magic.devices.amd import Amd
    from gpu_magic.devices.model import Counters, Gpu, GpuProcess, Vendor

__all__ = ["MachineReader"]

_log = logging.getLogger("gpu_magic.devices")


class MachineReader:
    """Reads NVIDIA's GPUs, and AMD's if amdsmi and its library are installed, which is checked once.

    On a machine with both, plain numbers are NVIDIA's, and `amd:1` is AMD GPU 1.
    """

    def __init__(self) -> None:
        self.idleness = Idleness()
        self.simulated = ""  # the profile of the simulated machine that was read last; empty for a real one
        self._nvidia = Nvml()
        self._amd: Amd | None = None
        self._has_looked_for_amd = False
        self._amd_problem: Problem | None = None  # why AMD's GPUs cannot be read
        self._seen: set[Vendor] = set()  # vendors of GPUs that were read
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
        """Return all GPUs with their current figures. See `Nvml.inventory`."""
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
        nvidia = self._nvidia.inventory()
        if nvidia.simulated:
            return nvidia
        reads_amd = self.reads_amd  # sets _amd or _amd_problem
        amd = self._amd.inventory() if reads_amd and self._amd else Inventory(problem=self._amd_problem)
        self._seen |= {*nvidia.vendors, *amd.vendors}
        if not amd.gpus and not nvidia.gpus:
            both = nvidia.problem and nvidia.problem._replace(amd=amd.problem)
            return replace(nvidia, problem=both or amd.problem)
        # A vendor's problem is shown only if its GPUs were read before.
        if not amd.gpus:
            return replace(nvidia, limitation=amd.problem) if "amd" in self._seen else nvidia
        if not nvidia.gpus:
            return replace(amd, limitation=nvidia.problem) if "nvidia" in self._seen else amd
        beside = tuple(replace(gpu, prefix="amd:") for gpu in amd.gpus)
        return replace(nvidia, gpus=(*nvidia.gpus, *beside))

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
        self._nvidia.close()
        if self._amd is not None:
            self._amd.close()
