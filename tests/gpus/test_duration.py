from __future__ import annotations

import pytest

from gpu_magic.gpus.options import read_seconds
from gpu_magic.text import time_text


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("30m", 1800),
        ("90s", 90),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("0.5", 0.5),
        ("7", 7),
        ("30 min", 1800),
        ("30min", 1800),
        ("5 minutes", 300),
        ("1 hour", 3600),
        ("1h 30m", 5400),
        ("2 hrs", 7200),
        ("1 day", 86_400),
        ("10 sec", 10),
        ("3 SECONDS", 3),
    ],
)
def test_what_is_typed_is_understood(typed: str, seconds: float) -> None:
    assert read_seconds(typed) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.5, "500 ms"),
        (45, "45 s"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (1800, "30 min"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (5430, "1 h 30 min"),
        (3605, "1 h"),
    ],
)
def test_a_duration_is_shown_as_it_is(seconds: float, text: str) -> None:
    assert time_text(seconds) == text
