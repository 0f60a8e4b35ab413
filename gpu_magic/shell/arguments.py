"""Reads a magic's line: its options, its request, and values in braces."""

from __future__ import annotations

import re
import shlex
import shutil
from collections import deque
from functools import cache
from itertools import dropwhile, takewhile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import LineError
from gpu_magic.gpus.request import WORDS as REQUESTS
from gpu_magic.gpus.request import is_request
from gpu_magic.option_table import OPTIONS, Kind
from gpu_magic.processes.tasks import VERBS
from gpu_magic.text import STRING, code_words, listed, nearest_option

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.option_table import Option

__all__ = [
    "CODE",
    "LAUNCHERS",
    "WORDS",
    "names_of",
    "read",
    "read_action",
    "read_command",
    "read_count",
    "read_words",
    "refusal",
    "refuse_name",
    "text_named",
]

# The keywords of each magic.
WORDS = {
    "%gpus": tuple(REQUESTS),
    "%gpu_cluster": ("restart", "stop"),
    "%gpu_ps": ("end",),
    "%gpu_tasks": VERBS,
    "%gpu_time": ("on", "off", "report"),
}
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "python")
# Quoted text in a command, as in a shell; and a comment, which starts a word and is not quoted.
_QUOTED = r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\""
_COMMENT = re.compile(rf"(?P<quoted>{_QUOTED})|(?:^|\s)#.*")
# What pages put around names from right to left (`page_text`), and users copy with a command.
_MARKS = dict.fromkeys(map(ord, "\u2068\u2069"))
# The magics whose lines are expressions, which keep their quotes, spaces and braces.
CODE = ("%to_gpu", "%to_cpu", "%gpu_park", "%gpu_unpark", "%where", "%gpu_fit")
# Times that can continue after a space: `--wait 1 h`, `--wait 1h 30m`.
_TIME = r"[0-9]+ ?[dhms][a-z]{0,6}(?: [0-9]+[hms][a-z]{0,6})?"
_SEVERAL = 4  # the options that a message names all


def names_of(magic: str) -> set[str]:
    """Return all names of a magic's options."""
    return {name for one in OPTIONS[magic].values() for name in (one.name, one.short) if name}


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
    typed = code_words(line.translate(_MARKS))  # IPython passes a comment as part of the line
    if magic == "%gpus" and re.search("['\"]", re.sub(STRING, "", " ".join(typed))):
        raise refusal("The line has no closing quotation.")
    words = deque(_expanded(magic, typed, expand))
    values = _defaults(magic).copy()
    request: list[str] = []
    options: list[str] = []  # with their values
    shown = " ".join(words)
    while words:
        word = words.popleft()
        if _is_option(word):
            following = list(words)
            _read_option(magic, word, words, values, before=(request, options))
            options += [word, *following[: len(following) - len(words)]]
        else:
            request.append(word)
    if magic == "%gpus" and typed and not request:
        named = shown or " ".join(typed)
        raise refusal(
            f"{named} names no GPU. Name GPUs before the options: %gpus {_with_gpus(shown.split())}"
        )
    return SimpleNamespace(**values, request=" ".join(request))


def _with_gpus(words: Sequence[str]) -> str:
    """Return the words of a line of options with GPUs before them, which can be the last word of a value."""
    for place in range(len(words) - 1, 1, -1):
        if is_request(words[place]) and not _is_option(words[place - 1]):
            return " ".join([words[place], *words[:place], *words[place + 1 :]])
    one = r"--?\w[\w-]*(?:=\S+| [^-\s]\S*(?: [KMGT]i?B| [0-9]+[hms])?)?"
    is_plain = re.fullmatch(rf"{one}(?: {one})*", " ".join(words))
    return f"auto {' '.join(words)}" if is_plain else "auto --only-free"


def _expanded(magic: str, words: list[str], expand: Callable[[str], str]) -> list[str]:
    """Return the words of a line, with values instead of `{n}`, and without quotes except in expressions."""
    if magic in CODE:
        return [piece for word in words for piece in code_words(expand(word))]
    line = expand(" ".join(words))
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
    """Read the words of an option line with a command.

    Returns an attribute for each option, as `read` does; `command`: the words of the command; and `given`:
    the words before it.
    """
    words = deque(typed)
    values = _defaults(magic).copy()
    while words and _is_option(words[0]):
        if (word := words.popleft()) == "--":
            break
        _read_option(magic, word, words, values, in_shell=True)
        name = values.get("background")
        if name in LAUNCHERS or (name and _is_command(name, words, names_of(magic))):
            before = shlex.join(typed[: len(typed) - len(words)]).removesuffix(name).rstrip(" =")
            line = f"{magic} {before} NAME {shlex.join([name, *words])}"
            raise refusal(f"--background needs a name. Try {line}")
    values["count"] = read_count(values["count"])
    return SimpleNamespace(**values, command=list(words), given=typed[: len(typed) - len(words)])


def read_action(action: str, typed: Sequence[str]) -> SimpleNamespace:
    """Read the words after an action of `gpu-magic`: its options, and `names`, all other words."""
    words, names = deque(typed), []
    values = _defaults(action).copy()
    while words:
        if _is_option(word := words.popleft()):
            _read_option(action, word, words, values, in_shell=True)
        else:
            names.append(word)
    return SimpleNamespace(**values, names=names)


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
        raise refusal(f"-n {typed} is not a number of GPUs. Try -n 1")
    return None if typed is None else int(typed)


def refusal(message: str) -> LineError:
    """Return the error for a line that can't be executed."""
    return LineError(message)


def _read_option(
    magic: str,
    word: str,
    words: deque[str],
    values: dict[str, Any],
    *,
    before: tuple[Sequence[str], Sequence[str]] = ((), ()),
    in_shell: bool = False,
) -> None:
    """Read an option, and its value from the next words. A shell's words are whole values.

    `before` are the earlier words of the line: those that are no options, and options with values.
    """
    name, equals, value = re.sub("^-n(?=[0-9])", "-n=", word).partition("=")
    if value:
        words.appendleft(value)
    option = _find_option(magic, name, before, words)
    if equals and option.kind is Kind.FLAG:
        raise _error(magic, f"{option.name} takes no value.")
    typed = name if name == option.short else option.name
    found: Any = _read_value(magic, option, words, typed, in_shell=in_shell)
    if option.kind is Kind.PAIRS:
        key, _, value = found.partition("=")
        found = {**(values[option.attribute] or {}), key: value}
    values[option.attribute] = found


def _is_option(word: str) -> bool:
    """Return whether a word is an option. `-1` is not: the parser of requests explains it better."""
    return word.startswith("-") and word != "-" and not re.match(r"-\d", word)


def _find_option(
    magic: str, name: str, before: tuple[Sequence[str], Sequence[str]], after: Iterable[str]
) -> Option:
    """Return the option with a name, or the only option that starts with this name, unless it can do harm."""
    options = OPTIONS[magic]
    if exact := [one for one in options.values() if name in (one.name, one.short)]:
        return exact[0]
    found = [one for one in options.values() if one.name.startswith(name)] if name.strip("-") else []
    if len(found) == 1 and found[0].in_full:
        raise refusal(f"{name} is too short. Type {found[0].name} in full.")
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise _error(magic, f"{name} could be {' or '.join(one.name for one in found)}.")
    bare = name.lstrip("-")
    if bare in WORDS.get(magic, ()):
        names, given = before
        following = list(after)
        if magic == "%gpus":  # whose words are followed by no names
            count = next(takewhile(str.isdecimal, following), "")
            bare += f":{count}" * is_request(f"{bare}:{count}")
            names, following = (), list(dropwhile(lambda word: not _is_option(word), following))
        raise refusal(f"There is no {name}. Try {' '.join([magic, bare, *names, *given, *following])}")
    if not options:
        raise refusal(f"There is no {name}. {magic} takes no options.")
    harmful = [one.name for one in options.values() if one.in_full]
    if near := nearest_option(f"--{bare.lower().replace('_', '-')}", options, harmful):
        raise _error(magic, f"There is no {name}. Did you mean {near}?")
    few = [*options] if len(options) <= _SEVERAL else [*list(options)[:3], "more"]
    raise _error(magic, f"There is no {name}. There {'are' if few[1:] else 'is'} {listed(few)}.")


def _read_value(magic: str, option: Option, words: deque[str], typed: str, *, in_shell: bool) -> str | bool:
    """Remove an option's value from the next words, and return it. Errors name the option as typed."""
    kind = option.kind
    if kind is Kind.FLAG:
        return True
    most = len(words) if kind in (Kind.TEXT, Kind.SIZE) and not in_shell else 1
    taken: list[str] = []
    while words and len(taken) < most and not _is_option(words[0]):
        taken.append(words.popleft())
    if magic in CODE:  # remove quotes, as a shell does
        taken = [word.strip(word[0]) if re.fullmatch(STRING, word) else word for word in taken]
    while words and kind is Kind.TIME and re.fullmatch(_TIME, " ".join([*taken, words[0]]), re.IGNORECASE):
        taken.append(words.popleft())
    while kind is Kind.LIST and words and not _is_option(words[0]) and taken and taken[-1].endswith(","):
        taken.append(words.popleft())
    value = "".join(taken) if kind is Kind.LIST else " ".join(taken)
    choices = f"{', '.join(kind[:-1])} or {kind[-1]}" if isinstance(kind, tuple) else ""
    if not value and kind is not Kind.OPTIONAL:
        example = f": {choices}." if choices else f". Try {typed} {option.example}."
        raise _error(magic, f"{typed} needs a value{example}")
    if kind is Kind.PAIRS and not re.match(r"[A-Za-z_]\w*=", value):
        raise _error(magic, f"{option.name} {value} is not NAME=value.")
    if isinstance(kind, tuple) and value not in kind:
        raise _error(magic, f"{option.name} is {choices}, not {value}.")
    return value


def _error(magic: str, problem: str) -> LineError:
    help_of_it = f"{magic}?" if magic.startswith("%") else f"{magic} --help"
    return LineError(f"{problem} {help_of_it} explains the options.")


@cache
def _defaults(magic: str) -> dict[str, Any]:
    """Return the default value of each option, by its attribute."""
    return {option.attribute: option.default for option in OPTIONS[magic].values()}


def text_named(shell: InteractiveShell, word: str) -> str:
    """Return the text that `{name}` or `$name` stands for in IPython. Return any other word as it is."""
    name = re.fullmatch(r"\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", word)
    value = shell.user_ns.get(name[1] or name[2]) if name else None
    return value if isinstance(value, str) else word


def refuse_name(shell: InteractiveShell, magic: str, request: str, is_valid: Callable[[str], bool]) -> None:
    """Raise LineError for a request that is the name of a variable without braces."""
    if request.isidentifier() and request in shell.user_ns and not is_valid(request):
        raise refusal(f"{request} is a variable. To use its value: {magic} {{{request}}}")
