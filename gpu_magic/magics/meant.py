"""Says what was probably meant: by an option that a magic does not have, and by one without its hyphens."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["EXAMPLES", "is_unclear", "option_in", "option_meant"]

# What ends, takes or moves something: it is suggested for nothing but its own name, almost as it is.
_DESTRUCTIVE = ("--all", "--end", "--force", "--kill", "--stop", "--yes")

_COUNT = "np nproc nproc-per-node ngpus num-gpus num-processes gpu-count"
# What people mean in a magic, and the words that they type for it.
_MEANT = {
    "%gpus": {
        "--min-free or --only-free": "free",
        "--only-free": "empty idle unused",
        "--min-free": "free-memory memory-free min-mem min-memory",
        "--min-free, what a GPU has to have free, or --memory-limit, the most that frameworks take of it": (
            "gpu-memory me mem memo memor memory memory- vram"
        ),
        "--memory-limit": "max-mem max-memory memory-fraction",
        "--model": "gpu-name name type",
        "--wait": "time-out timeout",
        "--mine": "processes ps",
        "%gpus alone": "list ls show status table",
        "%gpu_panel": "live refresh watch",
        "%gpus auto:2": f"count n {_COUNT}",
        "%gpus 1,3": "device devices gpu gpus id ids",
    },
    "%%on_gpu": {
        "--background": "bg name",
        "--only": "framework frameworks",
        "--or-cpu": "fallback",
    },
    "%to_gpu": {"--device": "gpu to", "--or-cpu": "fallback"},
    "%gpu_fit": {
        "--amp": "autocast fp16 half mixed-precision",
        "--amp --dtype bfloat16": "bf16",
        "--batch": "bs",
        "--dtype": "precision",
        "--eval": "inference no-grad",
    },
    "%gpu_launch": {
        "-n": _COUNT,
        "--gpus": "device devices",
        "--cwd": "chdir dir workdir",
        "--background": "bg detach name",
    },
    "%gpu_cluster": {"-n": f"engines {_COUNT}"},
    "%gpu_tasks": {"--stop": "cancel end kill"},
}

# A value of each option that needs one, and has no words of its own.
EXAMPLES = {
    "--background": "train",
    "--batch": "64",
    "--count": "2",
    "--cwd": "/tmp",  # noqa: S108 - a folder that is there
    "--device": "1",
    "--end": "4711",
    "--env": "NAME=value",
    "--gpus": "2,0",
    "--in": "lr",
    "--loss": "loss",
    "--memory-limit": "8GB",
    "--min-free": "20GB",
    "--model": "A100",
    "--only": "torch",
    "--out": "result",
    "--profile": "slurm",
    "--wait": "30m",
}

_LEAST = 3  # letters of a word that is looked for in an option's name, or the other way round
_CUTOFFS = 0.85, 0.7  # of difflib's ratio: a letter or two, and more


def _bare(name: str) -> str:
    """Return an option's name as it is compared: `dry-run` for `--Dry_Run`, also behind other dashes."""
    return name.lower().replace("_", "-").lstrip("-\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}")


def option_in(word: str, options: Collection[str]) -> str:
    """Return the option that a word is but for its hyphens; empty for none."""
    joined = _bare(word).replace("-", "")
    return next((option for option in options if option.replace("-", "") == joined), "")


def is_unclear(magic: str, name: str) -> bool:
    """Return whether a name stands for something else than the one option that begins with it."""
    return bool(_synonym(magic, _bare(name)))


def option_meant(magic: str, name: str, options: Mapping[str, str | tuple[str, ...]]) -> str:
    """Return what is said of an option that a magic does not have, behind `There is no …`.

    Parameters
    ----------
    magic
        As typed: `%gpus`.
    name
        The option, as it is typed.
    options
        Those that the magic has, and what each takes.

    """
    word = _bare(name)
    opposite = f"--{word.removeprefix('no-')}" if word.startswith("no-") else f"--no-{word}"
    meant = option_in(word, options) or _synonym(magic, word) or _of_value(word, options)
    if not meant and opposite in options:
        return f": it is so without {opposite}."
    meant = meant or _near(word, options)
    if meant:
        return f"; did you mean {meant}?"
    return f"; the option{' is' if len(options) == 1 else 's are'} {', '.join(options)}."


def _synonym(magic: str, word: str) -> str:
    """Return what people mean by a word, as it is typed."""
    return next((meant for meant, words in _MEANT.get(magic, {}).items() if word in words.split()), "")


def _of_value(word: str, options: Mapping[str, str | tuple[str, ...]]) -> str:
    """Return the option that has a word as its value: `--by uuid`."""
    return next(
        (f"{option} {word}" for option, kind in options.items() if isinstance(kind, tuple) and word in kind),
        "",
    )


def _near(word: str, options: Collection[str]) -> str:
    """Return the options that contain a word, or the word them; else the one that is written like it."""
    if word.startswith(("no-", "not-")):  # and not the opposite
        options = [option for option in options if option.startswith("--no-")]
    safe = [option for option in options if option not in _DESTRUCTIVE]
    # For a destructive one all letters but the last have to be there.
    exact = [one for one in _DESTRUCTIVE if one in options and word.startswith(one[2:-1])]
    names = [option[2:] for option in (*safe, *exact) if option in safe or len(word) < len(option)]
    for cutoff in _CUTOFFS:
        if close := difflib.get_close_matches(word, names, cutoff=cutoff):
            return f"--{min(close, key=lambda name: name[0] != word[:1])}"  # of those that begin so, the best
        if found := [one for one in safe if _is_part(word, one) or _is_part(one[2:], f"--{word}")]:
            return " or ".join(found)
    return ""


def _is_part(word: str, option: str) -> bool:
    """Return whether one of the words between an option's hyphens, or several, begin with a word."""
    return len(word) >= _LEAST and f"-{word}" in option
