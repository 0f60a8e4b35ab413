"""What is fuzzed: a function that is given bytes, and fails where a promise about them does not hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.errors import GpuMagicError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LONGEST_LINE", "Target", "check_line", "check_refusal", "fields_of", "text_of"]

# Characters of what a refusal says: a screen of text, whatever the input was.
LONGEST_LINE = 2000


class Target(NamedTuple):
    """What is fuzzed.

    Parameters
    ----------
    name
        As it is typed after `python -m tests.fuzzing`, and the folder of its corpus.
    check
        Is given the input. It raises where a promise does not hold, and nothing else.
    about
        What it reads, as a clause.
    words
        What its grammar has, for the dictionary.
    seeds
        Inputs to begin with.

    """

    name: str
    check: Callable[[bytes], None]
    about: str
    words: tuple[str, ...]
    seeds: tuple[str, ...]


def text_of(data: bytes) -> str:
    """Return the text of an input; what is no UTF-8 becomes lone surrogates, as in `os.environ`."""
    return data.decode("utf-8", "surrogateescape")


def fields_of(data: bytes, count: int) -> list[str]:
    """Return so many texts of an input that has a line feed between each two; the last has the rest."""
    texts = text_of(data).split("\n", count - 1)
    return texts + [""] * (count - len(texts))


def check_line(line: str, longest: int = LONGEST_LINE) -> None:
    """Check that a text is one printable line that is not too long."""
    assert line.strip(), "nothing is said"
    assert line.isprintable(), f"not printable: {line[:80]!r}"
    assert len(line) <= longest, f"{len(line)} characters: {line[:80]!r}"


def check_refusal(error: BaseException) -> None:
    """Check that an error is one of gpu_magic's own, or IPython's for what is typed, and says one line."""
    assert isinstance(error, GpuMagicError) or type(error).__name__ == "UsageError", repr(error)[:200]
    check_line(str(error))
