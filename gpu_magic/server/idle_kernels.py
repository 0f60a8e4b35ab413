"""Decides which kernels have held GPU memory idle for too long, by the Jupyter server's configuration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import traitlets
from traitlets.config import LoggingConfigurable

from gpu_magic.devices.idle import LONGEST_GAP, seconds_now
from gpu_magic.devices.model import UNKNOWN, Unknown, sum_of
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.options import read_seconds
from gpu_magic.text import is_off, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["GpuMagic", "IdleKernels", "Rule", "Use", "uses_of"]

_PARK = "park:"
# After a kernel was asked to park. Its own answer, which counts as activity, is seen a little later.
_SETTLING = 2.0  # seconds


class GpuMagic(LoggingConfigurable):
    """The options of the Jupyter server: `c.GpuMagic` in `jupyter_server_config.py`."""

    cull_idle_gpu = traitlets.Any(
        "",
        help="Shut down kernels that have held GPU memory idle for this long: '4h'. 'park:4h': ask them to "
        "park instead. '' or 0: off",
    ).tag(config=True)
    cull_idle_gpu_warn = traitlets.Any(
        "15m", help="For how long the page shows beforehand what will happen. 0: not at all"
    ).tag(config=True)

    def rule(self) -> Rule | None:
        """Return what the options say. None: nothing is to be done.

        Raises
        ------
        ChoiceError
            A value is invalid.

        """
        typed = str(self.cull_idle_gpu).strip()
        if is_off(self.cull_idle_gpu):
            return None
        parks = typed.startswith(_PARK)
        after = _seconds("cull_idle_gpu", typed.removeprefix(_PARK), '"4h" or "park:4h"')
        warn = 0.0
        if not is_off(self.cull_idle_gpu_warn):
            warn = _seconds("cull_idle_gpu_warn", self.cull_idle_gpu_warn, '"15m", or 0')
        if warn >= after:
            raise ChoiceError(
                f"c.GpuMagic.cull_idle_gpu_warn = {self.cull_idle_gpu_warn!r:.40} is not shorter than "
                f"cull_idle_gpu = {self.cull_idle_gpu!r:.40} ({time_text(after)}), so no kernel is culled. "
                'Try a longer cull_idle_gpu, such as "4h", or cull_idle_gpu_warn = 0'
            )
        return Rule(after, warn, parks)


def _seconds(name: str, typed: object, example: str) -> float:
    try:
        return read_seconds(str(typed))
    except ChoiceError:
        wrong = f"c.GpuMagic.{name} = {typed!r:.40} is not a time, so no kernel is culled. Try {example}"
        raise ChoiceError(wrong) from None


class Rule(NamedTuple):
    """What the options say, in seconds: `after` how long without use, with a warning in the last `warn`."""

    after: float
    warn: float
    parks: bool  # whether kernels are asked to park, instead of shut down


class Use(NamedTuple):
    """What a kernel and its descendants have on GPUs, and since when they have been idle."""

    memory: int | Unknown  # bytes
    idle: int | Unknown  # whole seconds, see `Idleness`
    gpus: tuple[str, ...] = ()  # their labels


class IdleKernels:
    """Follows kernels, look by look, so that none is culled that may have worked between two looks.

    The time of a kernel counts from its last use, and only while each look shows that it is idle with memory
    on a GPU. An unknown figure, or a long gap between two looks, starts the time again.
    """

    def __init__(self, rule: Rule, now: Callable[[], float] = seconds_now) -> None:
        self.rule, self._now = rule, now
        self._looked_at = -math.inf
        self._since: dict[str, float] = {}  # since when each kernel with memory has been idle
        self._warned: dict[str, float] = {}  # since when its page warns
        # When it was asked to park. Then it is left alone until its next use.
        self._asked: dict[str, float] = {}

    def look(self, uses: Mapping[str, Use]) -> list[str]:
        """Return the kernels whose time is over. `uses` has what each kernel does now, by its ID."""
        now = self._now()
        before = self._since if 0 <= now - self._looked_at <= LONGEST_GAP else {}
        self._looked_at = now
        self._since, asked = {}, {}
        for kernel, (memory, idle, _) in uses.items():
            at = self._asked.get(kernel)
            if memory is UNKNOWN or idle is UNKNOWN:
                if at is not None:
                    asked[kernel] = at
            elif at is not None and now - idle <= at + _SETTLING:
                asked[kernel] = at
            elif memory:
                self._since[kernel] = max(now - idle, before.get(kernel, now))
        self._asked = asked
        self._warned = {
            kernel: self._warned.get(kernel, now)
            for kernel, since in self._since.items()
            if now - since >= self.rule.after - self.rule.warn
        }
        return [kernel for kernel, left in self.warned().items() if not left]

    def warned(self) -> dict[str, float]:
        """Return the kernels whose pages warn, each with the seconds that are left."""
        after, warn, _ = self.rule
        now = self._now()
        ends = {one: max(self._since[one] + after, at + warn) for one, at in self._warned.items()}
        return {kernel: max(0.0, end - now) for kernel, end in ends.items()}

    def keep(self, kernel: str) -> None:
        """Let the time of a kernel begin now, as its user has asked."""
        if kernel in self._since:
            self._since[kernel] = self._now()
            self._warned.pop(kernel, None)

    def leave_alone(self, kernel: str) -> None:
        """Leave a kernel that was asked to park alone until its next use."""
        self._asked[kernel] = self._now()
        self._since.pop(kernel, None)
        self._warned.pop(kernel, None)


def uses_of(answer: Mapping[str, Any]) -> dict[str, Use]:
    """Return what each kernel has and does, from the server's answer to pages (`Reading.read`).

    Without those that are parked: they block nobody, and a shutdown would lose what was put aside.
    """
    uses: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for gpu in answer["gpus"]:
        for kernel, figures in () if gpu["is_split"] else gpu["kernels"].items():
            uses.setdefault(kernel, []).append((gpu["label"], figures))

    def known(figure: int | None) -> int | Unknown:
        return UNKNOWN if figure is None else figure

    return {
        kernel: Use(
            sum_of((True, known(figures["memory"])) for _, figures in found),
            known(found[0][1]["idle"]) if answer["lists_processes"] else UNKNOWN,  # the same on each GPU
            tuple(label for label, figures in found if figures["memory"] != 0),
        )
        for kernel, found in uses.items()
        if not all(figures["is_parked"] for _, figures in found)
    }
