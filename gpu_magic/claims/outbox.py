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
from gpu_magic.devices.record import record
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpu_magic.devices.claim import Claim

__all__ = ["NotSentError", "Outbox", "Unclaimed"]

_KEY = "note"


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
        self._replies: list[Answer | Unclaimed] = []
        self._told: dict[str, int] = {}  # how many of these, by the teller

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
            self._sent_at = time.monotonic()
            self._heard, self._replies, self._told = set(), [], {}

    def has_news(self, teller: str) -> bool:
        """Return whether there can be a reply that was not handed to this teller."""
        return self.is_open or self._told.get(teller, 0) < len(self._replies)

    def replies(
        self, teller: str, held: frozenset[str], claimed: Collection[str]
    ) -> tuple[Answer | Unclaimed, ...]:
        """Return the replies that were not handed to this teller before.

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
            told, self._told[teller] = self._told.get(teller, 0), len(self._replies)
            return tuple(self._replies[told:])

    def withdraw(self) -> None:
        """End the note."""
        with self._lock:
            self._end()

    def _look(self, sent: _Sent, held: frozenset[str], claimed: Collection[str]) -> None:
        """Note what is new, and end a note that is over."""
        uuids, owners = sent
        answers = list(self._new_answers(uuids, owners))
        is_unclaimed = set(uuids).isdisjoint(claimed)
        if is_unclaimed or len(self._heard) >= len(owners):
            self._end()
        if held.issuperset(uuids):  # it has them, and knows
            return
        self._replies += answers
        given_up = {uuid for reply in self._replies if isinstance(reply, Answer) for uuid in reply.given_up}
        if is_unclaimed and not given_up.issuperset(uuids):
            self._replies.append(Unclaimed(tuple(uuid for uuid in uuids if uuid not in given_up)))

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
