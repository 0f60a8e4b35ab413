"""Tells users of cells that name CUDA_VISIBLE_DEVICES and change nothing in this kernel."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from gpu_magic.errors import ChoiceError, GpuMagicError
from gpu_magic.gpus.apply import check_asked, read_asked
from gpu_magic.gpus.options import Options
from gpu_magic.process.environment import misspelt, variables_now
from gpu_magic.process.mask import NAMES, ORDER, Flaw
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["without_effect"]

_SHELL_LINE = re.compile(r"^\s*(?:\w+\s*=\s*)?(?:!!?|%sx\s|%system\s)(.*)$", re.MULTILINE)
_SHELL_CELL = re.compile(r"\s*%%(?:bash|sh|system|sx|!|script\s+\S*sh)\b[^\n]*\n(.*)", re.DOTALL)
_ASSIGNS = re.compile(r"(?:export\s+|set\s+)?\w+=\S*(?:\s+\w+=\S*)*")  # takes linear time
_VALUE = re.compile(rf"\b({'|'.join(name for name in NAMES if name != ORDER)})=[\"']?([^\s\"';&]*)")


def without_effect(cell: str) -> Iterator[str]:
    """Return sentences about the parts of a cell, as typed, that set a variable without an effect here.

    A command after the variable, `!CUDA_VISIBLE_DEVICES=1 python train.py`, has the variable.
    """
    whole = _SHELL_CELL.match(cell)
    for commands in [whole[1]] if whole else [found[1] for found in _SHELL_LINE.finditer(cell)]:
        lines = (part.strip() for part in re.split(r"\n|;|&&", commands))
        typed = [line for line in lines if line and not line.startswith("#")]
        if (set_ := _VALUE.search(commands)) and all(map(_ASSIGNS.fullmatch, typed)):
            what = f"{set_[1]} was set in a shell that has ended, and not in this kernel."
            yield f"{what}{_with_command(' Try', set_[2])}"
    for name, meant in misspelt(os.environ).items():
        if re.search(rf"\b{re.escape(name)}\b", cell):
            what = f"Nothing reads the variable {name}: it is spelled {meant}."
            yield f"{what}{_with_command(' Try', os.environ[name])}"
    session, now = current(), variables_now()
    if any(name in cell for name in NAMES) and now not in (session.noted, session.inherited):
        session.noted = now
        with suppress(GpuMagicError):  # %gpus shows why nothing can be read
            for note in Snapshot.of(session, session.reader.inventory()).notes:
                is_changed = note.flaw is Flaw.CHANGED
                works = _with_command(" For what works now:", now.mask or "all") if is_changed else ""
                yield from [] if note.is_past else [f"{note}{works}"]


def _with_command(lead: str, value: str) -> str:
    """Return the `%gpus` for a value of CUDA_VISIBLE_DEVICES, or another one if that is refused here."""
    session = current()
    refusal = ChoiceError("", ways=["none" if value in ("", "-1") else value])
    refusal.keep_ways(lambda way: check_asked(session, read_asked(session, way, Options())))
    return "".join(f"{lead} %gpus {way}" for way in refusal.ways)
