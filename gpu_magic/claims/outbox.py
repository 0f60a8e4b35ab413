"""What this process asks of others, and what they answer."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.claims.files import ANSWER, NOTE, read
from gpu_magic.claims.folder import Access, NoFolder
from gpu_magic.claims.notes import BETWEEN_NOTES, LONGEST_TEXT, Answer, Note, read_notes
from gpu_magic.claims.origin import notebook_name
from gpu_magic.claims.own_files import OwnFiles
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_magic.devices.claim import Claim

__all__ = ["NotSentError", "Outbox", "Replies"]

_KEY = "note"


class NotSentError(Exception):
    """A note was not sent: why, as a sentence."""


class Replies(NamedTuple):
    """What has come of a note since it was asked for last.

    Parameters
    ----------
    answers
        The new answers.
    unclaimed
        The UUIDs of the devices, once nobody else claims one of them any more.

    """

    answers: tuple[Answer, ...] = ()
    unclaimed: tuple[str, ...] = ()


class _Sent(NamedTuple):
    """A note that was sent: its devices, and whose claims on them there were."""

    uuids: tuple[str, ...]
    owners: tuple[str, ...]


class Outbox:
    """The one note of this process.

    Parameters
    ----------
    access
        To the folder.

    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._files = OwnFiles(access)
        self._sent: _Sent | None = None
        self._sent_at = -BETWEEN_NOTES
        self._heard: set[str] = set()  # the names of the answers

    @property
    def is_open(self) -> bool:
        """Whether a note waits for answers."""
        return self._sent is not None

    def send(self, uuids: Iterable[str], text: str, claims: Iterable[Claim]) -> None:
        """Ask those who have claimed some devices for them.

        Raises
        ------
        NotSentError
            It is too soon after the last one, another process of this user has one open, or it can't be
            written.

        """
        wanted = tuple(uuids)
        with self._lock:
            left = self._sent_at + BETWEEN_NOTES - time.monotonic()
            if left > 0:
                minutes = max(1, round(left / 60))
                raise NotSentError(f"You have asked a short time ago; the next note can go in {minutes} min.")
            try:
                with self._access.folder(make=True) as folder:
                    if other := _other_note(folder):
                        where = other.notebook or "another process"
                        raise NotSentError(
                            f"A note of yours is open already, from {where}: one at a time, and it ends with "
                            "its answers or with that kernel."
                        )
                    self._files.keep(())
                    said = shortened(text, LONGEST_TEXT)
                    self._files.add(folder, _KEY, NOTE, ",".join(wanted), notebook_name(), said)
            except NoFolder as error:
                raise NotSentError(
                    f"Notes can't be shared here{f': {error}' if str(error) else ''}."
                ) from None
            except OSError as error:
                raise NotSentError(f"The note can't be written ({error.strerror}).") from None
            self._sent = _Sent(wanted, tuple(claim.owner for claim in claims))
            self._sent_at, self._heard = time.monotonic(), set()

    def replies(self, held: frozenset[str], claimed: Iterable[str]) -> Replies:
        """Return what is new.

        The note ends when all have answered, or nobody else claims one of the devices any more.

        Parameters
        ----------
        held
            The UUIDs of the devices that this process has claimed.
        claimed
            Those that others have claimed.

        """
        with self._lock:
            if self._sent is None:
                return Replies()
            uuids, owners = self._sent
            answers = tuple(self._new_answers(uuids, owners))
            is_unclaimed = set(uuids).isdisjoint(claimed)
            if is_unclaimed or len(self._heard) >= len(owners):
                self._end()
            if held.issuperset(uuids):  # it has them, and knows
                return Replies()
            return Replies(answers, uuids if is_unclaimed else ())

    def withdraw(self) -> None:
        """End the note."""
        with self._lock:
            self._end()

    def _new_answers(self, uuids: tuple[str, ...], owners: tuple[str, ...]) -> Iterable[Answer]:
        file = self._files.by_key.get(_KEY)
        with contextlib.suppress(NoFolder, OSError), self._access.folder() as folder:
            for found in read(folder, ANSWER):
                note, given, kept, *_ = (*found.lines, "", "", "")
                if file and note == file.name and found.owner in owners and found.name not in self._heard:
                    self._heard.add(found.name)
                    yield Answer(found.owner, _inside(uuids, given), _inside(uuids, kept))

    def _end(self) -> None:
        self._files.keep(())
        self._sent = None


def _inside(uuids: Iterable[str], named: str) -> tuple[str, ...]:
    return tuple(uuid for uuid in uuids if uuid in named.split(","))


def _other_note(folder: int) -> Note | None:
    """Return the open note of another process of this user."""
    return next((note for note, _ in read_notes(folder) if note.uid == os.geteuid()), None)
