"""A command that is ready to be launched: its processes, and the folder for what they write."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.claims.held import Claims
    from gpu_magic.devices.model import Device
    from gpu_magic.launching.launchers import Plan
    from gpu_magic.launching.run_folder import RunFolder

__all__ = ["Prepared", "Process"]


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a command.

    Parameters
    ----------
    plan
        What is run.
    variables
        Those that are set for it; None: removed.
    environment
        All that it has.
    devices
        Its GPUs, in the order of `cuda:i`.

    """

    plan: Plan
    variables: Mapping[str, str | None]
    environment: Mapping[str, str]
    devices: tuple[Device, ...]

    def __str__(self) -> str:
        """Return the line that does the same in a shell, which has nothing that was to be removed."""
        given = [
            f"{name}={shlex.quote(value)}" for name, value in self.variables.items() if value is not None
        ]
        return " ".join([*given, shlex.join(self.plan.command)])


@dataclass(frozen=True, slots=True)
class Prepared:
    """A command that could be launched. `str` returns the lines that do the same in a shell.

    Parameters
    ----------
    typed
        The command, as typed.
    processes
        What is run: one process, or one for each GPU.
    folder
        Where.
    files
        A folder for what it writes, and for its script where that is a cell.
    claims
        Those on its GPUs, which end with it.

    """

    typed: str
    processes: tuple[Process, ...]
    folder: str
    files: RunFolder
    claims: Claims

    def __str__(self) -> str:
        lines = [] if self.folder == str(Path.cwd()) else [f"cd {shlex.quote(self.folder)}"]
        return "\n".join([*lines, *map(str, self.processes)])
