"""What other users write into the folder of claims: a claim of a process that lives."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from unittest.mock import patch

from gpu_magic.claims.held import Claims
from tests.fuzzing.machines import MACHINES
from tests.fuzzing.target import Target, check_line

__all__ = ["OURS", "TARGETS", "THEIRS"]

OURS, THEIRS = (str(gpu.uuid) for gpu in MACHINES[0].gpus[:2])

# A process that is no relative of ours, and keeps a claim: it ends with us, when its input does.
_HOLDER = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
from gpu_magic.claims.folder import OwnFile
OwnFile(sys.argv[2]).publish(os.open(sys.argv[1], os.O_RDONLY), "")
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@cache
def theirs() -> tuple[int, Path]:
    """Start the other process; return its number, and the file of its claim."""
    folder = Path(tempfile.mkdtemp(prefix="gpu_magic-fuzzing-"))
    folder.chmod(0o1777)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, folder, THEIRS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent.parent.parent)},
    )
    assert process.stdout
    pid = int(process.stdout.readline())
    process.wait()
    atexit.register(process.communicate)
    return pid, next(folder.iterdir())


def check_claims(data: bytes) -> None:
    """Check a claim, whatever its owner writes into it: it is believed where it names its device again."""
    pid, file = theirs()
    handle = os.open(file, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)
    with patch.dict(os.environ, GPU_MAGIC_CLAIMS=str(file.parent)):
        found = Claims().others()
    assert found.keys() <= {THEIRS}
    for claim in found.get(THEIRS, ()):
        assert claim.pid == pid
        check_line(str(claim), 200)
    assert bool(found) == (data.split(b"\n")[0] == THEIRS.encode()), "it says that it is about another GPU"


TARGETS = (
    Target(
        "claims",
        check_claims,
        "claims of other users",
        (THEIRS, OURS, "(", ")", "train.ipynb", "\\x1b[31m", "\\xe2\\x80\\xae"),
        (f"{THEIRS}\ntrain.ipynb", "GPU-other\ntrain.ipynb"),
    ),
)
