"""What is said of options that there are not: no misspelt one leads to one that does harm."""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

import pytest
from IPython.core.error import UsageError

from gpu_magic.magics.arguments import FLAG, OPTIONS, WORDS, read, read_command
from gpu_magic.magics.meant import _MEANT, EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

HARMFUL = {"--force", "--kill", "--yes", "--all", "--end"}


def said_of(magic: str, line: str) -> str:
    """Return what is said of a line; empty where it is read."""
    try:
        (read_command if magic == "%gpu_launch" else read)(magic, line)
    except UsageError as error:
        assert str(error).isprintable()
        return str(error)
    return ""


def suggested(magic: str, name: str) -> set[str]:
    """Return the options that are suggested for one that there is not."""
    found = re.search(r"did you mean (.*)\?\s", said_of(magic, f"{name} 1"))
    return set(re.findall(r"--?[a-z-]+", found[1])) if found else set()


def misspelt(name: str) -> Iterator[str]:
    """Return a word with one letter dropped, doubled, swapped with the next one, or another."""
    for at in range(len(name)):
        before, letter, after = name[:at], name[at], name[at + 1 :]
        yield before + after
        yield before + 2 * letter + after
        yield before + after[:1] + letter + after[1:]
        yield from (before + other + after for other in string.ascii_lowercase)


@pytest.mark.parametrize("magic", OPTIONS)
def test_a_misspelt_option_leads_to_itself_or_to_none_that_does_harm(magic: str) -> None:
    words = [*(option[2:] for option in OPTIONS[magic]), *WORDS.get(magic, ())]
    for word in words:
        for typed in misspelt(word):
            wrong = suggested(magic, f"--{typed}") - {f"--{word}"}
            assert not wrong & HARMFUL, typed


@pytest.mark.parametrize("magic", OPTIONS)
def test_most_misspelt_options_lead_to_themselves(magic: str) -> None:
    for option, kind in OPTIONS[magic].items():
        if option in HARMFUL or len(option) < len("--model"):
            continue
        for typed in misspelt(option[2:]):
            if typed[0] != option[2]:  # `--ount` can be --out as well as --count
                continue
            said = said_of(magic, f"--{typed} {'' if kind == FLAG else 1}")
            assert option in said or not said.startswith("There is no"), typed


@pytest.mark.parametrize("word", ["free", "fore", "frce", "form", "fortune", "enforce", "f", "no-force"])
@pytest.mark.parametrize("magic", [magic for magic, options in OPTIONS.items() if "--force" in options])
def test_force_is_suggested_for_nothing_else(magic: str, word: str) -> None:
    assert "--force" not in suggested(magic, f"--{word}")


@pytest.mark.parametrize(
    ("magic", "typed", "meant"),
    [
        ("%gpus", "--free", "--min-free or --only-free"),
        ("%gpus", "--idle", "--only-free"),
        ("%gpus", "--unused", "--only-free"),
        ("%gpus", "--min-memory", "--min-free"),
        ("%gpus", "--memory-free", "--min-free"),
        ("%gpus", "--memory_free", "--min-free"),
        ("%gpus", "--timeout", "--wait"),
        ("%gpus", "--limit", "--memory-limit"),
        ("%gpus", "--uuid", "--by uuid"),
        ("%gpus", "--allow-growth", "--growth"),
        ("%gpus", "--num-gpus", "%gpus auto:2"),
        ("%gpus", "-n", "%gpus auto:2"),
        ("%gpus", "--forced", "--force"),
        ("%gpus", "--DryRun", "--dry-run"),
        ("%gpu_launch", "--np", "-n"),
        ("%gpu_launch", "-np", "-n"),
        ("%gpu_launch", "--nproc", "-n"),
        ("%gpu_launch", "--nproc_per_node", "-n"),
        ("%gpu_launch", "--num-gpus", "-n"),
        ("%gpu_cluster", "--np", "-n"),
        ("%gpu_fit", "--fp16", "--amp"),
        ("%gpu_fit", "--mixed-precision", "--amp"),
        ("%gpu_fit", "--bf16", "--amp --dtype bfloat16"),
        ("%gpu_fit", "--float16", "--dtype float16"),
        ("%gpu_fit", "--batch-size", "--batch"),
        ("%to_gpu", "--torch", "--numpy torch"),
        ("%%on_gpu", "--cpu", "--or-cpu"),
    ],
)
def test_what_people_type_for_an_option(magic: str, typed: str, meant: str) -> None:
    assert said_of(magic, f"{typed} 1") == (
        f"There is no {typed}; did you mean {meant}? {magic}? explains them."
    )


@pytest.mark.parametrize("shortened", ["me", "mem", "memo", "memor", "memory", "memory-"])
def test_memory_is_not_taken_for_its_limit(shortened: str) -> None:
    assert said_of("%gpus", f"auto:2 --{shortened} 60GB") == (
        f"There is no --{shortened}; did you mean --min-free, what a GPU has to have free, or --memory-limit, "
        "the most that frameworks take of it? %gpus? explains them."
    )


@pytest.mark.parametrize(
    ("magic", "typed", "without"),
    [
        ("%gpus", "--claim", "--no-claim"),
        ("%gpus", "--no-growth", "--growth"),
        ("%gpu_launch", "--no-force", "--force"),
    ],
)
def test_the_opposite_of_an_option_is_to_leave_it_out(magic: str, typed: str, without: str) -> None:
    assert (
        said_of(magic, typed) == f"There is no {typed}: it is so without {without}. {magic}? explains them."
    )


def test_what_is_suggested_is_there() -> None:
    for magic, meanings in _MEANT.items():
        for meaning, words in meanings.items():
            options = {"--count" if one == "-n" else one for one in re.findall(r"(?<!\S)--?[a-z-]+", meaning)}
            assert options <= OPTIONS[magic].keys()
            assert not {f"--{word}" for word in words.split()} & OPTIONS[magic].keys()


@pytest.mark.parametrize("magic", OPTIONS)
def test_an_option_without_its_value_says_one_that_it_takes(magic: str) -> None:
    for option, kind in OPTIONS[magic].items():
        if kind in (FLAG, "optional") or isinstance(kind, tuple):
            continue
        example = f"{option} {EXAMPLES[option]}"
        assert (
            said_of(magic, option)
            == f"{option} needs a value, as in {example}. {magic}? explains the options."
        )
        assert "needs a value" not in said_of(magic, example)
