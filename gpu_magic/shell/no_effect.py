"""Tells users of cells that name CUDA_VISIBLE_DEVICES and change nothing in this kernel."""

from __future__ import annotations

import ast
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from IPython.core.inputtransformer2 import TransformerManager

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

_MASKS = tuple(name for name in NAMES if name != ORDER)
# What runs a text in a shell: functions, also those of `subprocess` with `shell=True`, and magics of IPython.
_SHELL_CALLS = ("system", "popen", "getoutput", "getstatusoutput")
_SHELL_MAGICS = ("bash", "sh", "system", "sx", "!")
# Magics that run their cell as Python.
_PYTHON_CELLS = ("capture", "gpu_time", "on_gpu", "prun", "time", "timeit")
# Commands that use no GPU: they set variables, or show something (nvidia-smi does not read these variables).
_ASSIGNS = re.compile(r"(?:export\s+|set\s+)?\w+=\S*(?:\s+\w+=\S*)*|unset\s+\w+")  # takes linear time
_SHOWS = re.compile(r"(?:echo|printenv|nvidia-smi)\b[^|(`]*|env(?:\s*\|\s*grep\b[^(`]*)?")
_VALUE = re.compile(r"\b({0})=[\"']?([^\s\"';&]*)|\bunset\s+({0})\b".format("|".join(_MASKS)))
_CONTAINER = "NVIDIA_VISIBLE_DEVICES"


def without_effect(cell: str) -> Iterator[str]:
    """Return sentences about the parts of a cell, as typed, that set a variable without an effect here.

    A command after the variable, `!CUDA_VISIBLE_DEVICES=1 python train.py`, has the variable.
    """
    statements = _statements(cell)
    yield from _in_shells(statements)
    yield from _in_python(statements)
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


def _statements(cell: str) -> list[ast.stmt]:
    """Return the statements of a cell, with magics as calls. Empty if it is no valid Python."""
    try:
        return ast.parse(TransformerManager().transform_cell(cell)).body
    except (SyntaxError, ValueError):
        return []


def _in_python(statements: list[ast.stmt]) -> Iterator[str]:
    """Return sentences about variables of Python with such a name that the cell does not use."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    uses = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    uses += [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for node in statements:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=ast.Constant(value)) if name in _MASKS:
                if not any(name in text for text in uses):
                    what = f"{name} is only a variable of Python here, and CUDA does not read it."
                    yield f"{what}{_with_command(' Try', str(value))}"


def _in_shells(statements: list[ast.stmt]) -> Iterator[str]:
    """Return sentences about variables that shells set or remove before they end, for no command."""
    for commands in _texts_of_shells(statements):
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
            how = " Try %gpus reset" * (variables_now() != current().inherited)  # else it changes nothing
            yield f"{name} was removed in a shell that has ended, and not in this kernel.{how}"


def _texts_of_shells(statements: list[ast.stmt]) -> Iterator[str]:
    """Return what statements run in shells. The body of a function may not have run."""
    pending: list[ast.AST] = [*reversed(statements)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        pending += reversed(list(ast.iter_child_nodes(node)))
        match node:
            case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name), args=[_, *_] as typed):
                match name, *map(_text, typed):
                    case ["run_line_magic" | "run_cell_magic", magic, *_, text] if magic in _SHELL_MAGICS:
                        yield text
                    case ["run_cell_magic", "script", program, text] if re.search(r"sh\b", program):
                        yield text
                    case ["run_cell_magic", magic, *_, text] if magic in _PYTHON_CELLS:
                        yield from _texts_of_shells(_statements(text))
                    case [_, text, *_] if name in _SHELL_CALLS or any(
                        keyword.arg == "shell" for keyword in node.keywords
                    ):
                        yield text


def _text(node: ast.expr) -> str:
    """Return a text as it stands in the code. Empty for what is no text."""
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(parts):
            return "".join(_text(one) or "{}" for one in parts)
    return ""
