"""A kernel whose file systems are read-only, but for its sockets and IPython's own folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from jupyter_client.manager import KernelManager

from tests.conftest import ROOT, needs_ipykernel
from tests.kernel.conftest import Kernel
from tests.machine import CARDS, Driver, clean_environment, environment
from tests.processes import missing

if TYPE_CHECKING:
    from collections.abc import Iterator

# In mounts of its own: one folder stays as it is, and all else on disks or in memory can't be written to.
READ_ONLY = r"""
mount --bind "$1" "$1"
grep -vE '^[^ ]+ (/proc|/sys|/dev)(/(pts|mqueue|fs)[^ ]*)? ' /proc/self/mounts | cut -d' ' -f2 | sort -u |
while read -r place; do
  [ "$place" = "$1" ] || mount -o remount,bind,ro "$place" 2>/dev/null || true
done
shift
exec "$@"
"""
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


@pytest.fixture(scope="module", autouse=True)
def allowed() -> None:
    needs_ipykernel("6.30", "6.17 cannot start, because it writes its connection file")
    if subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode:
        missing("no mounts of one's own can be made here")


@pytest.fixture
def kernel(native: Path, tmp_path: Path, sockets: str) -> Iterator[Kernel]:
    state, writable = tmp_path / "machine", f"{sockets}/{uuid4()}"
    Driver(CARDS).write(state)
    Path(writable).mkdir()
    home = tmp_path / "home"
    home.mkdir()
    manager: KernelManager = KernelManager(kernel_name="python3", transport="ipc", ip=f"{writable}/kernel")
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager.kernel_spec.argv = [*UNSHARE, "sh", "-c", READ_ONLY, "sh", writable, *argv]
    (tmp_path / "runtime").mkdir()
    manager.connection_file = str(tmp_path / "runtime" / "kernel-1.json")
    places = {
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "IPYTHONDIR": f"{writable}/ipython",
        "TMPDIR": writable,  # without one ipykernel runs no cell
        "GPU_MAGIC_CLAIMS": str(home / "claims"),
    }
    manager.start_kernel(
        env=clean_environment("JUPYTER", "XDG") | environment(native, state) | places, cwd=str(home)
    )
    started = Kernel(manager, state)
    yield started
    started.end()


START_CUDA = "import ctypes; _ = ctypes.CDLL('libcuda.so.1').cuInit(0)"
CLICK = (
    "import gpu_magic\n"
    "panel = gpu_magic.panel()\n"
    "panel.state.choosing.choose('3', restart=True, page='p')\n"
    "panel.state.choosing.when_idle(before_cell=False)\n"
    "print(panel.state.state()['said']['text'])"
)
NOT_SAVED = (
    "The choice cannot be saved for a restart, so nothing was changed: [Errno 30] Read-only file system"
)
NO_PLACE = "UsageError: The command's output cannot be stored: [Errno 30] Read-only file system"


def said(kernel: Kernel, cell: str) -> str:
    """Return all that a cell shows, without a traceback."""
    reply = kernel.run(cell)
    assert not reply.traceback
    return (reply.refusal + reply.said).strip()


def test_choosing_works_and_says_in_one_line_what_does_not(kernel: Kernel) -> None:
    assert "Read-only file system" in kernel.run("open('file', 'w')").traceback
    assert said(kernel, "%load_ext gpu_magic") == ""
    *chosen, claimed = said(kernel, "%gpus 2,0").split("\n")
    assert [line.partition(" (")[0] for line in chosen] == ["cuda:0 = GPU 2", "cuda:1 = GPU 0"]
    assert claimed.startswith("Other users cannot see your claim: ")
    assert claimed.endswith("/claims cannot be made (Read-only file system).")
    assert said(kernel, "%gpus auto").startswith("cuda:0 = GPU 0")
    assert said(kernel, "%gpus 1 --only-free").startswith("cuda:0 = GPU 1")
    assert "CUDA_VISIBLE_DEVICES=1" in said(kernel, "%gpu_panel")
    assert said(kernel, "%gpu_doctor")
    assert said(kernel, "%unload_ext gpu_magic").startswith("Your choice is undone")
    # Nor does a command start that has no place for its output. IPython's kernel has found one when it started;
    # it has become read-only, or is full.
    said(kernel, "%load_ext gpu_magic")
    said(kernel, "import os, tempfile; tempfile.tempdir = os.environ['HOME']")
    for line in ("%gpu_launch --gpus 2 true", "%gpu_cluster 2,0"):
        assert said(kernel, line).startswith(NO_PLACE)
    assert said(kernel, "%gpu_tasks").startswith("Nothing was started")
    # A restart that would lose the choice is not begun.
    for cell in ("%gpus 1", START_CUDA):
        said(kernel, cell)
    assert said(kernel, "%gpus 3 --restart").startswith(f"UsageError: {NOT_SAVED}")
    assert said(kernel, CLICK).startswith(NOT_SAVED)
    assert said(kernel, "1 + 1") == "2"
