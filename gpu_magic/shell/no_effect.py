"""Tells users of cells that name CUDA_VISIBLE_DEVICES and change nothing in this kernel."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from gpu_magic.errors import ChoiceError, GpuMagicError
from gpu_magic.gpus.apply import check_asked, read_asked
from gpu_magic.gpus.options import Options
from gpu_magic.process.environment import launch_environment, misspelt, variables_now
from gpu_magic.process.mask import FASTEST, NAMES, ORDER, PCI, Flaw
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["without_effect"]

_MASKS = "|".join(name for name in NAMES if name != ORDER)
_SHELL_LINE = re.compile(r"^\s*(?:\w+\s*=\s*)?(?:!!?|%sx\s|%system\s)(.*)$", re.MULTILINE)
_SHELL_CELL = re.compile(r"\s*%%(?:(?:bash|sh|system|sx|script\b[^\n]*sh)\b|!)[^\n]*\n(.*)", re.DOTALL)
_SHELL_CALL = re.compile(r"\b(?:system|popen|Popen|run|call|check_\w+|get\w*output)\(\s*f?([\"'])([^\n]*?)\1")
# Commands that use no GPU: they set variables, or show something (nvidia-smi does not read these variables).
_ASSIGNS = re.compile(r"(?:export\s+|set\s+)?\w+=\S*(?:\s+\w+=\S*)*|unset\s+\w+")  # takes linear time
_SHOWS = re.compile(r"(?:echo|printenv|nvidia-smi)\b.*|env(?:\s*\|.*)?")
_VALUE = re.compile(rf"\b({_MASKS})=[\"']?([^\s\"';&]*)|\bunset\s+({_MASKS})\b")
_VARIABLE = re.compile(rf"^({_MASKS})\s*=\s*[\"']?([\w,-]*)[\"']?\s*(?:#.*)?$", re.MULTILINE)
_CONTAINER = "NVIDIA_VISIBLE_DEVICES"


def without_effect(cell: str) -> Iterator[str]:
    """Return sentences about the parts of a cell, as typed, that set a variable without an effect here.

    A command after the variable, `!CUDA_VISIBLE_DEVICES=1 python train.py`, has the variable.
    """
    yield from _in_shells(cell)
    is_python = not cell.lstrip().startswith("%%") and "environ" not in cell
    if is_python and (set_ := _VARIABLE.search(cell)):
        what = f"{set_[1]} is only a variable of Python here, and CUDA does not read it."
        yield f"{what}{_with_command(' Try', set_[2])}"
    for name, meant in misspelt(os.environ).items():
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", cell):
            shown = name if name == name.strip() else repr(name)
            what = f"Nothing reads the variable {shown}: it is spelled {meant}."
            yield f"{what}{_with_command(' Try', os.environ[name])}"
    value = os.environ.get(_CONTAINER)
    if _CONTAINER in cell and value not in (None, launch_environment().get(_CONTAINER)):
        what = f"{_CONTAINER} has an effect only when a container starts."
        yield f"{what}{_with_command(' Try', value or '')}"
    session, now = current(), variables_now()
    if ORDER in cell and now.order not in (None, PCI, FASTEST):
        shown = f"{ORDER}={shortened(now.order, 20)}"
        yield f"{shown} is neither {PCI} nor {FASTEST}, so CUDA uses its default. Try %env {ORDER}={PCI}"
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


def _in_shells(cell: str) -> Iterator[str]:
    """Return sentences about variables that shells set or remove before they end, for no command."""
    whole = _SHELL_CELL.match(cell)
    typed = [whole[1]] if whole else [found[1] for found in _SHELL_LINE.finditer(cell)]
    for commands in [*typed, *(found[2] for found in _SHELL_CALL.finditer(cell) if not whole)]:
        lines = [part.strip() for part in re.split(r"\n|;|&&", commands)]
        others = [
            line for line in lines if line and not line.startswith("#") and not _ASSIGNS.fullmatch(line)
        ]
        found = _VALUE.search("\n".join(filter(_ASSIGNS.fullmatch, lines)))
        if not found or not all(map(_SHOWS.fullmatch, others)):
            continue
        if name := found[1]:
            what = f"{name} was set in a shell that has ended, and not in this kernel."
            yield f"{what}{_with_command(' Try', found[2])}"
        elif os.environ.get(name := found[3]) is not None:
            yield f"{name} was removed in a shell that has ended, and not in this kernel. Try %gpus reset"
