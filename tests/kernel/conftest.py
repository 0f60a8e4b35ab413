"""A real ipykernel on a machine of four A100s, whose driver libraries are the pretend ones."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import KernelManager

from tests.conftest import ROOT
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# A package that starts CUDA when it is imported, as some real ones do.
STARTER = """
import colorsys
import ctypes
ctypes.CDLL("libcuda.so.1").cuInit(0)
import wave
"""
# One that does so last of all, when nothing more is imported.
LATE = """
import ctypes
ctypes.CDLL("libcuda.so.1").cuInit(0)
"""


_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Reply:
    """What a cell answered."""

    status: str
    stdout: str = ""
    stderr: str = ""
    text: str = ""
    html: str = ""
    errors: list[str] = field(default_factory=list)
    traceback: str = ""


class Kernel:
    """A running kernel, and the machine beneath it."""

    def __init__(self, manager: KernelManager, state: Path) -> None:
        self._manager, self._state = manager, state
        self.client = manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str) -> Reply:
        """Run a cell to its end."""
        reply = Reply("")

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                setattr(reply, content["name"], getattr(reply, content["name"]) + content["text"])
            elif message["msg_type"] in ("display_data", "execute_result"):
                reply.text += content["data"].get("text/plain", "")
                reply.html += content["data"].get("text/html", "")
            elif message["msg_type"] == "error":
                reply.errors.append(content["evalue"])
                reply.traceback += _ANSI.sub("", "\n".join(content["traceback"]))

        reply.status = self.client.execute_interactive(code, output_hook=hear, timeout=90)["content"][
            "status"
        ]
        return reply

    def run_all(self, *cells: str) -> list[Reply]:
        """Run cells until one of them fails, as "Run All" does."""
        replies: list[Reply] = []
        for cell in cells:
            replies.append(self.run(cell))
            if replies[-1].status != "ok":
                break
        return replies

    def change_machine(self, driver: Driver) -> None:
        driver.write(self._state)

    def end(self) -> None:
        """End it, and close every socket: a test run has hundreds of kernels, and 1024 file descriptors."""
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self.client.context.destroy(linger=0)

    def is_alive(self) -> bool:
        return bool(self._manager.is_alive())

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def restart(self) -> None:
        self._manager.restart_kernel(now=True)
        self.client.wait_for_ready(timeout=60)


@pytest.fixture
def start_kernel(native: Path, tmp_path: Path) -> Iterator[Callable[..., Kernel]]:
    """Return a way to start kernels; they end with the test."""
    kernels: list[Kernel] = []
    (tmp_path / "starter_pkg.py").write_text(STARTER)
    (tmp_path / "late_pkg.py").write_text(LATE)
    (tmp_path / "start_cuda.py").write_text(LATE)
    (tmp_path / "late_parent").mkdir()
    (tmp_path / "late_parent" / "__init__.py").write_text("")
    (tmp_path / "late_parent" / "part.py").write_text("import sndhdr\n")
    (tmp_path / "lazy_pkg.py").write_text("def helper():\n    import sndhdr\n")

    def start(driver: Driver | None = None, /, **variables: str) -> Kernel:
        state = tmp_path / "machine"
        (driver or Driver(CARDS)).write(state)
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "GPU_MAGIC"))
        }
        paths = {"IPYTHONDIR": str(tmp_path / "ipython"), "TF_CPP_MIN_LOG_LEVEL": "3"}
        variables["PYTHONPATH"] = f"{variables.get('PYTHONPATH', ROOT)}:{tmp_path}"
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel(env=clean | environment(native, state) | paths | variables, cwd=str(tmp_path))
        kernels.append(Kernel(manager, state))
        return kernels[-1]

    yield start
    for kernel in kernels:
        kernel.end()


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel with the extension loaded."""
    kernel = start_kernel()
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    return kernel
