"""What runs in an engine, when this process asks for it: each function is called there by its name."""

from __future__ import annotations

import faulthandler
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.engines.jax_ranks import tell_jax
from gpu_magic.launching.guardian import read_stat
from gpu_magic.process.session import current

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.launching.guardian import Process

__all__ = ["ADDRESS", "Answer", "begin", "host", "this_process"]

# Names the machine of an engine for the others, where its host name is not resolved, or not its own alone.
ADDRESS = "GPU_MAGIC_ADDRESS"


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine says of itself.

    Parameters
    ----------
    host
        Its machine: a name, or what GPU_MAGIC_ADDRESS says there.
    process
        Its number there, and its start in clock ticks.

    """

    host: str
    process: Process


def begin(log: str, claimed: Sequence[str]) -> Answer:
    """Make an engine ready, before anything else runs in it.

    Parameters
    ----------
    log
        A file for the Python frames of a crash; empty for none.
    claimed
        UUIDs of the GPUs to claim.

    """
    tell_jax()
    if claimed:
        current().claims.hold(claimed)
    if log:
        faulthandler.enable(_opened(log), all_threads=False)
    return Answer(host(), this_process())


def host() -> str:
    """Return what tells this engine's machine apart, and is its address for the others."""
    return os.environ.get(ADDRESS) or socket.gethostname()


def this_process() -> Process:
    """Return this engine's number on its machine, and its start in clock ticks."""
    found = read_stat(os.getpid())
    return os.getpid(), found[2] if found else ""


def _opened(log: str) -> int:
    """Return a descriptor of the file that stays open: the process writes to it when it crashes."""
    return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
