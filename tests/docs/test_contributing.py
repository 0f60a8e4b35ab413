"""The guide for contributors names what is there."""

from __future__ import annotations

import re

from tests.conftest import ROOT

PACKAGE = ROOT / "gpu_magic"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_house_is_drawn_as_it_is() -> None:
    drawn = set(re.findall(r"^  (\w+)/ ", TEXT, re.MULTILINE))
    assert drawn == {folder.name for folder in PACKAGE.iterdir() if folder.is_dir()} - {"__pycache__"}


def test_every_file_that_it_names_is_there() -> None:
    named = set(re.findall(r"\w+(?:/[\w.]+)+\.(?:py|js)\b", TEXT))
    assert len(named) > 20
    assert [name for name in named if not any((folder / name).exists() for folder in (ROOT, PACKAGE))] == []
