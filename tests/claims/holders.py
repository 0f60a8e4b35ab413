"""Other processes that claim devices, of this user and of another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import LIMIT, ROOT
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GPU", "OTHER", "STAYS", "as_nobody", "end", "holder"]

GPU, OTHER = "GPU-1a2b3c4d-0000-4000-8000-000000000000", "GPU-8f3a0000-0000-4000-8000-000000000001"

# Not a descendant of ours, which would be no other: its parent has ended.
HOLDER = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
from gpu_magic.claims.held import Claims
claims = Claims()
problem = claims.hold({uuids!r})
{then}
print(os.getpid(), problem, flush=True)
time.sleep(600)
"""


@contextmanager
def holder(*uuids: str, then: str = "", **variables: str) -> Iterator[int]:
    """Let another process claim some devices, and then do something; yield its number."""
    code = HOLDER.format(uuids=uuids, then=then)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
    ) as process:
        assert process.stdout is not None
        pid, _, problem = process.stdout.readline().strip().partition(" ")
        assert not problem
        try:
            yield int(pid)
        finally:
            end(int(pid))


def end(pid: int, number: int = signal.SIGKILL) -> None:
    """End a process that is nobody's child here, and wait until it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    until(lambda: not Path(f"/proc/{pid}").exists())


# At the end of what another user runs: it prints its number, and goes on.
STAYS = (
    "print(os.getpid(), flush=True)\n"
    "for output in (1, 2):\n    os.dup2(os.open(os.devnull, os.O_WRONLY), output)\n"
    "time.sleep(600)\n"
)


def as_nobody(code: str, folder: Path) -> str:
    """Run code as another user, who is no relative; return what it prints."""
    # Python and the package can stand in folders that are root's alone, so it changes its user when it has loaded.
    program = (
        "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\n"
        "import time\nwhile os.getppid() == int(os.environ['STARTED_BY']): time.sleep(0.01)\n"
        "import pwd\nfrom gpu_magic.claims.held import Claims\n"
        "user = pwd.getpwnam('nobody')\nos.setgroups([]); os.setgid(user.pw_gid); os.setuid(user.pw_uid)\n"
        f"{code}"
    )
    ran = subprocess.run(
        ["setsid", sys.executable, "-c", program],
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "STARTED_BY": str(os.getpid()), "GPU_MAGIC_CLAIMS": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
    )
    assert not ran.stderr
    return ran.stdout
