"""Shuts down kernels that hold GPU memory idle, or asks them to park: `c.GpuMagic.cull_idle_gpu`.

A kernel is shut down as Jupyter's own culler does it, by the kernel manager. Pages ask for the warnings.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.ioloop import PeriodicCallback

from gpu_magic.devices.idle import seconds_now
from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.processes import pids_are_local
from gpu_magic.server.idle_kernels import IdleKernels, Use, uses_of
from gpu_magic.server.reading import kernels_of, seconds_since_cell
from gpu_magic.text import bytes_text, one_line, shortened, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpu_magic.server.idle_kernels import Rule
    from gpu_magic.server.reading import Kernel, Reading

__all__ = ["Culler", "CullingHandler", "Refused", "ask_to_park"]

# Seconds between two looks. The driver remembers the work of processes for longer than that.
_BETWEEN_LOOKS = 5.0
_LONGEST_UNASKED = 60.0  # seconds between two questions of a page
_PATIENCE = 300.0  # seconds in which a kernel has to answer that it has parked
_FREE_WITHIN = 10.0  # seconds in which a kernel answers that runs no cell
_TARGET = "gpu_magic.park"  # of the comm
_MOST_ENDED = 100
_LONGEST_REASON = 200  # characters


class Culler:
    """Looks at the kernels of a Jupyter server all the time, and ends those whose time is over."""

    def __init__(
        self, server: Any, reading: Reading, rule: Rule, now: Callable[[], float] = seconds_now
    ) -> None:
        self._manager, self._sessions, self._log = server.kernel_manager, server.session_manager, server.log
        self._reading, self._now = reading, now
        self.kernels = IdleKernels(rule, now)
        self.ended: dict[str, str] = {}  # the kernels that were shut down lately, with their notebooks
        self._kernels: dict[str, Kernel] = {}
        self._uses: dict[str, Use] = {}
        self._as_of = now()  # when the latest look began
        self._told: set[str] = set()  # kernels of whose warning the log tells
        self._problem = ""  # why no GPU can be read, as the log tells
        self._ending: dict[str, asyncio.Task[None]] = {}  # kernels whose time is over
        self._too_late: set[str] = set()  # those that can no longer be kept
        pause = min(_BETWEEN_LOOKS, (rule.warn or rule.after) / 3)
        self._callback = PeriodicCallback(self.look, 1000 * pause)
        # How often pages ask, in seconds.
        self.between_questions = (
            min(_LONGEST_UNASKED, max(1.0, rule.warn / 3)) if rule.warn else _LONGEST_UNASKED
        )

    @property
    def _what(self) -> str:
        return "asked to park" if self.kernels.rule.parks else "shut down"

    def start(self) -> None:
        """Begin to look."""
        after, warn, _ = self.kernels.rule
        self._log.info(
            "gpu_magic: kernels that hold GPU memory idle for %s are %s, with %s of warning",
            *(time_text(after), self._what, time_text(warn)),
        )
        if not pids_are_local():
            self._log.warning(
                "gpu_magic: no kernel is culled in this container, because the driver's process numbers are "
                "the host's"
            )
            return
        self._callback.start()

    async def look(self) -> None:
        """Look at the kernels once, warn, and begin to end those whose time is over."""
        began = self._now()
        kernels = await kernels_of(self._manager, self._sessions)
        answer = await self._reading.of(kernels)
        if answer["problem"] != self._problem:
            self._problem = answer["problem"]
            if self._problem:
                self._log.warning("gpu_magic: no kernel is culled: %s", one_line(self._problem))
        self._uses = uses_of(answer)
        self._kernels, self._as_of = {kernel.id: kernel for kernel in kernels.values()}, began
        over = self.kernels.look(self._uses)
        warned = self.kernels.warned()
        for kernel in warned.keys() - self._told - set(over):
            left = time_text(round(warned[kernel]))
            self._log.info("gpu_magic: %s will be %s in %s", self._about(kernel), self._what, left)
        self._told = {*warned}
        for kernel in over:
            # In tasks, so that a kernel that is slow to end does not keep the server from looking at others.
            if kernel not in self._ending:
                self._ending[kernel] = asyncio.create_task(self._end(kernel))

    async def _end(self, kernel: str) -> None:
        """Shut a kernel down, or ask it to park, unless it is in use or was kept."""
        try:
            if kernel not in self._manager:
                return
            manager = self._manager.get_kernel(kernel)
            # The server takes a kernel for idle as soon as any of its channels is, also while a cell runs.
            if not await _is_free(manager):
                self._log.info("gpu_magic: kernel %s does not answer, so it runs a cell and is kept", kernel)
                self.kernels.keep(kernel)
                return
            # From here to the call of the manager, nothing is awaited, so that nobody can use or keep it.
            quiet = seconds_since_cell(manager)
            is_over = kernel in self._manager and self.kernels.warned().get(kernel) == 0
            if not is_over or quiet is UNKNOWN or quiet <= self._now() - self._as_of:
                return
            self._too_late.add(kernel)
            about, notebook = self._about(kernel), self._kernels[kernel].notebook
            if self.kernels.rule.parks:
                answer = await ask_to_park(manager)
                if isinstance(answer, Refused):
                    self._log.warning("gpu_magic: left alone: %s: %s", about, answer.reason)
                else:
                    self._log.warning("gpu_magic: parked %s of %s", bytes_text(answer), about)
                self.kernels.leave_alone(kernel)
                return
            self._log.warning("gpu_magic: shutting down %s", about)
            await ensure_async(self._manager.shutdown_kernel(kernel))
            self.ended[kernel] = notebook
            self._uses.pop(kernel, None)
            for oldest in [*self.ended][:-_MOST_ENDED]:
                del self.ended[oldest]
        except Exception:  # noqa: BLE001 - whatever a kernel sends. At the next look it would fail again
            self._log.exception("gpu_magic: kernel %s could not be %s", kernel, self._what)
            self.kernels.keep(kernel)
        finally:
            del self._ending[kernel]
            self._too_late.discard(kernel)

    def _about(self, kernel: str) -> str:
        """Return `kernel 3f2a…, train.ipynb, idle for 4 h with 31.0 GiB on GPU 2`."""
        path = self._kernels[kernel].notebook
        memory, idle, gpus = self._uses[kernel]
        size = "?" if memory is UNKNOWN else bytes_text(memory)
        since = "?" if idle is UNKNOWN else time_text(idle)
        named = f"kernel {kernel}, {path}" if path else f"kernel {kernel}"
        return one_line(f"{named}, idle for {since} with {size} on {', '.join(gpus)}")

    def answer(self) -> dict[str, Any]:
        """Return the warnings for pages: see `CullingHandler.get`."""
        rule = self.kernels.rule
        kernels = {}
        for kernel, left in self.kernels.warned().items():
            if kernel not in self._too_late and kernel in self._uses:
                memory, idle, gpus = self._uses[kernel]
                figures = {"memory": memory, "idle": idle, "left": round(left)}
                known = {name: None if value is UNKNOWN else value for name, value in figures.items()}
                kernels[kernel] = {**known, "gpus": gpus}
        return {
            "parks": rule.parks,
            "after": time_text(rule.after),
            "kernels": kernels,
            "ended": self.ended,
        }

    def keep(self, kernel: str) -> bool:
        """Let the time of a kernel begin now, and return whether it is not too late."""
        if kernel in self._too_late:
            return False
        self.kernels.keep(kernel)
        self._log.info("gpu_magic: kernel %s is kept for %s", kernel, time_text(self.kernels.rule.after))
        return True


class Refused(NamedTuple):
    """Why a kernel has not parked."""

    reason: str


async def ask_to_park(manager: Any, patience: float = _PATIENCE) -> int | Refused:
    """Ask a kernel to park, and return the bytes that it has parked.

    Parameters
    ----------
    manager
        Jupyter's manager of the kernel.
    patience
        Seconds to wait for an answer.

    """
    try:
        with _client_of(manager) as client:
            async with asyncio.timeout(patience):
                return await _ask(client)
    except TimeoutError:
        return Refused(f"it did not answer within {time_text(patience)}")


async def _is_free(manager: Any) -> bool:
    """Return whether a kernel answers, as it does between two cells. Jupyter does not count this as use."""
    with _client_of(manager) as client:
        try:
            await client.kernel_info(reply=True, timeout=_FREE_WITHIN)
        except TimeoutError:
            return False
    return True


@contextmanager
def _client_of(manager: Any) -> Iterator[AsyncKernelClient]:
    client = AsyncKernelClient(connection_file=manager.connection_file, parent=manager)
    client.load_connection_file()
    client.start_channels(stdin=False, control=False, hb=False)
    try:
        yield client
    finally:
        client.stop_channels()


async def _ask(client: AsyncKernelClient) -> int | Refused:
    await client.wait_for_ready()  # so that no message is missed
    comm = uuid.uuid4().hex
    content = {"comm_id": comm, "target_name": _TARGET, "data": {}}
    client.shell_channel.send(client.session.msg("comm_open", content))
    said: object = None
    while True:
        message = await client.get_iopub_msg()
        content = message["content"]
        if content.get("comm_id") != comm:
            continue
        said = content.get("data") or said
        if message["header"]["msg_type"] == "comm_close":
            break
    parked, refused = (said.get(name) if isinstance(said, dict) else None for name in ("parked", "refused"))
    if isinstance(parked, int) and parked >= 0:
        return parked
    if isinstance(refused, str):
        return Refused(shortened(refused, _LONGEST_REASON))
    return Refused("it cannot park, because it has not loaded gpu_magic")


class CullingHandler(APIHandler):
    """Tells users who may see this server's kernels which kernels will be culled, and keeps them."""

    auth_resource = "kernels"

    def initialize(self, culler: Culler) -> None:
        self._culler = culler

    @web.authenticated
    @authorized  # type: ignore[untyped-decorator, unused-ignore]
    async def get(self) -> None:
        """Answer with JSON.

        `parks`: whether kernels are asked to park, instead of shut down; `after`: the time without use, as
        text; `kernels`: those with a warning, by ID, each with `memory` (bytes), `gpus` (labels), `idle` and
        `left` (seconds); `ended`: the paths of the notebooks of those that were shut down, by ID.
        """
        self.finish(json.dumps(self._culler.answer()))

    @web.authenticated
    @authorized  # type: ignore[untyped-decorator, unused-ignore]
    async def post(self) -> None:
        """Keep a kernel, whose ID is `kernel` of the JSON."""
        body = self.get_json_body()
        kernel = body.get("kernel") if isinstance(body, dict) else None
        if not isinstance(kernel, str) or kernel not in self.kernel_manager:
            raise web.HTTPError(404, "There is no such kernel")
        if not self._culler.keep(kernel):
            raise web.HTTPError(409, "It is too late")
        self.set_status(204)
        self.finish()
