"""What this process was not told before: others ask for its GPUs, or have answered it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.claims.outbox import Replies
from gpu_magic.process.notes import OpenNote, devices_of
from gpu_magic.process.view import read_machine

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device
    from gpu_magic.process.session import Session

__all__ = ["News", "Reply", "read_news"]


class Reply(NamedTuple):
    """An answer: the name of who has given it, the devices that it gives up, and those that it keeps."""

    owner: str
    given_up: tuple[Device, ...]
    kept: tuple[Device, ...]


class News(NamedTuple):
    """What was not told before.

    Parameters
    ----------
    notes
        Notes that wait for an answer of this process.
    replies
        Answers to its own note.
    unclaimed
        The devices that it has asked for, once nobody else claims one of them any more.

    """

    notes: tuple[OpenNote, ...] = ()
    replies: tuple[Reply, ...] = ()
    unclaimed: tuple[Device, ...] = ()


def read_news(session: Session) -> News:
    """Return what was not returned before. The machine is read only where there is something."""
    notes = session.inbox.untold(session.inbox.open_notes())
    replies = Replies()
    if session.outbox.is_open:
        replies = session.outbox.replies(session.claims.held, session.claims.others())
    if not (notes or replies.answers or replies.unclaimed):
        return News()
    machine = read_machine(session)
    return News(
        tuple(OpenNote(note, devices_of(note.uuids, machine)) for note in notes),
        tuple(
            Reply(answer.owner, devices_of(answer.given_up, machine), devices_of(answer.kept, machine))
            for answer in replies.answers
        ),
        devices_of(replies.unclaimed, machine),
    )
