"""The output of a command: read in pieces from files, and shown as lines or in folds."""

from __future__ import annotations

import codecs
import io
import re
import time
from html import escape
from typing import TYPE_CHECKING

from gpu_magic.text import counted, escaped, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from typing import TextIO

__all__ = ["Output", "RankFolds", "RankLines", "last_traceback"]

_MAX_TEXT_BYTES = 1 << 20  # of a file that `text` returns
_PIECE_BYTES = 4 << 20
_LONGEST_LINE = 4096  # bytes, or characters of an unfinished line
_MAX_FOLDED_BYTES = 256 << 10  # of all ranks in folds, which stay in the notebook and grow as HTML
_TRACEBACK = "Traceback (most recent call last):"
_COLORS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # ECMA-48's control sequences


class Output:
    """The output of a rank, or of a command without ranks.

    Attributes
    ----------
    label
        The prefix of its lines: the rank. Empty for the command itself.
    title
        Its title: `Rank 1`.
    is_rank
        Whether a rank writes it, not the command itself.
    process
        The number of the command's process: 0, unless the command was started once for each GPU.

    """

    def __init__(
        self,
        label: str,
        title: str,
        find: Callable[[], Iterable[Path]],
        *,
        is_rank: bool = True,
        process: int = 0,
    ) -> None:
        self.label, self.title, self.is_rank, self.process = label, title, is_rank, process
        self.was_cut = False
        self._find = find  # returns the files in reading order; later calls can return more
        self._read: dict[Path, tuple[int, codecs.IncrementalDecoder]] = {}  # bytes read, and the decoder

    def __repr__(self) -> str:
        return f"<Output {self.title}>"

    def read(self, most: int | None) -> str:
        """Return the output since the last call.

        If the output has more than `most` bytes, return a line about the missing bytes, and the end. None:
        nothing is missing, but one call returns at most 4 MiB of a file.
        """
        texts = []
        for file in self._find():
            start, decoder = self._read.get(file) or (0, codecs.getincrementaldecoder("utf-8")("replace"))
            read, missing = _read(file, start, most)
            if missing:
                decoder.reset()
                self.was_cut = True
                texts.append(f"\n{_cut(missing, file)}")
            self._read[file] = start + missing + len(read), decoder
            texts.append(decoder.decode(read))
            if most is not None:
                most = max(0, most - len(texts[-1]))
        return "".join(texts)

    @property
    def text(self) -> str:
        """The output, or the end of long files."""
        return "".join(_read(file, 0, _MAX_TEXT_BYTES)[0].decode(errors="replace") for file in self._find())

    def tail(self, most: int) -> str:
        """Return the output. If it has more than `most` bytes: a line about missing bytes, and the end."""
        texts, files = [], list(self._find())
        for file in files:
            read, missing = _read(file, 0, most // len(files))
            texts += [_cut(missing, file)] if missing else []
            texts.append(read.decode(errors="replace"))
            self.was_cut = self.was_cut or missing > 0
        return "".join(texts)

    @property
    def changed(self) -> float:
        """The time of the last output, in seconds since the epoch. 0: there is no output."""
        return max((file.stat().st_mtime for file in self._find() if file.exists()), default=0.0)


def _read(file: Path, start: int, most: int | None) -> tuple[bytes, int]:
    """Return the bytes of a file from `start`, or the last `most`, and how many bytes are left out."""
    try:
        with file.open("rb") as stream:
            missing = 0 if most is None else max(0, stream.seek(0, 2) - start - most)
            stream.seek(start + missing)
            if missing:  # from the start of a line, if there is one (progress bars write no newline)
                missing += len(stream.readline(min(most or 0, _LONGEST_LINE)))
            return stream.read(_PIECE_BYTES if most is None else most), missing
    except OSError:
        return b"", 0


def _cut(missing: int, file: Path) -> str:
    return f"… {size_text(missing)} are left out here; they stand in {file}\n"


def last_traceback(text: str) -> str:
    """Return the last Python traceback in a text, and all text after it. Empty if there is none.

    PyTorch writes `[rank1]: ` before each line of a rank's traceback. This prefix is removed.
    """
    place = text.rfind(_TRACEBACK)
    return re.sub(r"^\[rank\d+\]: ?", "", text[place:], flags=re.MULTILINE).rstrip() if place >= 0 else ""


class RankLines:
    """Writes the output of several ranks line by line. Writes the output of one process as it arrives.

    A progress bar rewrites its line many times. Only its state every `seconds`, and its last state, are
    written.
    """

    def __init__(self, stream: TextIO, *, has_ranks: bool, seconds: float = 5.0) -> None:
        self._stream, self._has_ranks, self._seconds = stream, has_ranks, seconds
        self._begun: dict[str, str] = {}  # unfinished lines, by rank
        self._is_within_line = False
        self._due = time.monotonic() + seconds

    def show(self, pieces: Iterable[tuple[Output, str]]) -> None:
        """Write new output. Called many times a second."""
        for output, text in pieces:
            self.add(output.label, text)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._seconds
            for label in [label for label, line in self._begun.items() if "\r" in line]:
                self._write(f"{_line(label, self._begun.pop(label))}\n")

    def add(self, label: str, text: str) -> None:
        """Write the output of a rank. `label` is the rank's number, or empty for the launcher."""
        if not self._has_ranks:
            self._write(text)
            self._is_within_line = not text.endswith("\n") if text else self._is_within_line
            return
        *lines, rest = (self._begun.pop(label, "") + text).split("\n")
        self._write("".join(f"{_line(label, line)}\n" for line in lines))
        if len(rest) > _LONGEST_LINE:
            self._write(f"{_line(label, rest)}\n")
        elif rest:
            self._begun[label] = rest

    def end(self) -> None:
        """Write the unfinished lines."""
        for label, line in self._begun.items():
            self._write(f"{_line(label, line)}\n")
        self._begun.clear()
        if self._is_within_line:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _line(label: str, line: str) -> str:
    return f"[{label}] {_last_state(line)}" if label else _last_state(line)


def _last_state(line: str) -> str:
    """Return the visible part of a line: the last state of a progress bar."""
    return line.rstrip("\r").rpartition("\r")[2]


class RankFolds:
    """The output of ranks, a fold for each, as it stays in a notebook.

    `failure` is the rank that failed first, and its traceback. Its fold is at the top and open. `str` returns
    the lines of one rank after the other, each with the rank's number.
    """

    def __init__(self, outputs: Sequence[Output], failure: tuple[Output, str] | None) -> None:
        most = _MAX_FOLDED_BYTES // max(1, len(outputs))
        self.texts = [(output, text) for output in outputs if (text := output.tail(most))]
        self._failure = failure

    def __str__(self) -> str:
        text = io.StringIO()
        lines = RankLines(text, has_ranks=True)
        for output, written in self.texts:
            lines.add(output.label, written)
            lines.end()
        return text.getvalue()

    def _repr_html_(self) -> str:
        failed, traceback = self._failure or (None, "")
        folds = []
        for output, text in sorted(self.texts, key=lambda one: one[0] is not failed):
            is_open, what = "", counted(len(text.rstrip("\n").split("\n")), "line")
            if output is failed:
                is_open, what = " open", _COLORS.sub("", traceback).splitlines()[-1]
            # Without colors, and with only the last state of progress bars.
            lines = map(_last_state, _COLORS.sub("", text).split("\n"))
            folds.append(
                f"<details{is_open}><summary>{escaped(f'{output.title} · {what}')}</summary>"
                f'<div style="max-height: 24em; overflow: auto"><pre style="margin: 0">'
                f"{escape(chr(10).join(lines))}</pre></div></details>"
            )
        return "".join(folds)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": str(self).rstrip("\n"), "text/html": self._repr_html_()}
