"""What becomes of it when users ask each other for GPUs, and answer: `%gpus --ask`, `--give-up`, `--keep`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.display.choice import Choice
from gpu_magic.display.notes import it_or_them, labels, owner_text
from gpu_magic.text import listed, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_magic.devices.model import Device
    from gpu_magic.display.memory import Freed
    from gpu_magic.process.asking import Asking, Giving
    from gpu_magic.process.notes import OpenNote

__all__ = ["Asked", "GivenUp", "Kept"]


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
        of = listed(owner_text("you" if claim.is_own else claim.owner, claim.notebook) for claim in claims)
        numbers = ",".join(device.number_text for device in self.devices)
        return printable(
            f"Asked for {labels(self.devices)}: {of}. The answer is shown with a later cell of yours. "
            f"%gpus {numbers} --wait 30m waits until nobody else has {it_or_them(self.devices)}."
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
        yield f"Given up: {labels(giving.devices)}{told}."
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
        return printable(f"Kept: {labels(self.devices)}; {_askers(self._notes)} can read that.")


def _askers(notes: Iterable[OpenNote]) -> str:
    return listed(dict.fromkeys(note.note.owner for note in notes))
