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
from gpu_magic.claims.notes import AFTER_AN_ANSWER, BETWEEN_NOTES, Note, read_notes
from gpu_magic.claims.origin import is_ours
from gpu_magic.claims.own_files import OwnFiles
from gpu_magic.log import logger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpu_magic.devices.unknown import Unknown

__all__ = ["Inbox"]

_MOST_OPEN = 5  # notes at a time, of different users
_log = logger("claims")


class _Latest(NamedTuple):
    """A user's note that was let through, and until when no other one of theirs is."""

    key: str
    until: float


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
        self._latest: dict[int, _Latest] = {}  # by the number of the user
        self._told: set[str] = set()  # the keys of notes
        self._answers = OwnFiles(access)  # by the key of the note

    def open_notes(self) -> tuple[Note, ...]:
        """Return the notes that wait for an answer, each with those of its devices that are claimed here."""
        with contextlib.suppress(NoFolder, OSError), self._access.folder() as folder, self._lock:
            found = [(note, file.pid) for note, file in read_notes(folder)]
            there = {note.key for note, _ in found}
            answered = self._answers.by_key
            self._answers.keep(there)
            self._told &= there
            if found:
                claimed = held_here(folder)
                asked = [(replace(note, uuids=_inside(note.uuids, claimed)), pid) for note, pid in found]
                waiting = [one for one in asked if one[0].uuids and one[0].key not in answered]
                waiting.sort(key=lambda one: one[0].since)
                return self._let_through(waiting, there)
        return ()

    def untold(self, notes: Iterable[Note]) -> list[Note]:
        """Return the notes that `note_told` was not called with."""
        with self._lock:
            return [note for note in notes if note.key not in self._told]

    def note_told(self, notes: Iterable[Note]) -> None:
        """Take note that the user was told of these."""
        with self._lock:
            self._told.update(note.key for note in notes)

    def answer(self, notes: Iterable[Note], *, given_up: Collection[str]) -> bool:
        """Tell those who have written notes which of their devices are given up; the others are kept.

        Returns
        -------
        bool
            Whether they can read it.

        """
        with contextlib.suppress(NoFolder, OSError), self._access.folder() as folder, self._lock:
            for note in notes:
                given = ",".join(uuid for uuid in note.uuids if uuid in given_up)
                kept = ",".join(uuid for uuid in note.uuids if uuid not in given_up)
                self._answers.add(folder, note.key, ANSWER, note.file, given, kept)
                self._latest[note.uid] = _Latest(note.key, time.monotonic() + AFTER_AN_ANSWER)
                _log.info("Answered who asked: given up %s, kept %s", given or "none", kept or "none")
            return True
        return False

    def close(self) -> None:
        """Take the answers back."""
        self._answers.keep(())

    def _let_through(
        self, waiting: Iterable[tuple[Note, int | Unknown]], there: set[str]
    ) -> tuple[Note, ...]:
        """Return the notes that are shown, of those that wait for an answer."""
        shown: list[Note] = []
        now = time.monotonic()
        for note, pid in waiting:
            latest = self._latest.get(note.uid)
            is_new = latest is None or latest.key != note.key
            if (
                latest
                and is_new
                and (now < latest.until or latest.key in there - self._answers.by_key.keys())
            ):
                continue
            if len(shown) == _MOST_OPEN or is_ours(pid):
                continue
            if is_new:
                self._latest[note.uid] = _Latest(note.key, now + BETWEEN_NOTES)
            shown.append(note)
        return tuple(shown)


def _inside(uuids: Iterable[str], claimed: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(uuid for uuid in uuids if uuid in claimed))
