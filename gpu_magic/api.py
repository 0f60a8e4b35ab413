"""What can be called from Python: all that the magics do."""

from __future__ import annotations

import contextlib
import operator
import sys
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.errors import ChoiceError, CudaInitializedError, CudaInitializedWarning
from gpu_magic.session import current

if TYPE_CHECKING:
    from gpu_magic.choice import Choice
    from gpu_magic.cuda.guard import Guard
    from gpu_magic.devices.model import Inventory
    from gpu_magic.selection.choose import By, Order

__all__ = ["choose", "gpus", "guard"]


def gpus() -> Inventory:
    """Return the machine's GPUs: an `Inventory`, which shows itself as a table.

    Returns
    -------
    Inventory
        One `Gpu` for each physical GPU, in nvidia-smi's order, with figures of now (bytes, percent, degrees
        Celsius, watts; UNKNOWN where the driver gives none), and what this process can see of them.

    """
    return current().gpus()


def guard() -> Guard:
    """Ask the CUDA driver whether a choice can still take effect in this process.

    Returns
    -------
    Guard
        Its `state`, and if it is too late: since when, by what, and what the process is frozen to.

    """
    return current().guard()


def choose(
    wanted: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance],
    *,
    by: By | None = None,
    order: Order = "pci",
    dry_run: bool = False,
    force: bool = False,
    strict: bool = False,
) -> Choice:
    """Choose the GPUs that CUDA will see in this process, before a framework starts it.

    Parameters
    ----------
    wanted
        As after `%gpus`: `"1,3"`, `"0-2,5"`, `"GPU-8f3a"`, `"auto:2"`, `"all"`, `"none"`, `"reset"`; or a
        number, or one of `gpus()`; or several. The order is kept: the first is `cuda:0`.
    by
        Write CUDA_VISIBLE_DEVICES by "index" or "uuid"; None follows what the process was started with.
    order
        CUDA_DEVICE_ORDER: "pci" or "fastest".
    dry_run
        Decide, and change nothing.
    force
        Allow GPUs outside the CUDA_VISIBLE_DEVICES that the process was started with.
    strict
        Raise where it is too late, instead of warning.

    Returns
    -------
    Choice
        What `cuda:0`, `cuda:1`, … are now.

    Raises
    ------
    ChoiceError
        For GPUs that can't be chosen; nothing was changed.
    CudaInitializedError
        With `strict`, where CUDA was initialised with other GPUs; nothing was changed.

    Warns
    -----
    CudaInitializedWarning
        The same without `strict`.

    """
    choice = current().choose(_as_typed(wanted), by=by, order=order, dry_run=dry_run, force=force)
    if choice.refusal and strict:
        raise CudaInitializedError(choice.refusal)
    if choice.refusal:
        # Without a registry Python shows it at every call, and not only at the first from a line.
        caller = sys._getframe(1)  # noqa: SLF001
        where, line, module = caller.f_code.co_filename, caller.f_lineno, caller.f_globals.get("__name__", "")
        warnings.warn_explicit(choice.refusal, CudaInitializedWarning, where, line, module=module)
    return choice


def _as_typed(wanted: object) -> str:
    """Return what one would type for it.

    Raises
    ------
    ChoiceError
        For what names no GPU.

    """
    if isinstance(wanted, str):
        return wanted
    if isinstance(wanted, Gpu):
        return str(wanted.index)
    if isinstance(wanted, MigInstance):
        return wanted.uuid
    if isinstance(wanted, bool | set | frozenset | bytes):  # neither a number nor an order is meant by these
        raise ChoiceError(f"{wanted!r} names no GPUs in an order; try choose(1) or choose([1, 3]).")
    with contextlib.suppress(TypeError):
        return str(operator.index(wanted))  # type: ignore[arg-type] # any integer: NumPy's, too
    if isinstance(wanted, Iterable):
        return ",".join(map(_as_typed, wanted))
    raise ChoiceError(f"{wanted!r} names no GPU; try choose(1), choose([1, 3]) or choose('auto').")
