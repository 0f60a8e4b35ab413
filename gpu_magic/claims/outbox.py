"""What this process asks of others, and what they answer."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.claims.files import ANSWER, NOTE, read
from gpu_magic.claims.folder import Access, NoFolder
from gpu_magic.claims.notes import AFTER_AN_ANSWER, BETWEEN_NOTES, LONGEST_TEXT, Answer, Note, read_notes
from gpu_magic.claims.origin import notebook_name
from gpu_magic.claims.own_files import OwnFiles
from gpu_magic.devices.processes import descends_from
from gpu_magic.devices.record import record
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.log import logger
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpu_magic.claims.files import SharedFile
    from gpu_magic.devices.claim import Claim

__all__ = ["NotSentError", "Outbox", "Unclaimed"]

_KEY = "note"
_log = logger("claims")


class NotSentError(Exception):
    """A note was not sent: why, as a sentence."""


@record
class Unclaimed:
    """Nobody else claims the devices any more that were asked for.

    Parameters
    ----------
    uuids
        The devices.

    """

    uuids: tuple[str, ...]


class _Sent(NamedTuple):
    """A note that was sent: its file, its devices, and the claims of those who have yet to answer."""

    file: str
    uuids: tuple[str, ...]
    asked: tuple[Claim, ...]


class Outbox:
    """The one note of this process. Its methods can be called on any thread.

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
        self._next_at = 0.0
        self._replies: list[Answer | Unclaimed] = []
        self._told: dict[str, int] = {}  # how many of these, by the teller

    def send(self, uuids: Iterable[str], text: str, asked: Iterable[Claim]) -> None:
        """Ask those who have claimed some devices for them.

        Parameters
        ----------
        uuids
            The devices.
        text
            What else to say.
        asked
            The claims on them, one of each process.

        Raises
        ------
        NotSentError
            It is too soon after the last one, another process of this user has one open, or it can't be
            written.

        """
        wanted = tuple(uuids)
        with self._lock:
            left = self._next_at - time.monotonic()
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
                    self._end()
                    said = shortened(text, LONGEST_TEXT)
                    self._files.add(folder, _KEY, NOTE, ",".join(wanted), notebook_name(), said)
            except NoFolder as error:
                raise NotSentError(
                    f"Notes can't be shared here{f': {error}' if str(error) else ''}."
                ) from None
            except OSError as error:
                raise NotSentError(f"The note can't be written ({error.strerror}).") from None
            self._sent = _Sent(self._files.by_key[_KEY].name, wanted, tuple(asked))
            self._next_at = time.monotonic() + BETWEEN_NOTES
            self._replies, self._told = [], {}
            _log.info("Asked for: %s", ", ".join(wanted))

    def has_news(self, teller: str) -> bool:
        """Return whether there can be a reply that this teller has not told of."""
        return self._sent is not None or self._told.get(teller, 0) < len(self._replies)

    def replies(
        self, teller: str, held: frozenset[str], claimed: Collection[str]
    ) -> tuple[Answer | Unclaimed, ...]:
        """Return the replies that this teller has not told of.

        The note ends when all have answered, or nobody else claims one of the devices any more.

        Parameters
        ----------
        teller
            Who tells the user: there can be several.
        held
            The UUIDs of the devices that this process has claimed.
        claimed
            Those that others have claimed.

        """
        with self._lock:
            if self._sent is not None:
                self._look(self._sent, held, claimed)
            return tuple(self._replies[self._told.get(teller, 0) :])

    def note_told(self, teller: str, number: int) -> None:
        """Take note that a teller has told of so many more replies."""
        with self._lock:
            self._told[teller] = self._told.get(teller, 0) + number

    def withdraw(self) -> None:
        """End the note."""
        with self._lock:
            self._end()

    def _look(self, sent: _Sent, held: frozenset[str], claimed: Collection[str]) -> None:
        """Note what is new, and end a note that is over."""
        for file in self._answers(sent.file):
            _, given, kept, *_ = (*file.lines, "", "")
            answered = [claim for claim in sent.asked if _is_by(file, claim)]
            if answered:  # else whoever it is was not asked, or has answered
                sent = sent._replace(asked=tuple(claim for claim in sent.asked if claim not in answered))
                first, named = answered[0], (_inside(sent.uuids, given), _inside(sent.uuids, kept))
                self._replies.append(Answer(first.owner, first.notebook, *named))
        self._sent = sent
        is_unclaimed = set(sent.uuids).isdisjoint(claimed)
        if not is_unclaimed and sent.asked:
            return
        if not sent.asked:
            self._next_at = min(self._next_at, time.monotonic() + AFTER_AN_ANSWER)
        self._end()
        answers = [reply for reply in self._replies if isinstance(reply, Answer)]
        given_up = {uuid for answer in answers for uuid in answer.given_up}
        left = tuple(uuid for uuid in sent.uuids if uuid not in given_up | held)
        if is_unclaimed and left:
            self._replies.append(Unclaimed(left))

    def _answers(self, note: str) -> Iterable[SharedFile]:
        with contextlib.suppress(NoFolder, OSError), self._access.folder() as folder:
            yield from (file for file in read(folder, ANSWER) if file.lines[:1] == (note,))

    def _end(self) -> None:
        self._files.keep(())
        self._sent = None


def _is_by(file: SharedFile, claim: Claim) -> bool:
    """Return whether an answer comes from the process that has made a claim, or has started that process."""
    if file.owner != claim.owner:
        return False
    if file.pid is UNKNOWN or claim.pid is UNKNOWN:
        return file.pid is claim.pid
    return file.pid == claim.pid or descends_from(claim.pid, (file.pid,))


def _inside(uuids: Iterable[str], named: str) -> tuple[str, ...]:
    return tuple(uuid for uuid in uuids if uuid in named.split(","))


def _other_note(folder: int) -> Note | None:
    """Return the open note of another process of this user."""
    return next((note for note, _ in read_notes(folder) if note.uid == os.geteuid()), None)
