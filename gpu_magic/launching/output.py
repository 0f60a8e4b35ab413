"""What a command writes: files that grow, read piece by piece, and a bound on what is shown of them."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from gpu_magic.text import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["Output", "last_traceback"]

_MOST_KEPT = 1 << 20  # bytes of a file that `text` returns
_PIECE = 4 << 20  # bytes
_LONGEST_LINE = 4096  # bytes
_TRACEBACK = "Traceback (most recent call last):"


class Output:
    """What one rank, or a command without ranks, writes.

    Parameters
    ----------
    label
        What stands before each of its lines: the rank; empty for the command's own.
    title
        What it is called: `Rank 1`.
    find
        Returns the files, in the order in which they are read; there can be more of them later.
    is_rank
        Whether it is not a launcher's own.
    process
        The number of the process that has started it: 0, unless the command was started once for each GPU.

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
        self._find = find
        self._read: dict[Path, int] = {}  # how many bytes of each file were read
        self._decoders: dict[Path, codecs.IncrementalDecoder] = {}
        self.was_cut = False

    def read(self, most: int | None) -> str:
        """Return what was written since the last call.

        Parameters
        ----------
        most
            Bytes. Where more was written, its end is returned, and before it what is missing. None: nothing
            is left out, but what is more than some MiB comes with the next call.

        """
        texts = []
        for file in self._find():
            texts.append(self._read_file(file, most))
            if most is not None:
                most = max(0, most - len(texts[-1]))
        return "".join(texts)

    def __repr__(self) -> str:
        return f"<Output {self.title}>"

    @property
    def text(self) -> str:
        """All that was written; of long files, the end."""
        return "".join(_read_end(file, _MOST_KEPT)[0] for file in self._find())

    def tail(self, most: int) -> str:
        """Return what was written; of more bytes than that the end, and before it what is missing."""
        texts = []
        files = list(self._find())
        for file in files:
            text, missing = _read_end(file, most // len(files))
            texts += [_cut(missing, file)] if missing else []
            texts.append(text)
            self.was_cut = self.was_cut or missing > 0
        return "".join(texts)

    @property
    def changed(self) -> float:
        """When something was last written: seconds since the epoch; 0 where nothing was."""
        return max((file.stat().st_mtime for file in self._find() if file.exists()), default=0.0)

    def _read_file(self, file: Path, most: int | None) -> str:
        done = self._read.get(file, 0)
        cut = ""
        try:
            new = file.stat().st_size - done
            if new <= 0:
                return ""
            with file.open("rb") as stream:
                if most is not None and new > most:
                    stream.seek(done + new - most)
                    # From the beginning of a line, if there is one: progress bars write none.
                    missing = new - most + len(stream.readline(min(most, _LONGEST_LINE)))
                    cut = "\n" + _cut(missing, file)
                    self._decoders.pop(file, None)
                    self.was_cut = True
                    done += missing
                else:
                    stream.seek(done)
                read = stream.read(_PIECE if most is None else most)
        except OSError:
            return ""
        self._read[file] = done + len(read)
        decoder = self._decoders.setdefault(file, codecs.getincrementaldecoder("utf-8")("replace"))
        return cut + decoder.decode(read)


def last_traceback(text: str) -> str:
    """Return the last Python traceback in a text, from its first line to the end; empty without one.

    PyTorch begins each line of a rank's with `[rank1]: `, which is left out.
    """
    place = text.rfind(_TRACEBACK)
    return re.sub(r"^\[rank\d+\]: ?", "", text[place:], flags=re.MULTILINE).rstrip() if place >= 0 else ""


def _read_end(file: Path, most: int) -> tuple[str, int]:
    """Return the end of a file, and how many bytes there are before it."""
    try:
        with file.open("rb") as stream:
            missing = max(0, stream.seek(0, 2) - most)
            stream.seek(missing)
            if missing:
                missing += len(stream.readline(min(most, _LONGEST_LINE)))
            return stream.read().decode(errors="replace"), missing
    except OSError:
        return "", 0


def _cut(missing: int, file: Path) -> str:
    return f"… {size_text(missing)} are left out here; they stand in {file}\n"
