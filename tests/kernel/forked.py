"""Kernels that are forked from a process that has imported all they need: real ones, without the second it takes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_client.connect import KernelConnectionInfo


# Bytes for the variables of a kernel, where its process has those that it was started with.
ROOM = 1 << 15


class Server:
    """A process that forks kernels; see `kernel_server.py`.

    Parameters
    ----------
    variables
        What it is started with.
    modules
        What its kernels have imported when they start.

    """

    def __init__(self, variables: Mapping[str, str], *modules: str) -> None:
        program = ROOT / "tests" / "kernel" / "kernel_server.py"
        self._process = subprocess.Popen(
            [sys.executable, program, *modules],
            env=dict(variables) | {"ROOM": "." * ROOM},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl+C is for pytest
        )

    def fork(self, variables: Mapping[str, str], folder: str, arguments: list[str]) -> Process:
        """Start a kernel."""
        assert self._process.stdin
        assert self._process.stdout
        request = json.dumps([dict(variables), folder, arguments])
        self._process.stdin.write(f"{request}\n".encode())
        self._process.stdin.flush()
        return Process(int(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


class Process:
    """What a kernel manager asks of `subprocess.Popen`, for a process that is not our child."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self) -> int:
        self._wait(None)
        os.close(self._handle)
        return 0

    def _wait(self, milliseconds: int | None) -> int | None:
        ended = select.poll()
        ended.register(self._handle, select.POLLIN)
        return 0 if ended.poll(milliseconds) else None

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class _Forked(LocalProvisioner):
    server: Server
    process: Any  # a `Process`, which is no `Popen`

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        self.process = self.server.fork(kwargs["env"], kwargs["cwd"], cmd[-2:])  # -f and the connection file
        self.pid = self.pgid = self.process.pid
        return self.connection_info


def forked_manager(server: Server) -> KernelManager:
    """Return the manager of a kernel that this server is to fork."""
    made = KernelManager(kernel_name="python3", transport="ipc")
    made.provisioner = _Forked(kernel_id=made.kernel_id, kernel_spec=made.kernel_spec, parent=made)
    made.provisioner.server = server
    return made
