"""The GPUs that there are, and those that this process uses: chosen at once, or once they are free."""

from __future__ import annotations

import sys
import warnings
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import ChoiceError, CudaInitializedError, CudaInitializedWarning
from gpu_magic.gpus.table import Gpus
from gpu_magic.process.session import current
from gpu_magic.process.view import ask_guard, take_snapshot
from gpu_magic.public import public

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from types import FrameType

    from gpu_magic.devices.model import Gpu, MigInstance
    from gpu_magic.gpus.choice import Choice
    from gpu_magic.gpus.options import Order
    from gpu_magic.gpus.wait import Waiting
    from gpu_magic.process.guard import Guard
    from gpu_magic.process.mask import By

__all__ = ["choose", "gpus", "guard", "told", "wait_for"]


@public
def gpus() -> Gpus:
    """Return the machine's GPUs: an `Inventory` that shows itself as a table.

    Returns
    -------
    Gpus
        One `Gpu` for each physical GPU, in nvidia-smi's order, with figures of now (bytes, percent, degrees
        Celsius, watts; UNKNOWN where the driver gives none), and what this process can see of them.

    """
    found = take_snapshot(current())
    return Gpus(**{field.name: getattr(found, field.name) for field in fields(found)})


@public
def guard() -> Guard:
    """Ask the CUDA driver whether a choice can still take effect in this process.

    Returns
    -------
    Guard
        Its `state`, and if it is too late: since when, by what, and what the process keeps.

    """
    return ask_guard(current())


@public
def choose(
    wanted: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance],
    *,
    by: By | None = None,
    order: Order | None = None,
    dry_run: bool = False,
    force: bool = False,
    growth: bool = False,
    memory_limit: str | int | None = None,
    only_free: bool = False,
    min_free: str | int | None = None,
    model: str | None = None,
    wait: str | float | None = None,
    on_wait: Callable[[str], None] | None = None,
    in_process: bool = False,
    restart: bool = False,
    strict: bool = False,
) -> Choice:
    """Choose the GPUs that CUDA will see in this process, before a framework starts it.

    Parameters
    ----------
    wanted
        As after `%gpus`: `"1,3"`, `"0-2,5"`, `"GPU-8f3a"`, `"auto:2"`, `"all"`, `"none"`, `"reset"`; or a
        number, or one of `gpus()`; or several. The order is kept: the first is `cuda:0`. `"amd:1"` is AMD's.
    by
        Write CUDA_VISIBLE_DEVICES by "index" or "uuid"; None: as `c.GpuMagics.by` in IPython's configuration
        says, else as the process was started with it.
    order
        CUDA_DEVICE_ORDER: "pci" or "fastest"; None follows what the process was started with. With
        "fastest", `all` and `auto:2` are in CUDA's own order, where that can be known.
    dry_run
        Decide, and change nothing.
    force
        Allow GPUs outside the CUDA_VISIBLE_DEVICES that the process was started with.
    growth
        Have TensorFlow and JAX take memory as they need it, and not most of a GPU at once.
    memory_limit
        The most of each GPU's memory that TensorFlow, JAX and PyTorch take: "8GB" (10 to the 9th bytes each),
        "8GiB" (2 to the 30th), or a number of bytes.
    only_free
        With `auto`: GPUs that nobody uses, and none where there are not enough of them. GPUs that are named
        are chosen where nobody else uses or has claimed them; what this process has itself is free for it.
    min_free, model
        With `auto`: GPUs with at least this much free memory ("20GB", or bytes), and with these words in
        their names ("A100").
    wait
        How long to wait for such GPUs, "30m", "1h30m" or in seconds: with `auto`, and without `min_free`, for
        free ones; where they are named, until nobody else uses or has claimed them. At its
        end nothing was changed.
    on_wait
        Is called with a line that says who holds them, after each look at which they were not free.
    in_process
        Once CUDA has started: have the imported frameworks use these from here on, among those
        that the process has. It goes with no other option but `dry_run`.
    restart
        Where it is too late: restart the kernel; the next `%load_ext gpu_magic` in it applies the choice.
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
        With `strict`, if CUDA has started with other GPUs; nothing was changed.
    KernelRestarting
        With `restart`, where it is too late and the kernel is about to be restarted for it.

    Warns
    -----
    CudaInitializedWarning
        The same without `strict`.

    """
    from gpu_magic.gpus.apply import apply, narrow
    from gpu_magic.gpus.options import Options, read_seconds
    from gpu_magic.gpus.request import normalize_request
    from gpu_magic.gpus.wait import Waiting

    if on_wait is not None and not callable(on_wait):
        raise ChoiceError(f"on_wait={on_wait!r:.40} is not a function. Try on_wait=print")
    if in_process and restart:
        raise ChoiceError("--in-process needs no --restart. Use one of the two.")
    options = Options(by, order, force, growth, memory_limit, only_free, min_free, model)
    text = normalize_request(wanted)
    if wait is None:
        choice = (narrow if in_process else apply)(current(), text, options, dry_run=dry_run)
    elif in_process or dry_run:
        raise ChoiceError("--wait goes with neither --in-process nor --dry-run.")
    else:
        waiting = Waiting(current(), text, options, read_seconds(wait))
        choice = waiting.wait(lambda line: on_wait(str(line)) if on_wait else None)
    if restart and choice.too_late:
        from gpu_magic.panel.widget import restart_with_choice

        restart_with_choice(choice.too_late, dry_run=choice.is_dry_run)
    return told(choice, strict=strict, caller=sys._getframe(2))  # noqa: SLF001 - 1 is `public`


def told(choice: Choice, *, strict: bool, caller: FrameType) -> Choice:
    """Return a choice, and warn or raise where it came too late."""
    if choice.too_late and strict:
        raise CudaInitializedError(choice.refusal)
    if choice.too_late:
        # Without a registry Python shows it at every call, and not only at the first from a line.
        where, line, module = caller.f_code.co_filename, caller.f_lineno, caller.f_globals.get("__name__", "")
        warnings.warn_explicit(choice.refusal, CudaInitializedWarning, where, line, module=module)
    return choice


@public
def wait_for(
    wanted: int | str | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] = 1,
    *,
    within: str | float | None = None,
    by: By | None = None,
    order: Order | None = None,
    force: bool = False,
    growth: bool = False,
    memory_limit: str | int | None = None,
    min_free: str | int | None = None,
    model: str | None = None,
) -> Coroutine[Any, Any, Choice]:
    """Wait until GPUs are free, and choose them; other cells and callbacks run meanwhile.

    >>> waiting = asyncio.create_task(gpu_magic.wait_for(2, min_free="20GB"))

    Parameters
    ----------
    wanted
        How many; or which, as for `choose`: `"1,3"`, or `[1, 3]`, waits until nobody else uses or has claimed
        GPUs 1 and 3.
    within
        How long, "30m" or in seconds; None: without an end.
    by, order, force, growth, memory_limit, min_free, model
        Which, and how they are chosen, as for `choose`. Of a number of GPUs, without `min_free`, it waits for
        ones that nobody uses.

    Returns
    -------
    Choice
        To be awaited: what `cuda:0`, `cuda:1`, … are now.

    Raises
    ------
    ChoiceError
        At the call, for what can't be waited for. When it is awaited: the time is over, or these GPUs can't
        be chosen, however long one waits. Nothing was changed.

    Warns
    -----
    CudaInitializedWarning
        CUDA has started with other GPUs; nothing was changed.

    """
    from gpu_magic.gpus.auto import check_filters
    from gpu_magic.gpus.options import Options, read_seconds
    from gpu_magic.gpus.request import normalize_wait
    from gpu_magic.gpus.wait import Waiting

    options = Options(by, order, force, growth, memory_limit, min_free=min_free, model=model)
    check_filters(options)
    seconds = None if within is None else read_seconds(within)
    return _awaited(Waiting(current(), normalize_wait(wanted), options, seconds))


@public
async def _awaited(waiting: Waiting) -> Choice:
    choice = await waiting.wait_async()
    return told(choice, strict=False, caller=sys._getframe())  # noqa: SLF001
