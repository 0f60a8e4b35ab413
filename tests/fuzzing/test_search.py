"""How a search is judged: what libFuzzer has written, and its exit status."""

from __future__ import annotations

from tests.fuzzing.__main__ import has_ended

FIGURES = "stat::number_of_executed_units: 4711\n"


def test_a_search_that_libfuzzer_gives_up_has_failed() -> None:
    assert has_ended(0, FIGURES)
    assert not has_ended(70, f"ERROR: libFuzzer: timeout after 121 seconds\n{FIGURES}")
    assert not has_ended(0, "")
