"""The guide for contributors names what is there, and a release checks what the guide says to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = ROOT / "gpu_magic"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_house_is_drawn_as_it_is() -> None:
    drawn = set(re.findall(r"^  (\w+)/ ", TEXT, re.MULTILINE))
    assert drawn == {folder.name for folder in PACKAGE.iterdir() if folder.is_dir()} - {"__pycache__"}


def test_every_file_that_it_names_is_there() -> None:
    named = set(re.findall(r"\w+(?:/[\w.]+)+\.(?:py|js)\b", TEXT))
    assert len(named) > 20
    assert [name for name in named if not any((folder / name).exists() for folder in (ROOT, PACKAGE))] == []


def put(file: Path, code: str, before: str, after: str = "") -> None:
    """Insert code into a file, before a text, the first one behind another text."""
    source = file.read_text(encoding="utf-8")
    at = source.index(before, source.index(after))
    file.write_text(source[:at] + textwrap.indent(code, "    ") + source[at:], encoding="utf-8")


TRY = """
from IPython.core.interactiveshell import InteractiveShell
import gpu_magic
from gpu_magic.testing import simulate

with simulate("4xA100-80GB", clock=lambda: 0.0) as machine:
    machine.gpus[0].run("train.py", "maria", 60 << 30, work=97)  # 70 °C
    print(gpu_magic.choose("auto", max_temperature=60).mask)
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "gpu_magic")
    for line in "auto --max-temperature 10", "1,3 --max-temperature 60", "auto --max-temperature warm":
        try:
            shell.run_line_magic("gpus", line)
        except Exception as error:
            print(error)
"""


def test_the_worked_example_works(tmp_path: Path) -> None:
    """Its code, in the places that it names, in a copy; tests/test_options.py has all places of an option."""
    shutil.copytree(PACKAGE, tmp_path / "gpu_magic")
    entry, use = map(textwrap.dedent, re.findall(r"   ```python\n(.*?)   ```", TEXT, re.DOTALL)[:2])
    put(tmp_path / "gpu_magic/option_table.py", entry, "\n\nclass ChoiceOptions(")
    put(tmp_path / "gpu_magic/gpus/auto.py", use, '    return ""\n', "def _why_filtered(")
    command = [sys.executable, "-c", TRY]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    shown = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    chosen, hot, numbers, warm = shown.splitlines()
    assert chosen == "1"
    assert "GPU 0 (70 °C, not below 10 °C)" in hot
    assert numbers == "--max-temperature 60 goes with auto. Try auto --max-temperature 60"
    assert warm == "--max-temperature warm is not a number. Try --max-temperature 60"


@pytest.mark.parametrize(
    ("tag", "heading", "passes"),
    [
        ("v0.2.0rc1", "## [0.2.0rc1] - 2027-01-31", True),
        ("v0.2.0", "## [0.2.0rc1] - 2027-01-31", False),
        ("v0.2.0rc1", "## [0.2.0] - 2027-01-31", False),
        ("v0.2.0rc1", "## [0.2.0rc1]", False),
    ],
)
def test_a_tag_must_be_the_version_that_the_changelog_has(
    tag: str, heading: str, passes: bool, tmp_path: Path
) -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    (script,) = (one["run"] for one in jobs["build"]["steps"] if one.get("name", "").startswith("The tag is"))
    (tmp_path / "gpu_magic").mkdir()
    source = (PACKAGE / "__init__.py").read_text()
    version = re.sub(r'(?m)^__version__ = ".*"$', '__version__ = "0.2.0rc1"', source)
    (tmp_path / "gpu_magic/__init__.py").write_text(version)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n{heading}\n")
    environment = os.environ | {"GITHUB_REF_NAME": tag}
    done = subprocess.run(
        ["bash", "-ec", script], env=environment, cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode == 0) == passes
