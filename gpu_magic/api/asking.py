"""Ask others for GPUs that they have claimed, and answer those who ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.api.placing import gpu_free
from gpu_magic.display.asking import Asked, GivenUp, Kept
from gpu_magic.process import asking
from gpu_magic.process.session import current
from gpu_magic.public import public
from gpu_magic.selection.normalize import normalize_request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_magic.devices.model import Gpu, MigInstance

__all__ = ["ask", "give_up", "keep"]


@public
def ask(
    wanted: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance], text: str = ""
) -> Asked:
    """Ask those who have claimed GPUs for them: their kernel says so with its next cell, and their panel.

    Nobody has to answer. The answer is said with a later cell of this kernel; the note ends then, with this
    process, and as soon as nobody else claims these GPUs. A user has one note at a time, and can send the
    next 10 minutes later, or one minute after all have answered.

    Parameters
    ----------
    wanted
        The GPUs, as for `choose`.
    text
        What else to say, up to 200 characters.

    Returns
    -------
    Asked
        Who was asked. It shows itself as text.

    Raises
    ------
    ChoiceError
        Nobody can be asked for these, or not now; nothing was sent.

    """
    return Asked(asking.ask(current(), normalize_request(wanted), text))


@public
def give_up(
    wanted: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] | None = None,
) -> GivenUp:
    """Give up GPUs that this process has claimed, and say so to those who have asked for them.

    Before CUDA has started, the other GPUs of the choice are chosen. After that the process keeps what it
    has: memory is freed as `gpu_free` does, and the claim ends.

    Parameters
    ----------
    wanted
        The GPUs, as for `choose`; None: those that others ask for.

    Returns
    -------
    GivenUp
        What was freed, and what holds the rest. It shows itself as text.

    Raises
    ------
    ChoiceError
        They can't be given up; nothing was changed.

    """
    giving = asking.give_up(current(), None if wanted is None else normalize_request(wanted))
    return GivenUp(giving, gpu_free() if giving.outcome is None else None)


@public
def keep() -> Kept:
    """Say no to all who ask for a GPU that this process has claimed.

    Returns
    -------
    Kept
        What they have asked for. It shows itself as text.

    Raises
    ------
    ChoiceError
        Nobody asks.

    """
    return Kept(asking.keep(current()))
