"""Texts that anybody can type, write or send, for Hypothesis; and what every answer to them is."""

from __future__ import annotations

from hypothesis import strategies as st

from gpu_magic.errors import GpuMagicError

__all__ = ["DEVICES", "LINES", "LISTS", "LONG", "MASKS", "ODD", "OPTIONS", "check_line", "check_refusal"]

# Characters and words that a terminal, a page or a file can hold between and within others.
ODD = st.sampled_from(
    ["", " ", "  ", ",", "-", ":", "=", "'", '"', "#", "\x1b[31m", "\u202e", "\x00", "\udc80", "٣", "9" * 40]
)
LONG = 10_000  # characters: `int` refuses so many digits, and Python's parser so many brackets
_NUMBERS = st.integers(-1, 7).map(str)
_PREFIXES = st.builds(
    lambda uuid, length: uuid[:length],
    st.sampled_from(
        [
            "GPU-8f3a0000-0000-4000-8000-000000000001",
            "MIG-41b70000-0000-4000-8000-000000000000",
            "MIG-GPU-8f3a/1/0",
        ]
    ),
    st.integers(4, 40),
)
DEVICES = st.one_of(
    _NUMBERS,
    _PREFIXES,
    _PREFIXES.map(str.swapcase),
    st.builds("{}-{}".format, _NUMBERS, _NUMBERS),
    st.builds("{}:{}".format, _NUMBERS, _NUMBERS),
    st.builds("{}{}".format, st.sampled_from(["amd:", "smi:", "amd:auto:", "auto:", "cuda:"]), _NUMBERS),
    st.sampled_from(["auto", "all", "none", "reset", "amd:all"]),
    ODD,
)
LISTS = st.builds(
    lambda devices, comma: comma.join(devices),
    st.lists(DEVICES, max_size=4),
    st.sampled_from([",", ", ", " "]),
)
MASKS = st.one_of(LISTS, st.sampled_from(["-1", "NoDevFiles", "void", "all", "2(x3),1"]))
_SIZES = st.builds(
    "{}{}{}".format,
    _NUMBERS,
    st.sampled_from(["", ".5", " "]),
    st.sampled_from(["GB", "GiB", "MB", "%", "m", "h30m", ""]),
)
OPTIONS = st.one_of(
    st.sampled_from(["--force", "--growth", "--only-free", "--o", "--", "-v", "-n"]),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["--min-free", "--memory-limit", "--model", "--order", "--m"]),
        st.sampled_from([" ", "=", "  ", ""]),
        st.one_of(_SIZES, st.sampled_from(["A100", "T4", "pci", "fastest"]), ODD),
    ),
)
LINES = st.lists(OPTIONS | LISTS | ODD, max_size=4).map(" ".join)


def check_line(line: str, longest: int = 2000) -> None:
    """Check that a text is one printable line that is not too long, whatever the input was."""
    assert line.strip(), "nothing is said"
    assert line.isprintable(), f"not printable: {line[:80]!r}"
    assert len(line) <= longest, f"{len(line)} characters: {line[:80]!r}"


def check_refusal(error: BaseException) -> None:
    """Check that an error is one of gpu_magic's own, or IPython's for what is typed, and says one line."""
    assert isinstance(error, GpuMagicError) or type(error).__name__ == "UsageError", repr(error)[:200]
    check_line(str(error))
