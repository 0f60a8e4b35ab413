"""Every code block of the README and of the documentation runs and prints what the page shows, or says why it is not run."""

from __future__ import annotations

import ast
import json
import subprocess
import tomllib
from collections import Counter
from configparser import ConfigParser
from typing import TYPE_CHECKING

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from docs.blocks import CELLS, blocks_of, environment_of, machine_of, pages, renewed, run, same
from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from docs.blocks import Block

PAGES = pages()
# Guides whose blocks load frameworks, or start launchers and engines: they take most of the time, and are run at night.
SLOW = "background cells-as-scripts cluster jax keras launching measuring moving out-of-memory package pytorch slurm tensorflow will-it-fit".split()

# The blocks that are not run, by page. Each says why in the page. Run a block rather than add one here.
NOT_RUN = {
    "README.md": 1,
    "docs/how-to/administrator.md": 4,
    "docs/how-to/amd.md": 2,
    "docs/how-to/cluster.md": 2,
    "docs/how-to/colab.md": 1,
    "docs/how-to/idle-gpus.md": 3,
    "docs/how-to/jupyterhub.md": 1,
    "docs/how-to/jupyterlab.md": 1,
    "docs/how-to/kernels.md": 4,
    "docs/how-to/launching.md": 2,
    "docs/how-to/logging.md": 2,
    "docs/how-to/marimo.md": 3,
    "docs/how-to/out-of-memory.md": 1,
    "docs/how-to/papermill.md": 1,
    "docs/how-to/park.md": 1,
    "docs/how-to/slurm.md": 1,
    "docs/how-to/terminal.md": 1,
    "docs/reference/command-line.md": 1,
    "docs/tutorial.md": 1,
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def check_syntax(block: Block) -> None:
    """Raise an error where a block is not written in its language."""
    if block.language in ("ipython", "python", "hidden"):
        ast.parse(TransformerManager().transform_cell(block.code))
    elif block.language in ("bash", "console"):
        code = block.code
        if block.language == "console":
            code = "\n".join(line[2:] for line in code.split("\n") if line.startswith("$ "))
            assert code, "a console block has commands behind $"
        subprocess.run(["bash", "-n"], input=code, text=True, check=True)
    elif block.language == "json":
        json.loads(block.code)
    elif block.language == "toml":
        tomllib.loads(block.code)
    elif block.language == "ini":
        ConfigParser(allow_no_value=True).read_string(f"[section]\n{block.code}")
    else:
        assert block.language == "text", f"line {block.line + 1}: no language"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.nightly] if page.stem in SLOW else [])
        for page in PAGES
        if any(not block.reason for block in blocks_of(page))
    ],
)
def test_blocks_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    results = list(run(page, environment_of(page, tmp_path)))
    failed = [
        (one.block.line + 1, one.printed)
        for one in results
        if one.has_failed and (one.block.output is None or one.block.language == "console")
    ]
    assert failed == []
    differ = []
    for one in results:
        shown = one.block if one.block.language == "console" else one.block.output
        if shown is not None and not same(shown.code, one.printed, machine_of(page)):
            differ.append(f"line {shown.line + 1}\n{shown.code}\n-- printed:\n{one.printed}")
    assert differ == [], "look at it, and run: python -m docs.blocks PAGE"


def test_blocks_are_written_in_their_language() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            check_syntax(block)


def test_blocks_are_run_or_say_why_not_and_no_more_are_left_out_than_before() -> None:
    blocks = [(name_of(page), block) for page in PAGES for block in blocks_of(page)]
    silent = [
        f"{page}:{block.line + 1}"
        for page, block in blocks
        if block.language not in (*CELLS, "hidden", "console") and not block.reason
    ]
    assert silent == []
    assert Counter(page for page, block in blocks if block.reason) == NOT_RUN


def test_a_page_that_shows_something_else_is_found_and_renewed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n```python\n1 + 1\n```\n```text\n3\n```\n\n```python\n1 / 0\n```\n")
    results = list(run(page, environment_of(page, tmp_path)))
    assert [one.printed for one in results] == ["2", "ZeroDivisionError: division by zero"]
    assert [one.has_failed for one in results] == [False, True]
    assert not same("3", "2")
    assert "```text\n2\n```" in renewed(page, results)


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("done in 0.2 s", "done in 13 ms", True),
        ("done in 0.2 s", "done", False),
        ("GPU 1 has 3 GiB", "GPU 1 has 4 GiB", False),
        ("first\n…\nlast", "first\nsecond\nthird\nlast", True),
        ("first\n…\nlast", "first\nsecond", False),
        ("claimed by chen: eval.ipynb, since 14:02", "claimed by root: eval.ipynb, since 09:31", True),
        ("claimed by chen: eval.ipynb, since 14:02", "claimed by root: other.ipynb, since 09:31", False),
        ("cuda:0", "cuda:1", False),
        ("?", "cuda:1", False),
    ],
)
def test_what_differs_from_run_to_run_is_left_out(shown: str, printed: str, is_same: bool) -> None:
    assert same(shown, printed) == is_same
