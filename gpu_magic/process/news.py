"""What this process was not told before: others ask for its GPUs, or have answered it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.claims.outbox import Unclaimed
from gpu_magic.process.notes import OpenNote, devices_of, with_devices
from gpu_magic.process.view import read_machine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_magic.claims.notes import Answer
    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Device
    from gpu_magic.process.session import Session

__all__ = ["News", "Reply", "note_told", "read_news", "read_replies"]


class Reply(NamedTuple):
    """A reply to what this process has asked for.

    Parameters
    ----------
    owner, notebook
        The names of who has answered, and of their notebook; empty where nobody has, and nobody else claims
        the devices any more.
    given_up, kept
        The devices that are claimed no more, and those that their owner keeps.

    """

    owner: str
    notebook: str
    given_up: tuple[Device, ...]
    kept: tuple[Device, ...] = ()


class News(NamedTuple):
    """What was not told before: notes that wait for an answer of this process, and replies to its own."""

    notes: tuple[OpenNote, ...] = ()
    replies: tuple[Reply, ...] = ()


def read_news(session: Session) -> News:
    """Return what no cell has told. The machine is read only where there is something."""
    notes = session.inbox.untold(session.inbox.open_notes())
    replies = _replies(session, "cell")
    if not notes and not replies:
        return News()
    machine = read_machine(session)
    return News(with_devices(notes, session, machine), _with_devices(replies, machine))


def read_replies(session: Session, machine: Inventory) -> tuple[Reply, ...]:
    """Return the replies that no panel has told."""
    return _with_devices(_replies(session, "panel"), machine)


def note_told(session: Session, teller: str, news: News) -> None:
    """Take note that the user was told: by the "cell" or by the "panel"."""
    session.inbox.note_told(one.note for one in news.notes)
    session.outbox.note_told(teller, len(news.replies))


def _replies(session: Session, teller: str) -> tuple[Answer | Unclaimed, ...]:
    if not session.outbox.has_news(teller):
        return ()
    return session.outbox.replies(teller, session.claims.held, session.claims.others())


def _with_devices(replies: Iterable[Answer | Unclaimed], machine: Inventory) -> tuple[Reply, ...]:
    return tuple(
        Reply("", "", devices_of(reply.uuids, machine))
        if isinstance(reply, Unclaimed)
        else Reply(
            reply.owner,
            reply.notebook,
            devices_of(reply.given_up, machine),
            devices_of(reply.kept, machine),
        )
        for reply in replies
    )
