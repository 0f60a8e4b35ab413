"""CONTRIBUTING's map and guide name what is there."""

from __future__ import annotations

import re

from docs.map import BEGIN, CONTRIBUTING, END, draw, insert
from tests.conftest import ROOT


def test_the_map_is_the_house_as_it_is() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    assert insert(text, draw()) == text, "run: python -m docs.map"


def test_every_file_that_the_guide_names_is_there() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8").partition(BEGIN)
    prose = text[0] + text[2].partition(END)[2]
    named = set(re.findall(r"`([\w./]+\.(?:py|pyi|js))`", prose))
    folders = [ROOT, ROOT / "gpu_magic", ROOT / "gpu_magic" / "widget"]
    assert len(named) > 20
    assert [name for name in named if not any((folder / name).exists() for folder in folders)] == []


def test_every_file_says_what_it_is() -> None:
    silent = [line for line in draw().splitlines() if not line.split(maxsplit=1)[1:] and line != "gpu_magic/"]
    assert silent == []
