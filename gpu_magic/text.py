"""Formats text that is safe to show, because names and variables can contain any characters."""

from __future__ import annotations

import html
import re
import time
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

__all__ = [
    "GIB",
    "STRING",
    "TIB",
    "age_text",
    "bytes_text",
    "cells_of",
    "code_words",
    "counted",
    "end_of_path",
    "escaped",
    "html_bar",
    "html_block",
    "html_table",
    "html_text",
    "is_off",
    "listed",
    "nearest_option",
    "one_line",
    "page_text",
    "printable",
    "read_size",
    "shortened",
    "simulated_mark",
    "simulated_title",
    "since_text",
    "size_as_typed",
    "size_meant",
    "size_text",
    "text_table",
    "time_text",
    "with_article",
    "with_full_stop",
    "wrapped",
]

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
_LONGEST_LINE = 2000  # characters
_MINUTE, _HOUR, _DAY = 60, 3600, 86400  # seconds
# A Python string literal.
STRING = r"""(?s)(\"{3}|'{3})(?:\\.|.)*?\1|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
# Each output has the style, because outputs are deleted one by one. So it is short, and leaves lines, stripes
# and fonts to the front end. The colors are the front end's if it defines them (JupyterLab and Notebook do),
# otherwise colors that are readable on light and dark backgrounds. They are mixed with the color of the text
# for contrast. The class three times overrides the rules of front ends for tables.
_STYLE = (
    ".gpu-magic{&&&{overflow-x:auto;container-type:inline-size;contain-intrinsic-inline-size:60em;font-size:13px;"
    "& p{margin:2px 8px}& th,& td{padding:4px min(8px,1.5cqi);text-align:left;vertical-align:top}"
    "& tbody th,& .gm-right,& .gm-more{white-space:nowrap}& .gm-right{text-align:right}& .gm-soft{opacity:.7}"
    "& .gm-green{--c:var(--jp-success-color1,#3fa45b)}& .gm-amber{--c:var(--jp-warn-color0,#c77f1a)}"
    "& .gm-blue{--c:var(--jp-brand-color1,#4b8df8)}"
    "& [class]{color:color-mix(in srgb,var(--c) 66%,currentcolor)}"
    "@container(width<840px){& .gm-more{display:none}}}}"
)
# What stays on one line: a figure with its unit, and with the word before it.
_KEPT = (
    r"(?:\b(?:for|idle|since) )?\d[\d.,]* (?:[KMGT]iB|bytes|GPUs?|days?|min|ms|µs|[hsWJ%]|°C)(?!\w)|"
    r"\b(?:for|idle|since) \d+"
)
# What breaks between any letters, so that a path does not make a table wide. Names of variables are shorter.
_LONG_WORD = r"(?:&#?\w+;|[^\s&]){33,}"  # in HTML, whose entities are a letter each
# Words of Hebrew, Arabic and the other scripts that are written from right to left.
_RIGHT_TO_LEFT = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\U00010800-\U00010fff\U0001e800-\U0001efff]+"
_TURNED = re.compile(f"{_RIGHT_TO_LEFT}(?:[ ._-]{_RIGHT_TO_LEFT})*")

# A <pre> as front ends show printed text, but with lines that break between words.
_WRAPPED = (
    "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;margin:0;padding:0 8px;"
    "background:none;color:inherit;font-size:var(--jp-code-font-size,13px);line-height:var(--jp-code-line-height,normal)"
)


def printable(text: str) -> str:
    """Return text for one line of a terminal, without control characters and direction marks."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def shortened(text: str, longest: int) -> str:
    """Return printable text of at most `longest` characters."""
    shown = printable(text[: longest + 1])
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def end_of_path(path: str, longest: int) -> str:
    """Return the printable end of a path, of at most `longest` characters."""
    return shortened(path if len(path) <= longest else f"…{path[1 - longest :]}", longest)


def one_line(text: str) -> str:
    """Return a message as one printable line, without the middle of a very long message."""
    if len(text) > _LONGEST_LINE:
        half = (_LONGEST_LINE - 3) // 2
        text = f"{text[:half]} … {text[-half:]}"
    return printable(text)


def wrapped(text: str, width: int) -> str:
    """Return text in lines of at most `width` cells, if possible. Lines that fit stay as they are.

    A line ends only after a punctuation mark. A command has none before a space, so it can be copied.
    """
    lines = []
    for line in text.split("\n"):
        words = line.lstrip(" ")
        indent = " " * (len(line) - len(words))
        # The name of an error stays beside its text. In `%gpus? explains it`, the mark ends no sentence.
        end = r"(?<=[.,;:?!)])(?<!Error:)(?<!\?(?= [a-z])) +"
        first, *more = re.split(end, words) if cells_of(line) > width else [words]
        lines.append(indent + first)
        for piece in more:
            if cells_of(lines[-1]) + 1 + cells_of(piece) > width:
                lines.append(indent + piece)
            else:
                lines[-1] += f" {piece}"
    return "\n".join(lines)


def page_text(text: str) -> str:
    """Return a text for a page, in which no figure is apart from its unit and no name turns around others.

    Names that are written from right to left would turn around the figures and names beside them, so they are
    between Unicode's marks for that (FIRST STRONG ISOLATE, POP DIRECTIONAL ISOLATE).
    """
    kept = re.sub(_KEPT, lambda figure: figure[0].replace(" ", "\u00a0"), text)
    return kept if kept.isascii() else _TURNED.sub("\u2068\\g<0>\u2069", kept)


def escaped(text: str) -> str:
    """Return a text as HTML that looks like a `page_text`. What users copy from it is the text itself."""
    shown = re.sub(f"{_KEPT}|{_LONG_WORD}", _in_a_span, html.escape(text))
    return shown if text.isascii() else _TURNED.sub("<bdi>\\g<0></bdi>", shown)


def _in_a_span(match: re.Match[str]) -> str:
    css = "white-space:nowrap" if " " in match[0] else "overflow-wrap:anywhere"
    return f"<span style='{css}'>{match[0]}</span>"


def cells_of(text: str) -> int:
    """Return how many cells of a terminal a text takes: Chinese letters two each, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me") else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def code_words(text: str, *, commas: bool = False) -> list[str]:
    """Split code at spaces, and optionally at commas, outside brackets and strings, up to a comment."""
    words, depth = [""], 0
    for piece in re.finditer(f"{STRING}|.", text):
        letter = piece[0]
        if not depth and letter == "#" and not words[-1]:
            break
        if not depth and (letter.isspace() or (commas and letter == ",")):
            words.append("")
            continue
        depth = max(0, depth + (letter in "([{") - (letter in ")]}"))
        words[-1] += letter
    return [word for word in words if word]


def listed(names: Iterable[str], none: str = "") -> str:
    """Return `a, b and c`, or `none` if there are no names."""
    *first, last = list(names) or [none]
    return f"{', '.join(first)} and {last}" if first else last


def counted(number: int, thing: str) -> str:
    """Return `1 GPU`, `2 GPUs`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def with_full_stop(text: str) -> str:
    """Return a text with a full stop, unless it already ends like a sentence."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def with_article(name: str, article: str = "a") -> str:
    """Return a class name with its article: `an AdamW`, `a Linear`, or with "A": `An LSTM`."""
    is_spelled_out = name[:2].isupper() or name[1:2].isdigit()  # letter by letter: `an L1Loss`
    is_vowel = name[:1] in ("AEFHILMNORSX" if is_spelled_out else "AEIOaeio")
    return f"{article}{'n' if is_vowel else ''} {name}"


def simulated_mark(simulated: object) -> str:
    """Return the mark before the names of GPUs that do not exist: `SIMULATED `. Empty for real GPUs."""
    return "SIMULATED " if simulated else ""


def simulated_title(profile: str) -> str:
    """Return the title of a simulated machine, given its profile. Empty for a real machine."""
    return f"{simulated_mark(profile)}machine ({profile}): these GPUs do not exist" if profile else ""


def bytes_text(size: int) -> str:
    """Return bytes as in tables: `97 MiB`, `79.2 GiB`, or `16.0 TiB` from 1024 GiB on."""
    if size < GIB // 10:
        return f"{size / MIB:.0f} MiB"
    return f"{size / GIB:.1f} GiB" if round(size / GIB, 1) < TIB // GIB else f"{size / TIB:.1f} TiB"


def since_text(moment: float) -> str:
    """Return a past moment, in seconds since the epoch, as a local time: `14:02`, or `21 Nov 14:02`."""
    try:
        then, now = time.localtime(moment), time.localtime()
    except (OverflowError, ValueError, OSError):  # outside the calendar's range
        return "an unknown time"
    is_today = then[:3] == now[:3]
    return time.strftime("%H:%M", then) if is_today else f"{then.tm_mday} {time.strftime('%b %H:%M', then)}"


def age_text(seconds: float) -> str:
    """Return an age in its largest unit, so that it does not change each second: `3 h`."""
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min" if seconds >= _MINUTE else "under a minute"
    return f"{seconds // _HOUR:.0f} h" if seconds < 2 * _DAY else f"{seconds // _DAY:.0f} days"


def time_text(seconds: float) -> str:
    """Return a duration as `%time` shows it: `340 µs`, `52.1 ms`, `12.3 s`, `2 min 5 s`, `1 h 3 min`."""
    if not seconds:
        return "0 s"
    for unit, size in (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if (figure := f"{seconds / size:.3g}") and float(figure) < (_MINUTE if unit == "s" else 1000):
            return f"{figure} {unit}"
    minutes, rest = divmod(round(seconds), _MINUTE)
    hours, left = divmod(minutes, _MINUTE)
    parts = (hours, "h", left, "min") if hours else (minutes, "min", rest, "s")
    return f"{parts[0]} {parts[1]}" + (f" {parts[2]} {parts[3]}" if parts[2] else "")


def size_text(size: int) -> str:
    """Return bytes in the unit that fits: `400 bytes`, `1.5 KiB`, `3.8 MiB`, `1.2 GiB`."""
    if size < 1 << 10:
        return f"{size} bytes"
    if size < MIB:
        return f"{size / (1 << 10):.1f} KiB"
    return f"{size / MIB:.{1 if size < 10 * MIB else 0}f} MiB" if size < GIB else bytes_text(size)


def text_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int] = ()
) -> list[str]:
    """Return a table as lines. `right` has the numbers of the columns that are aligned to the right."""
    cells = [[printable(text) for text in row] for row in (headings, *rows)]
    widths = [max(map(cells_of, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in filter(any, cells):
        line = ""
        for at, (text, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cells_of(text))
            line += f"{space}{text}  " if at in right else f"{text}{space}  "
        lines.append(line.rstrip())
    return lines


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Return a table as escaped HTML, for `html_block`."""

    def line(row: Sequence[str], tag: str) -> str:
        css = (" class='gm-right'" if at in right else "" for at in range(len(row)))
        cells = (f"<{tag}{name}>{escaped(text)}</{tag}>" for text, name in zip(row, css, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    head = f"<thead>{line(headings, 'th')}</thead>" if any(headings) else ""
    return f"<table>{head}<tbody>{''.join(line(row, 'td') for row in rows)}</tbody></table>"


def html_block(title: str, body: str, notes: Iterable[str] = ()) -> str:
    """Return a block of HTML with a title, a body of HTML and notes, in the colors of the front end."""
    title = f"<p class='gm-soft'>{escaped(title)}</p>" if title else ""
    shown = "".join(f"<p class='gm-amber'>{escaped(note)}</p>" for note in notes)
    return f"<div class='gpu-magic'><style>{_STYLE}</style>{title}{body}{shown}</div>"


def html_text(text: str, title: str = "", style: str = "") -> str:
    """Return text as HTML whose lines break between words, as in no other <pre> of JupyterLab."""
    title = f"<b>{escaped(title)}</b> " if title else ""
    return f"<pre style='{_WRAPPED};{style}'>{title}{escaped(text)}</pre>"


def html_bar(share: float) -> str:
    """Return the attribute of a cell of a table that fills a share of the cell, from 0 to 1."""
    return f" style='background:linear-gradient(90deg,#4b8df866 {share:.0%},#0000 0)'"


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = r"(?i)(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?)(i?)B?"


def read_size(size: str | int) -> int | None:
    """Return the bytes of `8GB` (8 * 10**9), `8GiB` (8 * 2**30) or a number. None if it is not a size."""
    match = re.fullmatch(_SIZE, str(size).strip())
    if not match or (match[3] and not match[2]):
        return None
    return round(float(match[1]) * (_BINARY if match[3] else _UNITS)[match[2].upper()])


def size_as_typed(size: str | int) -> str:
    """Return a valid size in the unit that the user typed: `8 GB`."""
    match = re.fullmatch(_SIZE, str(size).strip())
    unit = match[2].upper() if match else ""
    return (
        f"{match[1]} {unit}{'i' if match[3] else ''}B" if match and unit else bytes_text(read_size(size) or 0)
    )


def size_meant(size: str | int, example: str) -> str:
    """Guess the size that a number with no unit or an invalid unit means: `60GB` for `60`.

    A number from 1000 on is in MiB, as in nvidia-smi. Text without a number gives the example.
    """
    match = re.fullmatch(r"\s*([1-9][0-9]{0,6}(?:\.[0-9]{1,2})?)(?:[^0-9.%][^%]*)?", str(size))
    return f"{match[1]}{'GB' if float(match[1]) < 1000 else 'MiB'}" if match else example  # noqa: PLR2004


def is_off(value: object) -> bool:
    """Return whether the value of a setting or a variable turns it off: None, False, 0, or such a text."""
    return value is None or str(value).strip().lower() in ("", "0", "off", "none", "false")


def nearest_option(word: str, options: Collection[str], harmful: Collection[str] = ()) -> str:
    """Return the option with the most similar spelling. Empty if no option is similar.

    Options that can do harm are suggested only for a very similar word.
    """
    import difflib  # rarely needed

    safe = [one for one in options if one not in harmful]
    near = difflib.get_close_matches(word, options, n=1, cutoff=0.85)
    return "".join(near or difflib.get_close_matches(word, safe, n=1, cutoff=0.7))
