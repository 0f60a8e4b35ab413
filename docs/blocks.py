"""Runs the code blocks of the README and the documentation, and compares or renews their outputs.

The blocks of a page run in order in one kernel, which works on the machine that the page names:

    <!-- machine: 8xA100-80GB clock=0 -->   a simulated one; it is the default
    <!-- machine: accelerator -->           a simulated one, and PyTorch has the tests' pretend accelerator
    <!-- machine: accelerator as cuda -->   the same, and its devices are shown as an NVIDIA GPU's would be
    <!-- machine: driver -->                the tests' driver libraries in C: CUDA can be started there
    <!-- machine: cupy -->                  the tests' stand-in for CuPy

`ipython` and `python` blocks are cells. `console` blocks are commands after `$`, with their output. A `text`
block directly below a cell is its output. A comment before a block gives the reason why no test runs it. A
comment that starts with `hidden` is a cell that readers do not see:

    <!-- not run: needs Slurm -->
    <!-- hidden
    import os
    -->

Usage: python -m docs.blocks [PAGE ...]      (renews outputs that differ; without PAGE, of all pages)
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import nbformat

__all__ = ["CELLS", "Block", "Result", "blocks_of", "pages", "renewed", "run", "same"]

ROOT = Path(__file__).parent.parent
CELLS = ("ipython", "python")
MACHINE = "8xA100-80GB clock=0"
LIMIT = 600  # seconds, against hanging only
_FENCE = re.compile(r"^(?P<indent>\s*)(?P<ticks>`{3,}) ?(?P<language>\w*)[^`]*$")
_MARK = re.compile(r"<!-- not run: (.*?) -->")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Block:
    """A block of code in a page.

    Parameters
    ----------
    language
        Behind the opening fence; `hidden` for a cell in a comment.
    code
        Its text, without the indent of the fence.
    line
        The number of its first line, the fence.
    end
        The number of the line after it.
    indent
        That of the fence.
    reason
        Why it is not run; empty where it is run, or is an output.
    output
        The block below that shows what this one prints.

    """

    language: str
    code: str
    line: int
    end: int
    indent: str = ""
    reason: str = ""
    output: Block | None = None


@dataclass(frozen=True)
class Result:
    """The output of a block, and whether it failed."""

    block: Block
    printed: str
    has_failed: bool = False


def pages() -> list[Path]:
    """Return the README and the pages of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in order; an output stands in the block above it."""
    found: list[Block] = []
    for block in _raw_blocks(page.read_text(encoding="utf-8").split("\n")):
        last = found[-1] if found else None
        is_output = block.language == "text" and not block.reason and last is not None
        if is_output and last and last.language in CELLS and not last.reason and last.output is None:
            found[-1] = replace(last, output=block)
        else:
            found.append(block)
    return found


def _raw_blocks(lines: list[str]) -> Iterator[Block]:
    reason, at = "", 0
    while at < len(lines):
        line = lines[at]
        if line.strip() == "<!-- hidden":
            end = next(place for place in range(at, len(lines)) if lines[place].strip() == "-->")
            yield Block("hidden", "\n".join(lines[at + 1 : end]), at, end + 1)
            at = end + 1
        elif mark := _MARK.search(line):
            reason, at = mark[1], at + 1
        elif fence := _FENCE.match(line):
            indent, ticks = fence["indent"], fence["ticks"]
            end = next(place for place in range(at + 1, len(lines)) if lines[place].strip() == ticks)
            code = "\n".join(one.removeprefix(indent) for one in lines[at + 1 : end])
            yield Block(fence["language"], code, at, end + 1, indent, reason)
            reason, at = "", end + 1
        else:
            reason, at = reason if not line.strip() else "", at + 1


def run(page: Path, environment: Mapping[str, str]) -> Iterator[Result]:
    """Run the blocks of a page in a new folder, and yield the result of each.

    Parameters
    ----------
    page
        The page.
    environment
        The variables that the kernel, and commands, are started with.

    """
    blocks = [
        one for one in blocks_of(page) if one.language in (*CELLS, "hidden", "console") and not one.reason
    ]
    if not blocks:
        return
    import nbformat  # over a second, which those who only read pages need not wait for
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
    from traitlets.config import Config

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as sockets:
        book = nbformat.v4.new_notebook()
        # Sockets, and no ports: one that is free when it is picked can be taken when the kernel starts.
        # The connection file has a name as in JupyterLab, so that the kernel says what it says there.
        named = {"ip": f"{sockets}/kernel", "connection_file": f"{sockets}/kernel-docs.json"}
        config = Config({"KernelManager": {"transport": "ipc", **named}})
        client = NotebookClient(
            book,
            timeout=LIMIT,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            config=config,
        )
        with client.setup_kernel(env=dict(environment)):
            for block in blocks:
                if block.language == "console":
                    yield _run_commands(block, folder, environment)
                    continue
                cell = nbformat.v4.new_code_cell(block.code)
                book.cells.append(cell)
                has_failed = False
                try:
                    client.execute_cell(cell, len(book.cells) - 1)
                except CellExecutionError:
                    has_failed = True
                printed = _printed(cell)
                if machine_of(page).endswith(" as cuda"):
                    printed = re.sub(r"\bpretend(?=:\d|')", "cuda", printed)
                yield Result(block, printed, has_failed)


def _printed(cell: nbformat.NotebookNode) -> str:
    """Return the output of a cell as one text."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        elif output.output_type == "error":
            parts.append(f"{output.ename}: {output.evalue}\n")
        else:
            parts.append(output.data.get("text/plain", "").rstrip("\n") + "\n")
    return _ANSI.sub("", "".join(parts)).strip("\n")


def _run_commands(block: Block, folder: str, environment: Mapping[str, str]) -> Result:
    """Run the commands of a `console` block, and return the block as a terminal shows it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    shown, has_failed = [], False
    for command in re.findall(r"^\$ (.*(?:\\\n.*)*)", block.code, re.MULTILINE):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**environment, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LIMIT,
        )
        shown.append(f"$ {command}\n{done.stdout}".rstrip("\n"))
        has_failed |= done.returncode != 0
    return Result(block, "\n".join(shown), has_failed)


# What differs from run to run: times, process numbers, users, folders; and with a real process, memory.
_TIMES = [
    (r"Largest batch: (at least )?\d+\.", "Largest batch: N."),  # found within a time
    (r"\b\d\d:\d\d(:\d\d)?\b", "TIME"),
    (r"[\d.,]+ (µs|ms|s|min|h|d|days)\b", "DURATION"),
    (r"\bclaimed by \w+", "claimed by OWNER"),
    (r"/[\w./-]+/bin/(?=\w)", ""),  # where a program is
    (r"(/tmp|/var/tmp)/[\w./-]+", "/tmp/FOLDER"),
    (r"(PID|pid) \d+", r"\1 NUMBER"),
    (r"\d+ % busy, idle for DURATION", "BUSY"),
    (r"too short to tell how busy", "BUSY"),
    (r"\d+ % busy, (?=peak)", ""),  # of a cell that takes a second by chance
    (r"[\d.,]+ J\b", "ENERGY"),
    (r"(PyTorch|TensorFlow|JAX|Keras) \d+\.\d+\.\d+[\w+.]*", r"\1 VERSION"),
    (r" +", " "),
    (r"-{4,}", "----"),
]
_SIZES = [
    (r"[\d.,]+ (bytes|KiB|MiB|GiB|TiB)", "SIZE"),
]


def _sanitized(text: str, *, has_sizes: bool) -> str:
    for pattern, name in (*_TIMES, *([] if has_sizes else _SIZES)):
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()


def same(shown: str, printed: str, machine: str = MACHINE) -> bool:
    """Return whether a page shows the output. A line `…` stands for any lines."""
    has_sizes = not machine.startswith(("accelerator", "driver"))  # PyTorch's own can differ by version
    wanted, got = (_sanitized(text, has_sizes=has_sizes) for text in (shown, printed))
    pieces = [re.escape(piece) for piece in re.split(r"^…$", wanted, flags=re.MULTILINE)]
    return re.fullmatch(r"(?s:.*?)".join(pieces), got) is not None


def machine_of(page: Path) -> str:
    """Return the machine that a page names."""
    found = re.search(r"<!-- machine: (.*?) -->", page.read_text(encoding="utf-8"))
    return found[1] if found else MACHINE


def environment_of(page: Path, folder: Path) -> dict[str, str]:
    """Return the variables for the blocks of a page, on its machine; `folder` is for their files."""
    from tests.machine import CARDS, Driver, clean_environment
    from tests.native import SOURCES, build, environment

    os.environ.setdefault("GPU_MAGIC_CLAIMS", str(folder / "claims"))
    machine = machine_of(page)
    variables = clean_environment() | {
        "PYTHONPATH": str(ROOT),
        "GPU_MAGIC_CLAIMS": str(folder / "claims"),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JPY_SESSION_NAME": str(folder / "train.ipynb"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "KERAS_BACKEND": "tensorflow",
        "COLUMNS": "120",
    }
    if machine == "driver":
        Driver(CARDS).write(folder / "machine")
        return variables | environment(build(folder / "native"), folder / "machine")
    if machine.startswith("accelerator"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.native"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        machine = machine.removeprefix("accelerator").removesuffix("as cuda").strip() or MACHINE
        return variables | {"PYTHONPATH": done.stdout.strip(), "GPU_MAGIC_SIMULATE": machine}
    if machine == "cupy":
        variables["PYTHONPATH"] = f"{ROOT}{os.pathsep}{SOURCES / 'standin'}"
        machine = MACHINE
    return variables | {"GPU_MAGIC_SIMULATE": machine}


def renewed(page: Path, results: list[Result]) -> str:
    """Return a page with new outputs in place of those that differ."""
    lines = page.read_text(encoding="utf-8").split("\n")
    machine = machine_of(page)
    for block, printed in reversed([(one.block, one.printed) for one in results]):
        shown = block if block.language == "console" else block.output
        if shown is None or same(shown.code, printed, machine):
            continue
        lines[shown.line + 1 : shown.end - 1] = [
            f"{shown.indent}{line}".rstrip() for line in printed.split("\n")
        ]
    return "\n".join(lines)


def main(chosen: list[Path]) -> None:
    """Renew the outputs of pages, and print the changes and the blocks that failed unexpectedly."""
    for page in chosen:
        folder = Path(tempfile.mkdtemp(prefix="docs-"))
        try:
            results = list(run(page, environment_of(page, folder)))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for one in results:
            if one.has_failed and one.block.output is None:
                print(f"{page}:{one.block.line + 1}: failed\n{one.printed}")
        before, after = page.read_text(encoding="utf-8"), renewed(page, results)
        page.write_text(after, encoding="utf-8")
        print(f"{page}: {len(results)} blocks")
        print(*difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=0), sep="\n")


if __name__ == "__main__":
    main([Path(name).resolve() for name in sys.argv[1:]] or pages())
