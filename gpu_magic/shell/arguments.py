"""Reads a magic's line: its options, its request, and values in braces."""

from __future__ import annotations

import re
import shlex
import shutil
from collections import deque
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import LineError
from gpu_magic.gpus.request import WORDS as REQUESTS
from gpu_magic.process.tasks import VERBS
from gpu_magic.text import HARMFUL, STRING, code_words, listed, nearest_option

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from IPython.core.interactiveshell import InteractiveShell

__all__ = [
    "CODE",
    "EXAMPLES",
    "FLAG",
    "LAUNCHERS",
    "OPTIONS",
    "WORDS",
    "Kind",
    "names_of",
    "read",
    "read_command",
    "read_count",
    "read_words",
    "refusal",
    "refuse_name",
    "text_named",
]

# The kinds of values. A flag has no value. A tuple lists the allowed words. A word has no spaces. A text can
# have spaces, and ends before the next option: `--only torch, jax`, `--memory-limit 8 GB`. Pairs are
# `NAME=value`, repeated: a dict. A list continues after a comma: `2, 0`. An optional word, as for
# `--background`, is empty if it is omitted.
FLAG, WORD, OPTIONAL, TEXT, PAIRS, LIST = "flag", "word", "optional", "text", "pairs", "list"
Kind = str | tuple[str, ...]

OPTIONS: dict[str, dict[str, Kind]] = {
    "%gpus": {
        "--order": ("pci", "fastest"),
        "--growth": FLAG,
        "--memory-limit": TEXT,
        "--only-free": FLAG,
        "--min-free": TEXT,
        "--model": TEXT,
        "--wait": WORD,
        "--in-process": FLAG,
        "--dry-run": FLAG,
        "--force": FLAG,
        "--restart": FLAG,
        "--strict": FLAG,
    },
    "%%on_gpu": {
        "--only": TEXT,
        "--or-cpu": FLAG,
        "--mirror": FLAG,
        "--background": OPTIONAL,
        "--verbose": FLAG,
    },
    "%to_gpu": {
        "--device": WORD,
        "--numpy": ("torch", "jax", "cupy"),
        "--or-cpu": FLAG,
        "--all": FLAG,
        "--dry-run": FLAG,
    },
    "%to_cpu": {"--all": FLAG, "--dry-run": FLAG},
    "%where": {},
    "%gpu_fit": {
        "--loss": TEXT,
        "--eval": FLAG,
        "--amp": FLAG,
        "--dtype": ("bfloat16", "float16", "float32", "float64"),
        "--batch": WORD,
    },
    "%gpu_free": {"--dry-run": FLAG},
    "%gpu_doctor": {"--report": FLAG, "--json": FLAG},
    "%gpu_ps": {"--kill": FLAG, "--yes": FLAG},
    "%gpu_panel": {},
    "%gpu_time": {"--json": FLAG},
    "%gpu_launch": {
        "--count": WORD,
        "--gpus": LIST,
        "--each": FLAG,
        "--env": PAIRS,
        "--cwd": WORD,
        "--in": LIST,
        "--out": LIST,
        "--background": WORD,
        "--keep": FLAG,
        "--only-free": FLAG,
        "--min-free": WORD,
        "--wait": WORD,
        "--force": FLAG,
        "--dry-run": FLAG,
    },
    "%gpu_cluster": {"--count": WORD, "--profile": WORD, "--force": FLAG},
    "%gpu_tasks": {},
}
OPTIONS["gpu-magic launch"] = {
    option: kind
    for option, kind in OPTIONS["%gpu_launch"].items()
    if option not in ("--in", "--out", "--background", "--keep")
} | {"--json": FLAG}
# The keywords of each magic.
WORDS = {
    "%gpus": tuple(REQUESTS),
    "%gpu_cluster": ("restart", "stop"),
    "%gpu_ps": ("end",),
    "%gpu_tasks": VERBS,
    "%gpu_time": ("on", "off", "report"),
}
# Typical values of options that accept any value.
EXAMPLES = {
    "--wait": ("10m", "30m", "2h", "8h"),
    "--min-free": ("8GB", "16GB", "32GB", "64GB"),
    "--memory-limit": ("8GB", "16GB", "32GB", "64GB"),
}
# The most used options of the magics that have many.
_DAILY = {
    "%gpus": ("--only-free", "--wait", "--restart", "more"),
    "%gpu_launch": ("--gpus", "--each", "--background", "more"),
}
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "python")
_SHORT = {"-v": "--verbose", "-n": "--count"}
# Quoted text in a command, as in a shell; and a comment, which starts a word and is not quoted.
_QUOTED = r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\""
_COMMENT = re.compile(rf"(?P<quoted>{_QUOTED})|(?:^|\s)#.*")
# The magics whose lines are expressions, which keep their quotes, spaces and braces.
CODE = ("%to_gpu", "%to_cpu", "%where", "%gpu_fit")
# Values that can continue after a space: `--wait 1 h`, `--wait 1h 30m`.
_GO_ON = {
    "--wait": re.compile(r"[0-9]+ ?[dhms][a-z]{0,6}(?: [0-9]+[hms][a-z]{0,6})?", re.IGNORECASE),
}


def names_of(magic: str) -> set[str]:
    """Return all names of a magic's options."""
    return {*OPTIONS[magic], *(short for short, name in _SHORT.items() if name in OPTIONS[magic])}


def read(magic: str, line: str, expand: Callable[[str], str] = str) -> SimpleNamespace:
    """Read a magic's line.

    Parameters
    ----------
    magic
        As typed: `%gpus`.
    line
        The text after the magic.
    expand
        Replaces `{n}` by its value in words that are not part of an expression.

    Returns
    -------
    SimpleNamespace
        An attribute for each option, `dry_run` for `--dry-run`: True or False for a flag, else the value as
        text, or None if it is not given. Also `request`: all other words as one text, which can be empty.

    Raises
    ------
    LineError
        The line is invalid. The message says what is wrong and what to type.

    """
    typed = code_words(line)  # IPython passes a comment as part of the line
    if magic == "%gpus" and re.search("['\"]", re.sub(STRING, "", " ".join(typed))):
        raise refusal("The line has no closing quotation.")
    words = deque(_expanded(magic, typed, expand))
    values = _defaults(magic).copy()
    request: list[str] = []
    shown = " ".join(words)
    while words:
        word = words.popleft()
        if _is_option(word):
            _read_option(magic, word, words, values)
        else:
            request.append(word)
    if magic == "%gpus" and typed and not request:
        named = shown or " ".join(typed)
        example = "auto:2 --only-free"
        if all(map(_is_option, typed)):
            example = f"0 {named}"
        elif all(map(_is_option, typed[::2])) and not any(map(_is_option, typed[1::2])):
            example = f"auto {named}"  # each option has its value
        raise refusal(f"{named} names no GPU. Name GPUs before the options: %gpus {example}")
    return SimpleNamespace(**values, request=" ".join(request))


def _expanded(magic: str, words: list[str], expand: Callable[[str], str]) -> list[str]:
    """Return the words of a line, with values instead of `{n}`, and without quotes except in expressions."""
    if magic in CODE:
        return [piece for word in words for piece in code_words(expand(word))]
    line = expand(" ".join(words))  # called directly, because `expand` counts frames
    bare = (re.sub(r"^(--?[\w-]+=)['\"]+", r"\1", word.strip("'\"")) for word in line.split())
    return list(filter(None, bare))


def read_command(magic: str, line: str) -> SimpleNamespace:
    """Read a line of the magic's own options, a command, and possibly a comment.

    Returns the result of `read_words`. Raises LineError, which says what is wrong and what to type.
    """
    typed = _COMMENT.sub(lambda found: found["quoted"] or "", line)
    try:
        words = shlex.split(typed)
    except ValueError as error:
        raise refusal(f"The line has {str(error).lower()}.") from None
    found = read_words(magic, words)
    if shells := re.search(r"[|<>;&]+", re.sub(_QUOTED, "", typed)):
        raise refusal(
            f"{magic} runs no shell, so {shells[0]} does not work. To start one: {magic} bash -c '…'"
        )
    return found


def read_words(magic: str, typed: Sequence[str]) -> SimpleNamespace:
    """Return an attribute for each option, as `read` does, and `command`: the words of the command."""
    words = deque(typed)
    values = _defaults(magic).copy()
    while words and _is_option(words[0]):
        if (word := words.popleft()) == "--":
            break
        _read_option(magic, word, words, values)
        name = values.get("background")
        if name in LAUNCHERS or (name and _is_command(name, words, names_of(magic))):
            raise refusal(f"--background needs a name. Try {magic} --background NAME {name} …")
    return SimpleNamespace(**values | {"count": read_count(values["count"])}, command=list(words))


def _is_command(name: str, words: Sequence[str], options: Container[str]) -> bool:
    """Return whether a task's name is a program, and the next word is neither a program nor an option."""
    follows = words[0] if words else ""
    return bool(shutil.which(name)) and not (follows.partition("=")[0] in options or shutil.which(follows))


def read_count(typed: str | None) -> int | None:
    """Return the value of -n, a number of GPUs; None if it is not given.

    Raises
    ------
    LineError
        The value is not a number.

    """
    if typed is not None and not re.fullmatch(r"[0-9]{1,9}", typed):
        raise refusal(f"-n {typed} is not a number of GPUs. Try -n 2")
    return None if typed is None else int(typed)


def refusal(message: str) -> LineError:
    """Return the error for a line that can't be executed."""
    return LineError(message)


def _read_option(magic: str, word: str, words: deque[str], values: dict[str, Any]) -> None:
    """Read an option, and its value from the next words."""
    name, equals, value = re.sub("^-n(?=[0-9])", "-n=", word).partition("=")
    option = _find_option(magic, name)
    if value:
        words.appendleft(value)
    if equals and OPTIONS[magic][option] == FLAG:
        raise _error(magic, f"{option} takes no value.")
    found: Any = _read_value(magic, option, words, name if name in _SHORT else option)
    attribute = _attribute(option)
    if OPTIONS[magic][option] == PAIRS:
        key, _, value = found.partition("=")
        found = {**(values[attribute] or {}), key: value}
    values[attribute] = found


def _is_option(word: str) -> bool:
    """Return whether a word is an option. `-1` is not: the parser of requests explains it better."""
    return word.startswith("-") and word != "-" and not re.match(r"-\d", word)


def _find_option(magic: str, name: str) -> str:
    """Return the option with a name, or the only option that starts with this name, unless it can do harm."""
    options = OPTIONS[magic]
    if _SHORT.get(name, name) in options:
        return _SHORT.get(name, name)
    found = [option for option in options if option.startswith(name)] if name.strip("-") else []
    if len(found) == 1 and found[0] in HARMFUL:
        raise refusal(f"{name} is too short. Type {found[0]} in full.")
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise _error(magic, f"{name} could be {' or '.join(found)}.")
    bare = name.lstrip("-")
    if bare in WORDS.get(magic, ()):
        raise refusal(f"There is no {name}. Try {magic} {bare}")
    if not options:
        raise refusal(f"There is no {name}. {magic} takes no options.")
    near = nearest_option(f"--{bare.lower().replace('_', '-')}", options)
    few = listed(_DAILY.get(magic, options))
    raise _error(magic, f"There is no {name}. " + (f"Did you mean {near}?" if near else f"There is {few}."))


def _read_value(magic: str, option: str, words: deque[str], typed: str) -> str | bool:
    """Remove an option's value from the next words, and return it. Errors name the option as typed."""
    kind = OPTIONS[magic][option]
    if kind == FLAG:
        return True
    most = len(words) if kind == TEXT else 1
    taken: list[str] = []
    while words and len(taken) < most and not _is_option(words[0]):
        taken.append(words.popleft())
    if magic in CODE:  # remove quotes, as a shell does
        taken = [word.strip(word[0]) if re.fullmatch(STRING, word) else word for word in taken]
    while words and option in _GO_ON and _GO_ON[option].fullmatch(" ".join([*taken, words[0]])):
        taken.append(words.popleft())
    while kind == LIST and words and taken and taken[-1].endswith(","):
        taken.append(words.popleft())
    value = "".join(taken) if kind == LIST else " ".join(taken)
    choices = f"{', '.join(kind[:-1])} or {kind[-1]}" if isinstance(kind, tuple) else ""
    if not value and kind != OPTIONAL:
        example = f": {choices}" if choices else ""
        if option in EXAMPLES:
            example = f". Try {typed} {EXAMPLES[option][0]}"
        raise _error(magic, f"{typed} needs a value{example}.")
    if kind == PAIRS and not re.match(r"[A-Za-z_]\w*=", value):
        raise _error(magic, f"{option} {value} is not NAME=value.")
    if choices and value not in kind:
        raise _error(magic, f"{option} is {choices}, not {value}.")
    return value


def _error(magic: str, problem: str) -> LineError:
    help_of_it = f"{magic}?" if magic.startswith("%") else f"{magic} --help"
    return LineError(f"{problem} {help_of_it} explains the options.")


def _attribute(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


@cache
def _defaults(magic: str) -> dict[str, Any]:
    """Return the default value of each option, by its attribute."""
    options = OPTIONS[magic].items()
    return {_attribute(option): False if kind == FLAG else None for option, kind in options}


def text_named(shell: InteractiveShell, word: str) -> str:
    """Return the text that `{name}` or `$name` stands for in IPython. Return any other word as it is."""
    name = re.fullmatch(r"\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", word)
    value = shell.user_ns.get(name[1] or name[2]) if name else None
    return value if isinstance(value, str) else word


def refuse_name(shell: InteractiveShell, magic: str, request: str, is_valid: Callable[[str], bool]) -> None:
    """Raise LineError for a request that is the name of a variable without braces."""
    if request.isidentifier() and request in shell.user_ns and not is_valid(request):
        raise refusal(f"{request} is a variable. To use its value: {magic} {{{request}}}")
