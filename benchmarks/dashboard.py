"""What jupyterlab-nvdashboard costs its Jupyter server for a tick of one page: processor time, and bytes.

Of its charts the two that show each GPU's figures are open, utilization and memory. It shows no processes,
and neither temperature nor power. Its charts of PCIe are left out: a driver takes 20 ms for each answer.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.timing import clean_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["measure"]

CHARTS = ("gpu_utilization", "gpu_usage")
PERIOD = 20  # milliseconds; the dashboard's own is a second
TOKEN = "0123456789"
LIMIT = 120.0  # seconds, against hanging only
FRAME = 2  # bytes in front of a short message on a web socket


def measure(variables: Mapping[str, str], ticks: int) -> tuple[float, int]:
    """Return seconds of processor time, and bytes, of one tick.

    Parameters
    ----------
    variables
        Laid over the environment of the server.
    ticks
        How many of them are measured.

    """
    from websocket import create_connection

    with TemporaryDirectory() as home:
        port = _free_port()
        process = _start(Path(home), port, variables)
        try:
            _wait_for(process, port)
            address = f"ws://127.0.0.1:{port}/nvdashboard"
            pages = [create_connection(f"{address}/{chart}?token={TOKEN}", timeout=LIMIT) for chart in CHARTS]
            for page in pages:
                page.recv()  # it says that it is connected
                page.send(json.dumps({"updateFrequency": PERIOD, "isPaused": False}))
            for page in pages:
                page.recv()
            begun = _seconds(process.pid)
            sent = sum(FRAME + len(page.recv()) for _ in range(ticks) for page in pages)
            took = _seconds(process.pid) - begun
            for page in pages:
                page.close()
        finally:
            process.terminate()
            process.wait()
    return took / ticks, round(sent / ticks)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _start(home: Path, port: int, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    places = {f"JUPYTER_{name.upper()}_DIR": str(home / name) for name in ("config", "data", "runtime")}
    command = [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", f"--port={port}"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={home}"]
    command += ["--ServerApp.jpserver_extensions=jupyterlab_nvdashboard=True"]
    return subprocess.Popen(
        command, env=clean_environment(variables) | {"HOME": str(home)} | places, stderr=subprocess.DEVNULL
    )


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), LIMIT).close()
            return
        time.sleep(0.1)
    raise RuntimeError("the Jupyter server with jupyterlab-nvdashboard does not start")


def _seconds(pid: int) -> float:
    """Return the processor time that a process has taken (proc(5), fields 14 and 15)."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
