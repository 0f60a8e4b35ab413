"""The options of a choice: how long it waits, and how much memory is asked for."""

from __future__ import annotations

import pytest

from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.options import plan_memory, read_seconds
from gpu_magic.text import read_size, size_meant, time_text
from tests.gpus.machines import machine


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
def test_how_long_is_read(typed: str, seconds: float) -> None:
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


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("60", "60GB"),
        ("1.5", "1.5GB"),
        (60, "60GB"),
        ("60000", "60000MiB"),
        ("60 gigs", "60GB"),
        ("lots", "8GB"),
        ("60%", "8GB"),
        ("60 %", "8GB"),
        ("-1", "8GB"),
        ("9" * 400, "8GB"),
        ("0", "8GB"),
    ],
)
def test_the_size_that_was_meant_is_one(typed: str | int, meant: str) -> None:
    assert size_meant(typed, "8GB") == meant
    assert read_size(meant)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GB", 8 * 10**9),
        ("8gb", 8 * 10**9),
        ("8G", 8 * 10**9),
        ("8GiB", 8 << 30),
        ("0.5GiB", 1 << 29),
        ("512MB", 512 * 10**6),
        ("8 GB", 8 * 10**9),
        ("1000000000", 10**9),
    ],
)
def test_sizes(text: str, size: int) -> None:
    device = machine()[0]
    memory = plan_memory((device,), growth=False, limit=text)
    assert (memory.limit, memory.gpus) == (size, 1)
    assert memory.fraction == size / device.memory_total  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8GBs", "Try --memory-limit 8GB"),
        ("-8GB", "Try --memory-limit 8GB"),
        ("lots", "Try --memory-limit 8GB"),
        ("8iB", "Try --memory-limit 8GB"),
        ("1KB", "too small for a framework to start"),
        ("999TB", "more than GPU 0 has"),
    ],
)
def test_what_is_no_size_or_too_much(text: str, said: str) -> None:
    with pytest.raises(ChoiceError, match=said):
        plan_memory((machine()[0],), growth=False, limit=text)


def test_no_gpu_no_limit() -> None:
    assert not plan_memory((), growth=False, limit=None)
    with pytest.raises(ChoiceError, match="--growth needs GPUs"):
        plan_memory((), growth=True, limit=None)
    assert plan_memory(tuple(machine().gpus[:2]), growth=True, limit=None).gpus == 2
