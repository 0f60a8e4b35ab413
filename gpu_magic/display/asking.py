"""What is said where users ask each other for GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.display.choice import Choice
from gpu_magic.text import listed, printable, since_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gpu_magic.devices.model import Device
    from gpu_magic.display.memory import Freed
    from gpu_magic.process.asking import Asking, Giving
    from gpu_magic.process.news import News, Reply
    from gpu_magic.process.notes import OpenNote

__all__ = ["Asked", "GivenUp", "Kept", "how_to_answer", "news_lines", "note_text", "reply_text"]

_HOW_TO_ANSWER = "%gpus --give-up ends your claim and frees memory; %gpus --keep says no."
_OF_STARTED = (
    "What this kernel has started has claimed it: see %gpu_tasks, %gpu_cluster; %gpus --keep says no."
)


class Asked:
    """The answer to `%gpus 3 --ask`. It shows itself as text.

    Parameters
    ----------
    asking
        What was asked of whom.

    """

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that were asked for."""
        return self._asking.devices

    def __repr__(self) -> str:
        claims = self._asking.claims
        of = listed(_who(claim.owner, claim.notebook) for claim in claims)
        numbers = ",".join(device.number_text for device in self.devices)
        return printable(
            f"Asked for {_labels(self.devices)}: {of}. The answer is shown with a later cell of yours. "
            f"%gpus {numbers} --wait 30m waits until nobody else has {_it(self.devices)}."
        )


class GivenUp:
    """The answer to `%gpus --give-up`. It shows itself as text.

    Parameters
    ----------
    giving
        What was given up.
    freed
        What was freed before; None where CUDA was not initialized, so that there was nothing.

    """

    def __init__(self, giving: Giving, freed: Freed | None) -> None:
        self._giving, self._freed = giving, freed

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that were given up."""
        return self._giving.devices

    @property
    def freed(self) -> Freed | None:
        """What was freed, and what holds the rest; None where there was nothing to free."""
        return self._freed

    def __repr__(self) -> str:
        return "\n".join(map(printable, self._lines()))

    def _lines(self) -> Iterator[str]:
        giving = self._giving
        told = f"; {_askers(giving.told)} can read that" if giving.told else ""
        yield f"Given up: {_labels(giving.devices)}{told}."
        if giving.outcome is not None:
            yield from str(Choice(giving.outcome)).split("\n")
        if self._freed is not None:
            yield from str(self._freed).split("\n")
        if giving.outcome is None and giving.kept_as:
            yield (
                f"{giving.runtime} has started here, so this kernel keeps {listed(giving.kept_as)}, and some "
                "memory there, until it is restarted."
            )


class Kept:
    """The answer to `%gpus --keep`. It shows itself as text.

    Parameters
    ----------
    notes
        What was asked.

    """

    def __init__(self, notes: tuple[OpenNote, ...]) -> None:
        self._notes = notes

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that were asked for."""
        return tuple(dict.fromkeys(device for note in self._notes for device in note.devices))

    def __repr__(self) -> str:
        return printable(f"Kept: {_labels(self.devices)}; {_askers(self._notes)} can read that.")


def note_text(note: OpenNote) -> str:
    """Return what somebody asks: `bob (eval.ipynb) asks for GPU 3, since 14:02: my deadline is tonight`."""
    asked = note.note
    where, what = f" ({asked.notebook})" if asked.notebook else "", f": {asked.text}" if asked.text else ""
    return printable(
        f"{asked.owner}{where} asks for {_labels(note.devices)}, since {since_text(asked.since)}{what}"
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
        return f"Nobody else claims {_labels(reply.given_up)} any more{how}."
    said = [f"has given up {_labels(reply.given_up)}{how}"] if reply.given_up else []
    said += [f"keeps {_labels(reply.kept)}"] if reply.kept else []
    return printable(f"{_who(reply.owner, reply.notebook)} {'; '.join(said) or 'has answered'}.")


def _who(owner: str, notebook: str) -> str:
    return f"{owner} ({notebook})" if notebook else owner


def _askers(notes: Iterable[OpenNote]) -> str:
    return listed(dict.fromkeys(note.note.owner for note in notes))


def _how_to_choose(devices: Iterable[Device]) -> str:
    devices = list(devices)
    numbers = ",".join(device.number_text for device in devices)
    return f"%gpus {numbers} chooses {_it(devices)}"


def _it(devices: Collection[Device]) -> str:
    return "it" if len(devices) == 1 else "them"


def _labels(devices: Iterable[Device]) -> str:
    return listed(device.label for device in devices)
