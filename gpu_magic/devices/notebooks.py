"""The notebook of a kernel: as its Jupyter server, the kernel itself, or what it was started with tells.

A notebook can be renamed while its kernel runs. Only the Jupyter server then knows the new name. It is asked
for its sessions (`GET /api/sessions`, jupyter_server 2) if it is this user's, listens on this machine, and
accepts the token in the file that it wrote. A thread asks, so a server that hangs delays only the first
reading, by `_SHORT`.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.model import UNKNOWN, GpuProcess
from gpu_magic.devices.pace import paced
from gpu_magic.devices.processes import (
    ancestors_of,
    notebook_path,
    parent_of,
    read_process,
    start_of,
    with_each,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpu_magic.devices.model import Claim, Inventory, JupyterKernel

__all__ = ["can_be_renamed", "notebook_here", "notebook_of", "with_notebooks"]

_VSCODE = "__vsc_ipynb_file__"  # VS Code gives its kernels the path as a variable, before the first cell
_FRESH = 25.0  # seconds for which an answer is used: less than between two looks of a claim
_SHORT = 0.2  # seconds that a reading waits for a server, unless its latest answer came later
_LONG = 2.0  # seconds that the thread waits
_NOT_AGAIN = 120.0  # seconds for which a server is not asked after it did not answer
_MOST_READ = 4 << 20  # bytes of an answer
# Where a server listens that describes itself with this host name. It is not asked at other addresses.
_LOCAL = {
    **dict.fromkeys(("localhost", "127.0.0.1", "0.0.0.0", "*", ""), "127.0.0.1"),  # noqa: S104 - only asked there
    **dict.fromkeys(("::1", "::"), "::1"),
}


class _Server:
    """A Jupyter server of this user, and the notebooks of its kernels as it last told them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._pid = int(file.rpartition("-")[2].removesuffix(".json"))
        self._started = start_of(self._pid)
        self._notebooks: dict[str, str] = {}  # by the kernel's ID
        self._ask_from = -math.inf
        self._is_quick = True
        self._thread: threading.Thread | None = None

    def notebook(self, kernel_id: str, *, waits: bool) -> str:
        """Return the path of a kernel's notebook as it is, or was half a minute ago. Empty: unknown."""
        if time.monotonic() >= self._ask_from:
            if self._thread is None or not self._thread.is_alive():  # a forked child has no thread
                self._thread = threading.Thread(target=self._ask, name="gpu_magic-notebooks", daemon=True)
                self._thread.start()
            if waits and self._is_quick:
                self._thread.join(_SHORT)
                self._is_quick = not self._thread.is_alive()
        return self._notebooks.get(kernel_id, "")

    def _ask(self) -> None:
        """Ask the server, and keep its answer."""
        began = time.monotonic()
        try:
            self._notebooks = self._read()
        except PermissionError:
            self._ask_from = math.inf
        except Exception:  # noqa: BLE001 - it has ended, hangs, or answers anything: the name at the start stays
            self._ask_from = time.monotonic() + _NOT_AGAIN
        else:
            self._ask_from = time.monotonic() + paced(_FRESH)
            self._is_quick = time.monotonic() - began < _SHORT

    def _read(self) -> dict[str, str]:
        import http.client
        import json
        import socket

        path = Path(self._file)
        if path.stat().st_uid != os.geteuid():
            raise PermissionError(self._file)
        about = json.loads(path.read_bytes())
        root, base = about["root_dir"], about["base_url"]
        host = "localhost" if about["sock"] else _LOCAL[about["hostname"]]
        connection = http.client.HTTPConnection(host, about["port"], timeout=_LONG)
        with contextlib.closing(connection):
            if about["secure"]:
                raise ConnectionError("its certificate is not for this machine's own address")
            # Another user can have the port of a server that has ended, and must not get its token.
            if self._started is UNKNOWN or start_of(self._pid) != self._started:
                raise ConnectionError("the server has ended")
            if about["sock"]:
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(_LONG)
                connection.sock.connect(about["sock"])
            # Without `no_track_activity`, a server or a Hub that ends what is unused would never end it.
            headers = {"Authorization": f"token {about['token']}"} if about["token"] else {}
            connection.request("GET", f"{base}api/sessions?no_track_activity=1", headers=headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise PermissionError(answer.status)  # such as a Hub's server, which wants another login
            sessions = json.loads(answer.read(_MOST_READ))
        # Of several notebooks with one kernel, the first has started it. A console has no notebook.
        named = [(one["kernel"]["id"], one["path"]) for one in sessions if one["type"] == "notebook"]
        return {kernel: notebook_path(os.path.join(root, path)) for kernel, path in reversed(named)}  # noqa: PTH118


_servers: dict[str, _Server] = {}  # by the file in which each describes itself
_MOST_SERVERS = 256


def _as_the_server_says(kernel: JupyterKernel | None, *, waits: bool = True) -> str:
    """Return the path of a kernel's notebook, as its server knows it. Empty: unknown."""
    if kernel is None or not kernel.server:
        return ""
    if kernel.server not in _servers and len(_servers) >= _MOST_SERVERS:
        _servers.clear()
    if (server := _servers.get(kernel.server)) is None:
        server = _servers.setdefault(kernel.server, _Server(kernel.server))
    return server.notebook(kernel.id, waits=waits)


@cache
def _process_here(pid: int) -> GpuProcess:
    """Return this process as others see it. `pid` is its own, so that a forked child reads its own."""
    return read_process(pid)


def notebook_here() -> str:
    """Return the path of this process's notebook, at once. Empty if there is none, or it is unknown."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    path = "" if shell is None else shell.user_ns.get(_VSCODE)
    if path and isinstance(path, str):
        return path
    at_start = os.environ.get("JPY_SESSION_NAME", "")
    if _is_kernel_of_jupyter():
        here = _process_here(os.getpid())
        return _as_the_server_says(here.kernel, waits=False) or here.notebook or notebook_path(at_start)
    if "marimo" in sys.modules:  # it sets the file of a notebook's module, also after the notebook is renamed
        return getattr(sys.modules.get("__main__"), "__file__", None) or at_start
    return notebook_path(at_start)


def can_be_renamed() -> bool:
    """Return whether this process runs a notebook, whose name can change or become known later."""
    return _is_kernel_of_jupyter() or "marimo" in sys.modules


def _is_kernel_of_jupyter() -> bool:
    module: Any = sys.modules.get("ipykernel.kernelapp")  # a kernel has imported it
    return module is not None and module.IPKernelApp.initialized() is True


def notebook_of(process: GpuProcess, claims: Iterable[Claim]) -> str:
    """Return the path of the notebook of a process of this user, or only its name. Empty if it is unknown.

    A claim of this user's kernel tells its notebook as the kernel knows it. Nothing else tells that of a
    kernel of VS Code.
    """
    return _notebook_of(process, {}, _claimed(claims), parent_of)


def with_notebooks(machine: Inventory, known: Mapping[int, str] | None = None) -> Inventory:
    """Return the machine with the notebooks of this user's kernels, and of what they have started, as of now.

    `known` has the notebooks of further kernels, by PID.
    """
    claimed = _claimed(claim for device in machine.devices for claim in device.status.claims)
    parent = cache(parent_of)  # many processes have the same ancestors

    @cache
    def sure() -> dict[int, str]:
        here = notebook_here()
        return {**({os.getpid(): here} if here else {}), **(known or {})}

    def named(process: GpuProcess) -> GpuProcess:
        if process.is_same_user is not True:
            return process
        notebook = _notebook_of(process, sure(), claimed, parent)
        return process._replace(notebook=notebook) if notebook else process

    return with_each(machine, named)


def _claimed(claims: Iterable[Claim]) -> dict[int, str]:
    """Return the names in the claims of this user's processes, by PID: of notebooks, and of scripts."""
    return {
        claim.pid: claim.notebook
        for claim in claims
        if claim.is_same_user and claim.pid is not UNKNOWN and claim.notebook
    }


def _notebook_of(
    process: GpuProcess, sure: Mapping[int, str], claimed: Mapping[int, str], parent: Callable[[int], int]
) -> str:
    """Return the path or the name of a process's notebook. Empty if only `process.notebook` is known."""
    if process.is_kernel:
        kernels: tuple[int, ...] = (process.pid,)
    elif process.kernel:
        kernels = (process.kernel.pid,)
    elif process.notebook or not (sure or claimed):
        return ""
    else:
        kernels = (process.pid, *ancestors_of(process.pid, parent))
    for pid in kernels:
        if pid in sure:
            return sure[pid]
    if path := _as_the_server_says(process.kernel):
        return path
    for pid in kernels:
        # A script's claim has the name of the script, and the notebook of marimo is a script.
        name = claimed.get(pid, "")
        if name.endswith(".ipynb") or (name and process.is_kernel):
            return "" if f"/{process.notebook}".endswith(f"/{name}") else name  # the path has more
    return ""
