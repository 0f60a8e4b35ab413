"""What others ask of this process, and what it answers."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.claims.files import ANSWER
from gpu_magic.claims.folder import Access, NoFolder
from gpu_magic.claims.held import held_here
from gpu_magic.claims.notes import BETWEEN_NOTES, Note, read_notes
from gpu_magic.claims.origin import is_ours
from gpu_magic.claims.own_files import OwnFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["Inbox"]


class _Shown(NamedTuple):
    """A user's note that was let through, and when."""

    name: str
    at: float


class Inbox:
    """The notes of others about what this process, or one that it has started, has claimed.

    Of one user it lets one note through at a time, and one in `BETWEEN_NOTES` seconds. Its methods can be
    called on any thread.

    Parameters
    ----------
    access
        To the folder.

    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._shown: dict[int, _Shown] = {}  # by the number of the user
        self._told: set[str] = set()  # the names of notes
        self._answers = OwnFiles(access)  # by the name of the note

    def open_notes(self) -> tuple[Note, ...]:
        """Return the notes that wait for an answer, each with those of its devices that are claimed here."""
        with contextlib.suppress(NoFolder, OSError), self._access.folder() as folder, self._lock:
            notes = [note for note, file in read_notes(folder) if not is_ours(file.pid)]
            names = {note.name for note in notes}
            self._answers.keep(names)
            self._told &= names
            if notes:
                claimed = held_here(folder)
                asked = (replace(note, uuids=_inside(note.uuids, claimed)) for note in notes)
                open_ones = sorted((note for note in asked if note.uuids), key=lambda note: note.since)
                return tuple(note for note in open_ones if self._lets_through(note, names))
        return ()

    def untold(self, notes: Iterable[Note]) -> list[Note]:
        """Return the notes that were not returned by this before."""
        with self._lock:
            found = [note for note in notes if note.name not in self._told]
            self._told.update(note.name for note in found)
            return found

    def answer(self, notes: Iterable[Note], *, given_up: Collection[str]) -> None:
        """Tell those who have written notes which of their devices are given up; the others are kept."""
        with contextlib.suppress(NoFolder, OSError), self._access.folder() as folder, self._lock:
            for note in notes:
                given = ",".join(uuid for uuid in note.uuids if uuid in given_up)
                kept = ",".join(uuid for uuid in note.uuids if uuid not in given_up)
                self._answers.add(folder, note.name, ANSWER, note.name, given, kept)

    def close(self) -> None:
        """Take the answers back."""
        self._answers.keep(())

    def _lets_through(self, note: Note, there: set[str]) -> bool:
        if note.name in self._answers.by_key:
            return False
        now, shown = time.monotonic(), self._shown.get(note.uid)
        if shown and shown.name != note.name and (shown.name in there or now - shown.at < BETWEEN_NOTES):
            return False
        if not shown or shown.name != note.name:
            self._shown[note.uid] = _Shown(note.name, now)
        return True


def _inside(uuids: Iterable[str], claimed: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(uuid for uuid in uuids if uuid in claimed))
