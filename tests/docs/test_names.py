"""What pages tell readers to type exists: magics, options, commands, functions, settings and variables."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from IPython.core.interactiveshell import InteractiveShell

import gpu_magic
from docs.blocks import blocks_of, pages
from gpu_magic.command_line import ACTIONS
from gpu_magic.option_table import OPTIONS
from gpu_magic.server.idle_kernels import GpuMagic
from gpu_magic.shell.extension import MAGICS, GpuMagics
from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

# A command ends where the program that it starts begins, or another command.
ENDS = re.compile(r"\s(?:--|\||&&|#|python\S*|torchrun|accelerate|deepspeed|mpirun|uv|…)(?:\s|$)")
EVERYWHERE = {"--help", "--version"}
SOURCE = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "gpu_magic").rglob("*.py"))
VARIABLES = set(re.findall(r"GPU_MAGIC_[A-Z]+", SOURCE))
LOGGERS = set(re.findall(r'getLogger\("gpu_magic\.(\w+)"\)', SOURCE))


@cache
def options_of(command: str) -> set[str]:
    """Return the options of a command of ours, in all their forms."""
    known = OPTIONS.get(f"%{command}", OPTIONS.get(f"%%{command}", OPTIONS.get(command, {})))
    return {form for one in known.values() for form in re.findall(r"(?<!\w)--?[a-z][\w-]*", one.forms)}


@cache
def magics() -> set[str]:
    """Return the names of ours, of IPython's and of ipyparallel's."""
    of_ipython = InteractiveShell.instance().magics_manager.magics
    return {*MAGICS, *of_ipython["line"], *of_ipython["cell"], "px", "autopx", "pxconfig"}


def unknown_in(code: str) -> Iterator[str]:
    """Yield what a line of code names as ours, and is not there."""
    for name in re.findall(r"(?<![\w%])%%?([a-z]\w+)", code):
        if name not in magics():
            yield f"%{name}"
    for action in re.findall(r"(?<![\w./-])gpu-magic ((?:kernel )?[a-z]+)(?![\w./-])", code):
        if action not in ACTIONS:
            yield f"gpu-magic {action}"
    for name in re.findall(r"(?<![\w./-])gpu_magic\.(\w+)", code):
        if name not in LOGGERS and not hasattr(gpu_magic, name) and find_spec(f"gpu_magic.{name}") is None:
            yield f"gpu_magic.{name}"
    for kind, name in re.findall(r"\b(GpuMagics?)\.(\w+)", code):
        if name not in {"GpuMagics": GpuMagics, "GpuMagic": GpuMagic}[kind].class_trait_names():
            yield f"{kind}.{name}"
    commands = "|".join(
        sorted((one for one in OPTIONS if one.startswith("gpu-magic")), key=len, reverse=True)
    )
    for magic, command, rest in re.findall(rf"(?:%%?(\w+)|(?<![\w./-])({commands}))(?=\s|$)([^%`]*)", code):
        if magic and magic not in MAGICS:
            continue
        known = options_of(magic or command)
        for option in re.findall(r"(?<=\s)(--[a-z][\w-]*)", ENDS.split(f"{rest} ")[0]):
            if option not in known and option not in EVERYWHERE:
                yield f"{magic or command} {option}"


def test_nothing_is_named_that_is_gone() -> None:
    everywhere = {form for command in OPTIONS for form in options_of(command)} | EVERYWHERE
    gone = []
    for page in pages():
        text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT)
        blocks = [block for block in blocks_of(page) if block.language not in ("text", "hidden")]
        plain = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.MULTILINE | re.DOTALL)
        spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", plain)
        lines = [*spans, *(line for block in blocks for line in block.code.splitlines())]
        gone += [f"{name}: {one}" for line in lines for one in unknown_in(line)]
        alone = {span.split()[0].partition("=")[0] for span in spans if re.match(r"--[a-z]", span)}
        gone += [f"{name}: {option}" for option in sorted(alone - everywhere)]
        gone += [f"{name}: {one}" for one in sorted(set(re.findall(r"GPU_MAGIC_[A-Z]+", text)) - VARIABLES)]
    assert gone == []


@pytest.mark.parametrize(
    ("code", "unknown"),
    [
        ("%gpu_share 2", ["%gpu_share"]),
        ("%%gpu_launch --in x --each python train.py --in y", ["gpu_launch --in"]),
        ("%gpus auto:2 --only-free --hosts 3", ["gpus --hosts"]),
        ("gpu-magic serve", ["gpu-magic serve"]),
        ("gpu-magic kernel install --name a --policy b", ["gpu-magic kernel install --policy"]),
        ("gpu_magic.hint(); gpu_magic.testing.simulate()", ["gpu_magic.hint"]),
        ("c.GpuMagics.notes = True; c.GpuMagic.cull_idle_gpu = '4h'", ["GpuMagics.notes"]),
        ("%gpu_launch torchrun --nproc-per-node 2 train.py", []),
        ("%timeit x % 3", []),
    ],
)
def test_a_name_that_is_gone_is_found(code: str, unknown: list[str]) -> None:
    assert list(unknown_in(code)) == unknown
