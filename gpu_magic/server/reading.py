"""The machine as a Jupyter server sees it: what `%gpus` shows, and what each of the server's kernels does."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_server.utils import ensure_async
from tornado import web

from gpu_magic.claims.held import Claims
from gpu_magic.devices.idle import can_work, is_working, seconds_now, with_idle
from gpu_magic.devices.machine_reader import MachineReader
from gpu_magic.devices.model import IDLE_FROM, UNKNOWN, Inventory, Unknown, parts, sum_of
from gpu_magic.devices.notebooks import with_notebooks
from gpu_magic.devices.problems import Cause, Problem
from gpu_magic.devices.processes import lineage_of, notebook_path
from gpu_magic.errors import SimulationError
from gpu_magic.gpus.table import rows
from gpu_magic.interrupts import in_background
from gpu_magic.process.view import Snapshot
from gpu_magic.text import page_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpu_magic.devices.model import Device, GpuProcess

__all__ = ["Kernel", "Reading", "kernels_of", "seconds_since_cell"]


class Kernel(NamedTuple):
    """A kernel of this Jupyter server."""

    id: str
    idle: int | Unknown = UNKNOWN  # whole seconds since its last cell, as the server knows; 0 while one runs
    notebook: str = ""  # its path at this server, also after it was renamed


async def kernels_of(manager: Any, sessions: Any) -> dict[int, Kernel]:
    """Return the running kernels of a server, by PID, from its managers of kernels and of sessions.

    Without those on other machines, whose numbers are other processes' here.
    """
    notebooks: dict[str, str] = {}
    kernels: dict[int, Kernel] = {}
    with suppress(web.HTTPError):
        listed = await ensure_async(sessions.list_sessions())
        for one in listed:
            if one["type"] == "notebook":
                notebooks.setdefault(one["kernel"]["id"], one["path"])  # of several, the first
    for kernel_id in manager.list_kernel_ids():
        kernel = manager.get_kernel(kernel_id)
        provisioner = kernel.provisioner
        if isinstance(provisioner, LocalProvisioner) and isinstance(pid := provisioner.pid, int) and pid > 1:
            kernels[pid] = Kernel(kernel_id, seconds_since_cell(kernel), notebooks.get(kernel_id, ""))
    return kernels


def seconds_since_cell(manager: Any) -> int | Unknown:
    """Return the whole seconds since the last cell of a kernel, from its manager. 0 while a cell runs."""
    state = getattr(manager, "execution_state", None)
    if state == "busy":
        return 0
    if state != "idle":  # it starts, or is dead
        return UNKNOWN
    return int(max(0.0, (datetime.now(UTC) - manager.last_activity).total_seconds()))


class Reading:
    """The latest reading of the machine, for all pages, which is kept for some seconds."""

    def __init__(self, keeps: float = 1.0) -> None:
        self._keeps = keeps
        self._lock = asyncio.Lock()
        self._pool = ThreadPoolExecutor(1, "gpu_magic")
        self.reader, self._claims = MachineReader(), Claims()
        self._latest: dict[str, Any] = {}
        self._until = 0.0

    async def of(self, kernels: Mapping[int, Kernel]) -> dict[str, Any]:
        """Return a reading that is not too old. `kernels` has the server's kernels by PID."""
        async with self._lock:
            if time.monotonic() >= self._until:
                loop = asyncio.get_running_loop()
                self._latest = await loop.run_in_executor(self._pool, self.read, kernels)
                self._until = time.monotonic() + self._keeps
            return self._latest

    def read(self, kernels: Mapping[int, Kernel]) -> dict[str, Any]:
        """Read the machine.

        Returns
        -------
        dict
            `problem`: why no GPU can be read, or empty; `simulated`: the profile of a simulated machine, or
            empty; `idle_from`: the seconds from which on a kernel is shown as idle; `lists_processes`:
            whether the driver lists the processes of each device that does not rest; `gpus`: for each GPU and
            MIG instance `label`, `typed` (after `%gpus`), `name`, `used` and `total` (bytes), `utilization`
            (percent), `is_free`, `is_split` (by MIG), `users` (a line each), and `kernels`: for each of these
            kernels that uses or claims the device, by id, `memory` (bytes, with its descendants),
            `is_working` (on this device, now), `is_parked` (by its claims), and `idle` (whole seconds, see
            `Idleness`). An unknown figure is None.

        """
        with in_background():
            try:
                machine = self.reader.inventory()
            except SimulationError as error:  # of the server's environment
                machine = Inventory(problem=Problem(Cause.NO_SIMULATION, str(error)))
        notebooks = {
            pid: notebook_path(kernel.notebook) for pid, kernel in kernels.items() if kernel.notebook
        }
        machine = with_notebooks(machine.with_claims(self._claims.everybodys()), notebooks)
        cells = {pid: kernel.idle for pid, kernel in kernels.items() if kernel.idle is not UNKNOWN}
        idle = self.reader.idleness.look(machine, seconds_now(), cells)
        machine = with_idle(machine, idle)
        machine = replace(machine, gpus=tuple(map(_as_anybodys, machine.gpus)))
        # The server uses no GPU, so nothing is shown of this process.
        shown = rows(Snapshot(machine, program="python"))
        gpus = [
            {
                "label": row.device.label,
                "typed": row.device.number_text,
                "name": row.name,
                "used": _known(row.device.status.memory_used),
                "total": _known(row.device.memory_total),
                "utilization": _known(row.utilization),
                "is_free": row.device.is_free,
                "is_split": getattr(row.device, "is_split", False),
                "users": [page_text(str(user)) for user in row.users],
                "kernels": {
                    kernels[pid].id: {**uses, "idle": _known(idle.get((pid, True), UNKNOWN))}
                    for pid, uses in _kernels_on(row.device, kernels)
                },
            }
            for row in shown
        ]
        return {
            "problem": str(machine.problem or ""),
            "simulated": machine.simulated,
            "idle_from": IDLE_FROM,
            "lists_processes": not any(
                device.status.users is UNKNOWN and device.status.utilization != 0
                for device in parts(machine.devices)
            ),
            "gpus": gpus,
        }


def _as_anybodys(device: Any) -> Any:
    """Return a device with no process of this server's, because the kernels are its child processes."""
    status = device.status
    if status.processes is not UNKNOWN:
        theirs = [
            one if one.is_this_process is UNKNOWN else one._replace(is_this_process=False)
            for one in status.processes
        ]
        status = status._replace(processes=tuple(theirs))
    parts = {"mig": tuple(map(_as_anybodys, device.mig))} if getattr(device, "mig", ()) else {}
    return device._replace(status=status, **parts)


def _kernels_on(device: Device, kernels: Iterable[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the kernels that use or claim a device, by PID, with what they and their descendants do on it."""
    status = device.status
    users = () if status.users is UNKNOWN else status.users
    for pid in kernels:
        parts = [(_is_part(one, pid), one) for one in users]
        its = [one for is_part, one in parts if is_part is True]
        claims = [claim for claim in status.claims if claim.pid == pid]
        if its or claims:
            memory = (
                UNKNOWN
                if status.users is UNKNOWN
                else sum_of((is_part, one.memory) for is_part, one in parts)
            )
            works = is_working(its, status)
            if works is False and can_work(status, only_unseen=True):
                works = UNKNOWN
            is_parked = bool(claims) and all(claim.is_parked for claim in claims)
            yield pid, {"memory": _known(memory), "is_working": _known(works), "is_parked": is_parked}


def _is_part(process: GpuProcess, pid: int) -> bool | Unknown:
    """Return whether a process is a kernel or its descendant. In a container, each process can be."""
    if process.is_this_process is UNKNOWN:
        return UNKNOWN
    return process.is_same_user is True and pid in lineage_of(process.pid)


def _known(figure: Any) -> Any:
    return None if figure is UNKNOWN else figure
