"""The memory that a step takes, as `gpu_magic.fit` returns it and `%gpu_fit` shows it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.text import bytes_text, html_block, listed, printable, size_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_magic.fitting.fit import Prediction
    from gpu_magic.fitting.verdict import Room

__all__ = ["Fit"]

_MOST_LISTED = 4  # GPUs


class Fit:
    """The peak of GPU memory in one step, and on which GPUs of this process it fits. Shows itself as a table.

    Parameters
    ----------
    prediction
        What was predicted.

    """

    __slots__ = ("_prediction",)
    _prediction: Prediction

    def __init__(self, prediction: Prediction) -> None:
        object.__setattr__(self, "_prediction", prediction)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} can't be set: a prediction does not change.")

    @property
    def parts(self) -> Mapping[str, int]:
        """The bytes of each part at the peak, by its name; together they are the peak."""
        return dict(self._prediction.memory.parts)

    @property
    def peak(self) -> int:
        """The most bytes that the framework's arrays take together, without what CUDA itself takes."""
        return self._prediction.memory.peak

    @property
    def parameters(self) -> int | Unknown:
        """The bytes of the model's parameters and buffers; UNKNOWN where nothing tells them apart."""
        return self._part("parameters")

    @property
    def gradients(self) -> int | Unknown:
        """The bytes of the parameters' gradients that are there at the peak."""
        return self._part("gradients")

    @property
    def optimizer_state(self) -> int | Unknown:
        """The bytes of the optimizer's state, as it is from its second step on."""
        return self._part("optimizer state")

    @property
    def activations(self) -> int | Unknown:
        """The bytes of the batch and of what the forward has made, as far as it is there at the peak."""
        return self._part("activations")

    @property
    def temporary(self) -> int | Unknown:
        """The bytes of all else that is there at the peak."""
        return self._part("temporary")

    @property
    def batch_size(self) -> int | None:
        """The batch's size along dimension 0; None where its tensors have no common one."""
        return self._prediction.batch_size

    @property
    def largest_batch(self) -> int | None:
        """The largest batch that fits on the GPU with the most room: 0 for none, None for unknown.

        Where the verdict says "at least", a larger one may fit, too: to predict more took too long, or it is
        16777216, and no more is looked for.
        """
        largest = self._prediction.largest
        return None if largest is None else largest.size

    @property
    def fits(self) -> dict[str, bool | Unknown]:
        """Whether it fits on each GPU of this process, `{"cuda:0": True}`; UNKNOWN where that is unknown."""
        return {room.name: room.fits(self.peak) for room in self._rooms}

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, a sentence each."""
        return self._prediction.memory.notes

    @property
    def verdict(self) -> str:
        """Where it fits, as a line: `9.6 GiB: fits on GPU 3 (31 GiB free); batch up to 58`."""
        return f"{size_text(self.peak)}{self._with_context}: {self._where}{self._batch}."

    def __repr__(self) -> str:
        rows = self._rows
        names, sizes = max(len(name) for name, _ in rows), max(len(size) for _, size in rows)
        lines = [f"{name:{names}}  {size:>{sizes}}" for name, size in rows]
        return "\n".join([*lines, printable(self.verdict), *self.notes])

    def _repr_html_(self) -> str:
        whole = max(self.peak, 1)
        parts = [(name, size, size / whole) for name, size in self._prediction.memory.parts.items()]
        body = "".join(_html_row(name, size_text(size), share) for name, size, share in parts)
        body += _html_row("peak", size_text(self.peak), None)
        notes = "".join(f"<p class='gm-title'>{html.escape(note)}</p>" for note in self.notes)
        verdict = f"<p><b>{html.escape(printable(self.verdict))}</b></p>"
        return html_block("", f"<table><tbody>{body}</tbody></table>{verdict}{notes}", ())

    def _part(self, name: str) -> int | Unknown:
        return self._prediction.memory.parts.get(name, UNKNOWN)

    @property
    def _rooms(self) -> Sequence[Room]:
        found = self._prediction.rooms
        return () if found is UNKNOWN else found

    @property
    def _rows(self) -> list[tuple[str, str]]:
        parts = self._prediction.memory.parts.items()
        return [(name, size_text(size)) for name, size in [*parts, ("peak", self.peak)]]

    @property
    def _with_context(self) -> str:
        contexts = {room.context for room in self._rooms} - {0}
        return f" and {bytes_text(contexts.pop())} for CUDA itself" if contexts else ""

    @property
    def _where(self) -> str:
        """Return on which GPUs it fits; where on none, how far that is off."""
        if self._prediction.rooms is UNKNOWN:
            return "no verdict, as it is not known which GPUs this process sees: %gpus 0 chooses one"
        if not self._rooms:
            return "no verdict, as this process sees no GPU"
        known = [room for room in self._rooms if room.available is not UNKNOWN]
        if not known:
            return f"no verdict, as the free memory of {self._rooms[0].label} is not known"
        best = sorted(known, key=lambda room: -_left(room))
        fitting = [room for room in best if room.fits(self.peak)]
        mark = "SIMULATED " if self._prediction.simulated else ""
        if fitting:
            more = len(fitting) - _MOST_LISTED
            shown = [f"{mark}{room.label} ({_size(room)} free)" for room in fitting[:_MOST_LISTED]]
            return f"fits on {listed([*shown, f'{more} more'] if more > 0 else shown)}"
        has = f"{mark}{best[0].label} has {_size(best[0])} free"
        return f"fits on no GPU of this process: {has}{', the most' if len(known) > 1 else ''}"

    @property
    def _batch(self) -> str:
        largest = self._prediction.largest
        if largest is None:
            return ""
        if not largest.size:
            return "; not even a batch of 1 would"
        of = "" if any(self.fits.values()) else " would fit"
        return f"; batch up to {'' if largest.is_exact else 'at least '}{largest.size}{of}"


def _left(room: Room) -> int:
    return 0 if room.available is UNKNOWN else room.available - room.context


def _size(room: Room) -> str:
    return bytes_text(0 if room.available is UNKNOWN else room.available)


def _html_row(name: str, size: str, share: float | None) -> str:
    bar = "" if share is None else f"<i class='gm-bar'><b style='width:{share:.0%}'></b></i>"
    heading = f"<b>{name}</b>" if share is None else html.escape(name)
    return f"<tr><td>{heading}</td><td class='gm-right'>{size}{bar}</td></tr>"
