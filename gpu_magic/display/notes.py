"""What is said of notes, by which others ask for GPUs that this process has claimed, and of their replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.text import listed, printable, since_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gpu_magic.devices.model import Device
    from gpu_magic.process.news import News, Reply
    from gpu_magic.process.notes import OpenNote

__all__ = ["how_to_answer", "it_or_them", "labels", "news_lines", "note_text", "owner_text", "reply_text"]

_HOW_TO_ANSWER = "%gpus --give-up ends your claim and frees memory; %gpus --keep says no."
_OF_STARTED = (
    "What this kernel has started has claimed it: see %gpu_tasks, %gpu_cluster; %gpus --keep says no."
)


def note_text(note: OpenNote) -> str:
    """Return what somebody asks: `bob (eval.ipynb) asks for GPU 3, since 14:02: my deadline is tonight`."""
    asked = note.note
    where, what = f" ({asked.notebook})" if asked.notebook else "", f": {asked.text}" if asked.text else ""
    return printable(
        f"{asked.owner}{where} asks for {labels(note.devices)}, since {since_text(asked.since)}{what}"
    )


def news_lines(news: News) -> Iterator[str]:
    """Yield what is to be said before a cell runs."""
    yield from map(note_text, news.notes)
    yield from how_to_answer(news.notes)
    yield from map(reply_text, news.replies)


def how_to_answer(notes: Iterable[OpenNote]) -> list[str]:
    """Return how notes are answered, a line for each way."""
    return list(dict.fromkeys(_HOW_TO_ANSWER if note.can_give_up else _OF_STARTED for note in notes))


def reply_text(reply: Reply) -> str:
    """Return a reply as a sentence: `bob (train.ipynb) has given up GPU 3: %gpus 3 chooses it`."""
    unclaimed = [device for device in reply.given_up if not device.status.claims]
    how = f": {_how_to_choose(unclaimed)}" if unclaimed else ""
    if not reply.owner:
        return f"Nobody else claims {labels(reply.given_up)} any more{how}."
    said = [f"has given up {labels(reply.given_up)}{how}"] if reply.given_up else []
    said += [f"keeps {labels(reply.kept)}"] if reply.kept else []
    return printable(f"{owner_text(reply.owner, reply.notebook)} {'; '.join(said) or 'has answered'}.")


def owner_text(owner: str, notebook: str) -> str:
    """Return who asks or answers: `bob (train.ipynb)`."""
    return f"{owner} ({notebook})" if notebook else owner


def labels(devices: Iterable[Device]) -> str:
    """Return devices as a list in words: `GPU 1 and GPU 3`."""
    return listed(device.label for device in devices)


def it_or_them(devices: Collection[Device]) -> str:
    """Return how devices are spoken of once they were named."""
    return "it" if len(devices) == 1 else "them"


def _how_to_choose(devices: Iterable[Device]) -> str:
    devices = list(devices)
    numbers = ",".join(device.number_text for device in devices)
    return f"%gpus {numbers} chooses {it_or_them(devices)}"
