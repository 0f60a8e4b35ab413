"""Writes the reference of the magics and of the command line, from their own help and tables of options.

Usage: python -m docs.reference      (a test fails if a page is old)
"""

from __future__ import annotations

import html
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic import command_line
from gpu_magic.shell.arguments import FLAG, OPTIONS
from gpu_magic.shell.extension import MAGICS, GpuMagics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.shell.arguments import Kind

__all__ = ["PAGES"]

FOLDER = Path(__file__).parent / "reference"
_GENERATED = "<!-- Written by `python -m docs.reference`: change the help in the source, and run it. -->\n"
_TAKES = {
    "word": "a value without spaces",
    "optional": "a name, or nothing",
    "text": "all words up to the next option",
    "pairs": "`NAME=value`, several times",
    "list": "names or numbers, with commas",
}


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
            "In a notebook, `%gpus?` prints the help of `%gpus`. You can shorten an option if no other "
            "option starts with the same letters. The value of an option follows a space or `=`.\n"
        ),
    ]
    for name, (kinds, module, class_) in MAGICS.items():
        method = getattr(getattr(import_module(f"gpu_magic.{module}"), class_), name)
        forms = " and ".join(f"{'%' * (1 + (kind == 'cell'))}{name}" for kind in kinds)
        parts += [f"## {forms} {{#{name}}}\n", *_help(inspect.getdoc(method) or "")]
        options = OPTIONS.get(f"%{name}") or OPTIONS.get(f"%%{name}") or {}
        if rows := [(option, _takes(kind)) for option, kind in options.items() if kind != FLAG]:
            parts += ['??? note "Values of the options"\n', _indented(_table("option", "value", rows))]
    parts += ["## In IPython's configuration {#configuration}\n"]
    parts += [
        (
            "Set an option in `ipython_config.py`: `c.GpuMagics.claims = False`. For this kernel alone, type "
            "`%config GpuMagics.claims = False`. `%config GpuMagics` shows all options.\n"
        )
    ]
    traits = GpuMagics.class_own_traits(config=True)
    rows = [(f"c.GpuMagics.{name} = {trait.default_value!r}", trait.help) for name, trait in traits.items()]
    parts += [_table("name and default", "means", rows)]
    return "\n".join(parts)


def commands() -> str:
    """Return the page of the command line."""
    show = [
        ("gpu-magic", "show the table of `%gpus`"),
        (
            "gpu-magic --json",
            (
                "print the GPUs as JSON, in bytes, percent, degrees Celsius and watts. An unknown figure is "
                "null. The exit status is 1 if no GPU can be read"
            ),
        ),
        ("gpu-magic --version", "print the version"),
        ("gpu-magic launch … -- COMMAND", "run a command on GPUs"),
        (
            "gpu-magic doctor",
            (
                "find errors of the GPU set-up, and commands that fix them. "
                "The exit status is 1 if there is an error"
            ),
        ),
        ("gpu-magic doctor --report", "print a text for an issue, without names and paths"),
        ("gpu-magic doctor --json", "print the result and all facts as JSON"),
        ("gpu-magic kernel install", "add a Jupyter kernel that starts with GPUs"),
        ("gpu-magic kernel list", "list the added kernels, and print which of them cannot start"),
        ("gpu-magic kernel remove NAME", "remove a kernel"),
    ]
    parts = [
        "# Command line\n",
        _GENERATED,
        _table("typed in a shell", "does", show),
        "## gpu-magic launch {#launch}\n",
        "Write the options before the command. The exit status is [below](#exit-status).\n",
        _table("option", "means", list(command_line.LAUNCH_OPTIONS.items())),
        "### JSON for programs {#json}\n",
        (
            "`--json` prints one line on stdout before the command runs. The command's output follows "
            "the line. An entry of `holders` is a GPU as in `gpu-magic --json`, with its processes and "
            "claims.\n"
        ),
        _table("key", "value", _JSON),
        "### Exit status {#exit-status}\n",
        _table("exit status", "means", _STATUSES),
        "## gpu-magic kernel install {#kernel}\n",
        _table("option", "means", list(command_line.KERNEL_OPTIONS.items())),
        (
            "`kernel list` and `kernel remove` also accept `--prefix FOLDER`. See [start a kernel with its "
            "GPU](../how-to/kernels.md).\n"
        ),
        "## Examples\n",
        "<!-- not run: examples of the program's own help -->",
        "```console",
        *(f"$ {line}" for line in _examples()),
        "```\n",
        "`python -m gpu_magic` is the same program. See [launch scripts](../how-to/launching.md).\n",
    ]
    return "\n".join(parts)


PAGES = {FOLDER / "magics.md": magics, FOLDER / "command-line.md": commands}


def _examples() -> list[str]:
    """Return the commands of the examples, without the comments behind them."""
    return [line.strip().partition("  ")[0] for line in command_line.EXAMPLES.strip().split("\n")[1:]]


def _help(text: str) -> Iterator[str]:
    """Yield the parts of a magic's help: paragraphs, and tables of commands and their meanings."""
    for paragraph in text.split("\n\n"):
        lines = paragraph.split("\n")
        if re.match(r"%|-\w|--\w", lines[0]):
            yield _table("option" if lines[0].startswith("-") else "typed", "means", list(_entries(lines)))
        else:
            yield "\n".join(_escaped(line) for line in lines) + "\n"


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the command and its meaning from lines in two columns. The second column can continue below."""
    columns = [len(line) - len(line.lstrip()) for line in lines if line.startswith(" ")]
    columns += [found.end() for line in lines if (found := re.match(r"\S.*?\S {2,}(?=\S)", line))]
    column = max(set(columns), key=columns.count)
    typed, meaning = "", ""
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith(" "):
            meaning = f"{meaning} {line.strip()}".strip()
            continue
        if typed:
            yield typed, meaning
        if found := re.match(r"(\S.*?\S|\S) {2,}(.*)", line):
            typed, meaning = found[1], found[2]
        elif len(line) > column and line[column - 1] == " " and not below.startswith(" "):
            typed, meaning = line[:column].strip(), line[column:]
        else:
            typed, meaning = line, ""
    yield typed, meaning


def _takes(kind: Kind) -> str:
    return _TAKES[kind] if isinstance(kind, str) else " or ".join(f"`{one}`" for one in kind)


def _table(first: str, second: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {first} | {second} |", "| --- | --- |"]
    lines += [f"| {_code(typed)} | {_escaped(means).replace('|', '&#124;')} |" for typed, means in rows]
    return "\n".join(lines) + "\n"


def _code(typed: str) -> str:
    """Return code for a cell of a table. Renderers of Markdown differ in the escape of a bar in code."""
    return f"<code>{html.escape(typed).replace('|', '&#124;')}</code>" if "|" in typed else f"`{typed}`"


# Code in a text without markup: magics with their arguments, options, settings.
_CODE = re.compile(
    r"(?<![\w`])(%load_ext gpu_magic|%gpu_tasks wait train, eval"
    r"|%{1,2}[a-z_]+\?{0,2}(?: (?:\d[\d,]*\b|--[a-z-]+(?: \d\w*)?|on\b|off\b|auto\b))*"
    r"|--[a-z][a-z-]*(?: \d\w*)?|CUDA_[A-Z_]+"
    r"|cuda:\d)"
)


def _escaped(text: str) -> str:
    """Return plain text as Markdown, with code marked as code and no other markup."""
    return "".join(
        part if part.startswith("`") else part.replace("*", r"\*").replace("<", "&lt;")
        for word in re.split(r"(`[^`]*`)", text)
        for part in re.split(r"(`[^`]*`)", word if word.startswith("`") else _CODE.sub(r"`\1`", word))
    )


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.split("\n"))


if __name__ == "__main__":
    for page, write in PAGES.items():
        page.write_text(write(), encoding="utf-8")
