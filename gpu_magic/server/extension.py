"""`GET /gpu_magic/gpus`: the table of `%gpus`, with the kernels of this Jupyter server.

The extension changes nothing. It reads the machine when a page asks, at most once a second, on a thread, so
that a hung driver does not block the server. A call to the driver times out after two seconds
(`devices.call_timeout`).
"""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from gpu_magic.claims.held import Claims
from gpu_magic.devices.machine_reader import MachineReader
from gpu_magic.devices.model import UNKNOWN, Inventory
from gpu_magic.devices.processes import descends_from
from gpu_magic.gpus.table import rows
from gpu_magic.interrupts import unasked
from gpu_magic.process.view import KernelView, Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.devices.model import Device

__all__ = ["GpusHandler", "Reading"]

_SECONDS = 1.0  # between two readings
# The server uses no GPU, so the table has no column for this process.
_NO_KERNEL = KernelView(None, None, None, UNKNOWN, None, "", "", program="python")


def _load_jupyter_server_extension(server: Any) -> None:
    app = server.web_app
    reading = Reading()
    url = url_path_join(app.settings["base_url"], "gpu_magic", "gpus")
    app.add_handlers(".*$", [(url, GpusHandler, {"reading": reading})])


class GpusHandler(APIHandler):
    """Returns the GPUs to users who are logged in and may see this server's kernels."""

    auth_resource = "kernels"

    def initialize(self, reading: Reading) -> None:
        self._reading = reading

    @web.authenticated
    @authorized  # type: ignore[untyped-decorator, unused-ignore]
    async def get(self) -> None:
        """Answer with JSON: see `Reading.read`."""
        manager = self.kernel_manager
        kernels = {}
        for kernel_id in manager.list_kernel_ids():
            pid = getattr(manager.get_kernel(kernel_id).provisioner, "pid", None)
            if isinstance(pid, int):
                kernels[pid] = kernel_id
        self.finish(json.dumps(await self._reading.of(kernels)))


class Reading:
    """The latest reading of the machine, for all pages."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._pool = ThreadPoolExecutor(1, "gpu_magic")
        self.reader, self._claims = MachineReader(), Claims()
        self._latest: dict[str, Any] = {}
        self._until = 0.0

    async def of(self, kernels: Mapping[int, str]) -> dict[str, Any]:
        """Return a reading that is at most a second old. `kernels` has the ids of kernels by PID."""
        async with self._lock:
            if time.monotonic() >= self._until:
                loop = asyncio.get_running_loop()
                self._latest = await loop.run_in_executor(self._pool, self.read, kernels)
                self._until = time.monotonic() + _SECONDS
            return self._latest

    def read(self, kernels: Mapping[int, str]) -> dict[str, Any]:
        """Read the machine.

        Returns
        -------
        dict
            `problem`: why no GPU can be read, or empty; `simulated`: the profile of a simulated machine, or
            empty; `gpus`: for each GPU and MIG instance `label`, `typed` (after `%gpus`), `name`, `used` and
            `total` (bytes), `utilization` (percent), `is_free`, `is_split` (by MIG), `users` (a line each),
            and `kernels` (the bytes of these kernels by id, 0 for a claim). An unknown figure is None.

        """
        with unasked():
            machine = self.reader.inventory()
        machine = self.reader.idleness.note(machine.with_claims(self._claims.everybodys()), time.monotonic())
        machine = replace(machine, gpus=tuple(map(_as_anybodys, machine.gpus)))
        found = {field.name: getattr(machine, field.name) for field in fields(Inventory)}
        shown = rows(Snapshot(**found, kernel=_NO_KERNEL))
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
                "users": list(row.users),
                "kernels": _kernels_on(row.device, kernels),
            }
            for row in shown
        ]
        return {"problem": machine.problem, "simulated": machine.simulated, "gpus": gpus}


def _as_anybodys(device: Any) -> Any:
    """Return a device without `mine` on its processes, because kernels are child processes of this server."""
    status = device.status
    if status.processes is not UNKNOWN:
        status = replace(status, processes=tuple(replace(one, mine=False) for one in status.processes))
    parts = {"mig": tuple(map(_as_anybodys, device.mig))} if getattr(device, "mig", ()) else {}
    return replace(device, status=status, **parts)


def _kernels_on(device: Device, kernels: Mapping[int, str]) -> dict[str, int]:
    """Return the bytes that each kernel and its child processes use on a device; 0 for a claim."""
    found = {kernels[pid]: 0 for pid in kernels if any(pid == claim.pid for claim in device.status.claims)}
    for process in () if device.status.processes is UNKNOWN else device.status.processes:
        for pid, kernel in kernels.items():
            if process.pid == pid or (process.is_own and descends_from(process.pid, (pid,))):
                found[kernel] = found.get(kernel, 0) + (_known(process.memory) or 0)
    return found


def _known(figure: Any) -> Any:
    return None if figure is UNKNOWN else figure
