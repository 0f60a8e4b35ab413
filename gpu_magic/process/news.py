"""What this process was not told before: others ask for its GPUs, or have answered it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.claims.outbox import Unclaimed
from gpu_magic.process.notes import OpenNote, devices_of
from gpu_magic.process.view import read_machine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_magic.claims.notes import Answer
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Device
    from gpu_magic.process.session import Session

__all__ = ["News", "Reply", "read_news", "read_replies"]


class Reply(NamedTuple):
    """A reply to what this process has asked for.

    Parameters
    ----------
    owner
        The name of who has answered; empty where nobody has, and nobody else claims the devices any more.
    available, kept
        The devices that can be chosen now, and those that their owner keeps.

    """

    owner: str
    available: tuple[Device, ...]
    kept: tuple[Device, ...] = ()


class News(NamedTuple):
    """What was not told before: notes that wait for an answer of this process, and replies to its own."""

    notes: tuple[OpenNote, ...] = ()
    replies: tuple[Reply, ...] = ()


def read_news(session: Session) -> News:
    """Return what no cell was told before. The machine is read only where there is something."""
    notes = session.inbox.untold(session.inbox.open_notes())
    replies = _replies(session, "cell")
    if not notes and not replies:
        return News()
    machine = read_machine(session)
    found = tuple(OpenNote(note, devices_of(note.uuids, machine)) for note in notes)
    return News(found, _with_devices(replies, machine))


def read_replies(session: Session, machine: Inventory) -> tuple[Reply, ...]:
    """Return the replies that no panel was told before."""
    return _with_devices(_replies(session, "panel"), machine)


def _replies(session: Session, teller: str) -> tuple[Answer | Unclaimed, ...]:
    if not session.outbox.has_news(teller):
        return ()
    return session.outbox.replies(teller, session.claims.held, session.claims.others())


def _with_devices(replies: Iterable[Answer | Unclaimed], machine: Inventory) -> tuple[Reply, ...]:
    return tuple(
        Reply("", devices_of(reply.uuids, machine))
        if isinstance(reply, Unclaimed)
        else Reply(reply.owner, devices_of(reply.given_up, machine), devices_of(reply.kept, machine))
        for reply in replies
    )
