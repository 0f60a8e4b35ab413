"""A command as it was typed, and how it is run on its GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

__all__ = ["TORCH_LOGS", "Command", "Plan"]

# Where torchrun has ranks write, below its --log-dir.
TORCH_LOGS = ("*/attempt_*/{rank}/stdout.log", "*/attempt_*/{rank}/stderr.log")


@dataclass(frozen=True, slots=True)
class Command:
    """A command, and where it is to be run.

    Parameters
    ----------
    words
        The launcher and what follows it: `["torchrun", "train.py", "--lr", "1e-3"]`.
    gpus
        What names its GPUs in CUDA_VISIBLE_DEVICES, in their order.
    folder
        Where it is run.
    environment
        All its variables.
    script
        The words that name a script at the end of its line, where that is a cell.
    options
        What the launch itself has been told with, before the launcher: `--gpus`. Among a launcher's flags
        these are mistakes.

    """

    words: Sequence[str]
    gpus: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    script: Sequence[str] = ()
    options: Container[str] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """How a command is run, and how its ranks are told apart.

    Parameters
    ----------
    start
        The launcher, with what it is told by us.
    rest
        What follows: its flags as typed, and the program.
    logging
        Flags between the two that have each rank write to files of its own; `{logs}` stands for their folder.
    logging_variables
        Variables that do so.
    ranks
        How many processes the launcher starts, where each writes to files of its own; else 0.
    logs
        The files of rank `{rank}`: patterns below the folder.
    notes
        What the user should know, a sentence each.

    """

    start: tuple[str, ...]
    rest: tuple[str, ...]
    logging: tuple[str, ...] = ()
    logging_variables: Mapping[str, str] = field(default_factory=dict)
    ranks: int = 0
    logs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """The command by itself, as it can be typed in a shell."""
        return [*self.start, *self.rest]

    def command_with_logs(self, folder: str) -> list[str]:
        """Return the command with which ranks write to files in a folder."""
        return [*self.start, *(word.format(logs=folder) for word in self.logging), *self.rest]
