"""`gpu_magic` as an administrator's default: where it is installed it is loaded, and elsewhere nothing is said."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.manager import KernelManager

from docs.blocks import blocks_of
from tests.conftest import LIMIT, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

# What an administrator writes to <prefix>/etc/ipython/ipython_config.py, or /etc/ipython/ipython_config.py.
PAGE = ROOT / "docs" / "how-to" / "administrator.md"
CONFIGURATION = next(block.code for block in blocks_of(PAGE) if "extra_extensions" in block.code)
POLICY = next(block.code for block in blocks_of(PAGE) if "c.GpuMagics" in block.code)
LOG_PAGE = ROOT / "docs" / "how-to" / "logging.md"
LOGGING = next(block.code for block in blocks_of(LOG_PAGE) if "SysLogHandler" in block.code)
PLAIN = 'c = get_config()\nc.InteractiveShellApp.extra_extensions = ["gpu_magic"]\n'
# A user's own, which come later: a list of their own, and more of what is in the administrator's.
USERS = """\
c = get_config()
c.InteractiveShellApp.extensions = ["IPython.extensions.storemagic"]
c.InteractiveShellApp.extra_extensions.append("users_own")
"""
USERS_OWN = (
    "def load_ipython_extension(shell):\n    shell.register_magic_function(print, 'line', 'users_own')\n"
)
CELL = "print(*sorted({'gpus', 'store', 'users_own'} & get_ipython().magics_manager.magics['line'].keys()))"


def text_of(content: dict[str, Any]) -> str:
    """Return what a message prints, or shows as text."""
    text: str = content.get("text") or content.get("data", {}).get("text/plain", "")
    return text


class Prefix:
    """An environment of Python's with all that ours has, but for gpu_magic."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Paths files are not read in PYTHONPATH, and so neither is that of an editable installation.
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
        self.python = str(folder / "env" / "bin" / "python")
        self.packages = sysconfig.get_path("purelib")

    def configure(self, text: str, users: str = "") -> None:
        for place, content in (
            (self.folder / "env/etc/ipython", text),
            (self.folder / "home/profile_default", users),
        ):
            place.mkdir(parents=True, exist_ok=True)
            (place / "ipython_config.py").write_text(content)
        (self.folder / "own").mkdir(exist_ok=True)
        (self.folder / "own" / "users_own.py").write_text(USERS_OWN)

    def variables(self, *, installed: bool) -> dict[str, str]:
        paths = [str(ROOT)] if installed else []
        paths += [self.packages, str(self.folder / "own")]
        inherited = {
            name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"
        }  # IPython warns
        return inherited | {
            "PYTHONPATH": os.pathsep.join(paths),
            "IPYTHONDIR": str(self.folder / "home"),
        }

    def in_kernel(self, *, installed: bool, cell: str = CELL) -> tuple[str, str]:
        """Start a kernel; return what its first cell prints, and what it writes to its log."""
        log = self.folder / "log"
        manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(self.folder / "kernel"))
        manager.kernel_spec.argv = [self.python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        with log.open("w") as file:
            manager.start_kernel(
                env=self.variables(installed=installed), cwd=str(self.folder), stdout=file, stderr=file
            )
        client = manager.client()
        client.start_channels()
        printed: list[str] = []
        try:
            client.wait_for_ready(timeout=LIMIT)
            client.execute_interactive(
                cell,
                timeout=LIMIT,
                output_hook=lambda message: printed.append(text_of(message["content"])),
            )
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
            client.context.destroy(linger=0)
        return "".join(printed).strip(), log.read_text()

    def in_terminal(self, *options: str, installed: bool, cell: str = CELL) -> tuple[str, str]:
        """Run IPython as in a terminal; return what is printed, and what it writes beside that."""
        done = subprocess.run(
            [self.python, "-m", "IPython", "--no-banner", "--colors=NoColor", *options, "-c", cell],
            env=self.variables(installed=installed),
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        return done.stdout.strip().rpartition("\n")[-1], done.stderr + done.stdout


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path)


def test_where_it_is_not_installed_nothing_is_said(prefix: Prefix) -> None:
    prefix.configure(CONFIGURATION, USERS)
    for printed, said in (prefix.in_kernel(installed=False), prefix.in_terminal(installed=False)):
        assert printed.endswith("store users_own")
        assert "gpus" not in printed
        assert "gpu_magic" not in said
        assert "Traceback" not in said


@pytest.mark.nightly
def test_without_the_condition_each_start_has_a_traceback(prefix: Prefix) -> None:
    """What the condition is for: IPython's own warning, and what the test above would hear."""
    prefix.configure(PLAIN)
    for printed, said in (prefix.in_kernel(installed=False), prefix.in_terminal(installed=False)):
        assert printed.endswith("store")
        assert "No module named 'gpu_magic'" in said


def test_where_it_is_installed_it_is_loaded_beside_a_user_s_own(prefix: Prefix) -> None:
    prefix.configure(CONFIGURATION, USERS)
    assert prefix.in_kernel(installed=True)[0] == "gpus store users_own"
    assert prefix.in_terminal(installed=True)[0].endswith("gpus store users_own")


POLICIES = """\
%env GPU_MAGIC_SIMULATE=8xA100-80GB clock=0
%gpus 2
from gpu_magic.process.session import current
frozen = get_ipython().run_line_magic("config", "GpuMagics.on_frozen")
print("claims:", len(current().claims.held), "too late:", frozen)
"""


@pytest.mark.parametrize(
    ("policy", "becomes"),
    [
        pytest.param("", "claims: 1 too late: warn", marks=pytest.mark.nightly, id="none"),
        pytest.param(POLICY, "claims: 0 too late: error", id="of the page"),
    ],
)
def test_what_an_administrator_sets_is_so(prefix: Prefix, policy: str, becomes: str) -> None:
    prefix.configure(f"{CONFIGURATION}\n{policy}")
    assert prefix.in_kernel(installed=True, cell=POLICIES)[0].endswith(becomes)
    # A user's own configuration comes later.
    prefix.configure(
        f"{CONFIGURATION}\n{policy}", "c.GpuMagics.on_frozen = 'warn'\nc.GpuMagics.claims = True\n"
    )
    assert "claims: 1" in prefix.in_kernel(installed=True, cell=POLICIES)[0]


CHOOSE = """\
%env GPU_MAGIC_SIMULATE=8xA100-80GB clock=0
%gpus 2,0
%gpus 3 --dry-run
try:
    %gpus 99
except Exception as error:
    print(error)
%gpus none
"""


@pytest.fixture
def syslog(sockets: str) -> Iterator[socket.socket]:
    """Return a system's log, as syslog(3) writes to it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(f"{sockets}/log")
        log.settimeout(LIMIT)
        yield log
    Path(f"{sockets}/log").unlink()


def heard(log: socket.socket, last: str) -> list[str]:
    """Return the lines that have come, up to the one that begins like the last."""
    lines: list[str] = []
    while not (lines and lines[-1].startswith(last)):
        line = log.recv(1 << 16).decode().rstrip("\0")
        lines.append(re.sub(rf"^<14>gpu_magic\[\d+\]: uid {os.getuid()}: ", "", line))
    return lines


@pytest.mark.parametrize("program", ["kernel", pytest.param("terminal", marks=pytest.mark.nightly)])
def test_choices_are_in_the_system_s_log(
    prefix: Prefix, syslog: socket.socket, sockets: str, program: str
) -> None:
    prefix.configure(CONFIGURATION + "\n" + LOGGING.replace("/dev/log", f"{sockets}/log"))
    (prefix.in_kernel if program == "kernel" else prefix.in_terminal)(installed=True, cell=CHOOSE)
    lines = heard(syslog, "Chosen: no GPU")
    claimed = [line for line in lines if line.startswith(("Claimed: ", "Claim ended: "))]
    assert [line.count("GPU-") for line in claimed] == [2, 2]
    assert [line for line in lines if line not in claimed] == [
        "Chosen: SIMULATED GPU 2 and GPU 0 · CUDA_VISIBLE_DEVICES=2,0 · CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "Not chosen: There is no GPU 99. This machine has GPUs 0 to 7.",
        "Chosen: no GPU · CUDA_VISIBLE_DEVICES= · CUDA_DEVICE_ORDER=PCI_BUS_ID",
    ]


@pytest.mark.nightly
def test_where_there_is_no_system_s_log_nothing_is_said(prefix: Prefix, sockets: str) -> None:
    prefix.configure(CONFIGURATION + "\n" + LOGGING.replace("/dev/log", f"{sockets}/none"))
    printed, said = prefix.in_kernel(installed=True, cell=CHOOSE)
    assert "Logging error" not in printed + said
    assert "Chosen: " not in printed + said
    assert "cuda:1 = GPU 0" in printed
