"""Writes the reference of the magics and of the command line, from their own help and tables of options.

Usage: python -m docs.reference      (a test fails if a page is old)
"""

from __future__ import annotations

import html
import inspect
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.command_line import ACTIONS, EXAMPLES
from gpu_magic.option_table import OPTIONS, Kind
from gpu_magic.shell.extension import MAGICS, GpuMagics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["PAGES"]

FOLDER = Path(__file__).parent / "reference"
_GENERATED = "<!-- Written by `python -m docs.reference`: change the help in the source, and run it. -->\n"
_JSON = [
    (
        "picked",
        (
            "the GPUs in the order of `cuda:i`: `index` (null for a MIG instance), `gpu`, `uuid`, `name`, "
            "`simulated`. null if none"
        ),
    ),
    (
        "variables",
        "for each command: `CUDA_VISIBLE_DEVICES` and the other variables of its GPUs",
    ),
    (
        "holders",
        (
            "the picked GPUs that other processes use or claim. "
            "If nothing was started because GPUs are not free: all GPUs that other processes use or claim"
        ),
    ),
    ("error", "only if nothing was started: the error message, as on stderr"),
    (
        "retry_after",
        "only if nothing was started: seconds until the next try, or null if waiting cannot help",
    ),
]
_STATUSES = [
    ("N", "the command ended with N"),
    (
        "2",
        "nothing was started, because an argument is wrong (`retry_after` is null) or the GPUs are not free",
    ),
    ("127", "the program exists, but the system cannot start it"),
    ("128 + N", "signal N ended the command"),
    ("130", "an interrupt ended the command, or the wait for its GPUs"),
]


def magics() -> str:
    """Return the page of the magics."""
    parts = [
        "# Magics\n",
        _GENERATED,
        (
            "In a notebook, `%gpus?` prints the help of `%gpus`. You can shorten an option that does no "
            "harm if no other option starts with the same letters. The value of an option follows a space or "
            "`=`.\n"
        ),
    ]
    for name, (kinds, module, class_) in MAGICS.items():
        method = getattr(getattr(import_module(f"gpu_magic.{module}"), class_), name)
        forms = " and ".join(f"{'%' * (1 + (kind == 'cell'))}{name}" for kind in kinds)
        command = f"%{name}" if f"%{name}" in OPTIONS else f"%%{name}"
        text = (inspect.getdoc(method) or "").replace("{options}", _options(command).rstrip())
        parts += [f"## {forms} {{#{name}}}\n", f"{text}\n"]
    parts += ["## In IPython's configuration {#configuration}\n"]
    parts += [
        (
            "Set an option in `ipython_config.py`: `c.GpuMagics.claims = False`. For this kernel alone, type "
            "`%config GpuMagics.claims = False`. `%config GpuMagics` shows all options.\n"
        )
    ]
    traits = GpuMagics.class_own_traits(config=True)
    rows = [(f"c.GpuMagics.{name} = {trait.default_value!r}", trait.help) for name, trait in traits.items()]
    parts += [_table(("name and default", "means"), rows)]
    return "\n".join(parts)


def commands() -> str:
    """Return the page of the command line."""
    show = [(f"gpu-magic {name}{after}".strip(), does) for name, (after, does) in ACTIONS.items()]
    parts = [
        "# Command line\n",
        _GENERATED,
        _table(("typed in a shell", "does"), show),
        "Each action has `--help`.\n",
        _options("gpu-magic"),
        "## gpu-magic launch {#launch}\n",
        "Write the options before the command. The exit status is [below](#exit-status).\n",
        _options("gpu-magic launch"),
        "### JSON for programs {#json}\n",
        (
            "`--json` prints one line on stdout before the command runs. The command's output follows "
            "the line. An entry of `holders` is a GPU as in `gpu-magic --json`, with its processes and "
            "claims.\n"
        ),
        _table(("key", "value"), _JSON),
        "### Exit status {#exit-status}\n",
        _table(("exit status", "means"), _STATUSES),
        "## gpu-magic ps {#ps}\n",
        _options("gpu-magic ps"),
        "See [idle GPUs](../how-to/idle-gpus.md#list-idle-processes).\n",
        "## gpu-magic doctor {#doctor}\n",
        _options("gpu-magic doctor"),
        "## gpu-magic kernel install {#kernel}\n",
        _options("gpu-magic kernel install"),
        "See [start a kernel with its GPU](../how-to/kernels.md).\n",
        "## gpu-magic kernel list and kernel remove {#kernels}\n",
        _options("gpu-magic kernel list"),
        "## Examples\n",
        "<!-- not run: examples of the program's own help -->",
        "```console",
        *(f"$ {typed}" for typed in EXAMPLES),
        "```\n",
        "`python -m gpu_magic` is the same program. See [launch scripts](../how-to/launching.md).\n",
    ]
    return "\n".join(parts)


PAGES = {FOLDER / "magics.md": magics, FOLDER / "command-line.md": commands}


def _options(command: str) -> str:
    """Return the table of a command's options."""
    options = OPTIONS[command].values()
    rows = [
        (
            one.forms,
            f"{one.help}. {one.more}" if one.more else one.help,
            "" if one.kind is Kind.FLAG else one.takes,
        )
        for one in options
    ]
    return _table(("option", "means", "value"), rows) if rows else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, whose first column is code."""
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for typed, *texts in rows:
        cells = [_code(typed), *(text.replace("|", "&#124;") for text in texts)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _code(typed: str) -> str:
    """Return code for a cell of a table. Renderers of Markdown differ in the escape of a bar in code."""
    return f"<code>{html.escape(typed).replace('|', '&#124;')}</code>" if "|" in typed else f"`{typed}`"


if __name__ == "__main__":
    for page, write in PAGES.items():
        page.write_text(write(), encoding="utf-8")
