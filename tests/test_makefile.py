"""What `make test` does, on a stand-in for Python that notes what it is asked to run and fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

STAND_IN = """#!/bin/sh
echo $PIP_CONSTRAINT $PIP_BUILD_CONSTRAINT "$*" >> calls
case "$*" in *pytest*) exit 1;; esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the Makefile, and the stand-in where it looks for Python."""
    for name in ("Makefile", "pyproject.toml", "tests/constraints.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in (".venv/bin/python", "python", "tests/needs.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(STAND_IN)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def make(clone: Path, *words: str) -> tuple[int, list[str]]:
    """Return the exit status, and what Python was asked to run."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PIP_"))
    }
    done = subprocess.run(
        ["make", "PYTHON=./python", *words], cwd=clone, env=clean, capture_output=True, check=False
    )
    return done.returncode, (clone / "calls").read_text().splitlines()


def test_a_part_that_fails_hides_none_of_those_after_it(clone: Path) -> None:
    status, calls = make(clone, "test")
    assert status != 0
    runs = [call for call in calls if call.startswith("-m pytest")]
    assert runs[0] == "-m pytest -n auto --dist worksteal -m not nightly"
    notebooks = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    by_themselves = {call.rpartition("/")[2] for call in runs[2:]}
    assert by_themselves <= notebooks
    left_out = {word.rpartition("/")[2] for word in runs[1].split() if word.endswith(".ipynb")}
    assert left_out == by_themselves


def test_all_is_tested_with_what_a_push_need_not_wait_for(clone: Path) -> None:
    _, calls = make(clone, "test-all")
    (first, *_) = [call for call in calls if call.startswith("-m pytest")]
    assert first == "-m pytest -n auto --dist worksteal --hypothesis-profile night"


def test_the_parts_together_are_all(clone: Path) -> None:
    """Each folder of tests is in one part, and the notebooks are one."""
    asked: dict[str, list[str]] = {}
    for part in ("pure", "kernels", "frameworks", "pages", "notebooks"):
        (clone / "calls").unlink(missing_ok=True)
        _, calls = make(clone, "test", f"PART={part}")
        asked[part] = [call for call in calls if call.startswith("-m pytest")]
    assert all("notebooks" in call for call in asked.pop("notebooks"))
    pure, *others = [re.findall(r"tests/\w+", call) for (call,) in asked.values()]
    assert sorted(pure) == sorted(name for each in others for name in each)
    assert all((ROOT / name).is_dir() for name in pure)


def test_a_part_that_there_is_not_runs_nothing(clone: Path) -> None:
    words = ["make", "PYTHON=./python", "test", "PART=kernel"]
    done = subprocess.run(words, cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "There is no part kernel; try one of: pure kernels frameworks pages notebooks" in done.stderr
    assert not (clone / "calls").exists()


def test_what_is_installed_is_pinned(clone: Path) -> None:
    _, calls = make(clone, ".venv/installed")
    assert (
        calls[-1]
        == "tests/constraints.txt tests/constraints.txt -m pip install --quiet --editable .[test,check]"
    )


def test_the_newest_of_everything_can_be_installed(clone: Path) -> None:
    _, calls = make(clone, ".venv/installed", "CONSTRAINTS=")
    assert calls[-1] == "-m pip install --quiet --editable .[test,check]"


def test_a_version_is_pinned_that_each_requirement_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [Requirement(each) for each in (*project["dependencies"], *extras["test"], *extras["check"])]
    lines = (ROOT / "tests/constraints.txt").read_text().splitlines()[1:]
    pins = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    missing = [
        each.name for each in asked if pins.get(canonicalize_name(each.name), "") not in each.specifier
    ]
    assert missing == []
