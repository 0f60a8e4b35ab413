"""Chooses the GPUs of this process, at once or when they are free."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from gpu_magic.errors import ChoiceError, CudaInitializedError, CudaInitializedWarning
from gpu_magic.gpus.options import Options, in_signature, read_seconds
from gpu_magic.option_table import ChoiceOptions
from gpu_magic.process.session import current
from gpu_magic.process.view import ask_guard
from gpu_magic.public import public

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from types import FrameType

    from gpu_magic.devices.model import Gpu, MigInstance
    from gpu_magic.gpus.choice import Choice
    from gpu_magic.gpus.wait import Waiting
    from gpu_magic.process.guard import Guard

__all__ = ["choose", "guard", "wait_for"]


@public
def guard() -> Guard:
    """Ask the CUDA driver whether a choice can still take effect in this process.

    Returns
    -------
    Guard
        Its `can_change` is True if a choice can take effect. If not, `since` names the cell that started
        CUDA, and `by` the import or framework. `devices` has the GPUs that the process keeps.

    """
    return ask_guard(current())


@public
@in_signature(ChoiceOptions)
def choose(
    wanted: str | int | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance],
    *,
    dry_run: bool = False,
    wait: str | float | None = None,
    on_wait: Callable[[str], None] | None = None,
    in_process: bool = False,
    restart: bool = False,
    strict: bool = False,
    **options: Unpack[ChoiceOptions],
) -> Choice:
    """Choose the GPUs that CUDA will see in this process, before a framework starts CUDA.

    Parameters
    ----------
    wanted
        As after `%gpus`: `"1,3"`, `"0-2,5"`, `"GPU-8f3a"`, `"auto:2"`, `"all"`, `"none"`, `"reset"`. Or a
        number, one of `gpus()`, or a list of these. The first is `cuda:0`.
    dry_run
        Return the choice, and change nothing.
    wait
        How long to wait for the GPUs: "30m", "1h30m", or seconds. `auto` waits for free GPUs, or for GPUs
        with `min_free`. With named GPUs, `choose` waits until no other process uses or
        has claimed them.
    on_wait
        A function. It is called after each check that finds the GPUs not free. Its argument is a line that
        names their users.
    in_process
        After CUDA has started: the imported frameworks use only these visible GPUs from here on. You can
        combine `in_process` only with `dry_run`.
    restart
        If it is too late: restart the kernel. The next `%load_ext gpu_magic` in it applies the choice.
    strict
        If it is too late: raise an error, not a warning.
    **options
        The options of a choice, as [after `%gpus`](magics.md#gpus): `only_free=True`, `min_free="20GB"`.
        `by` writes CUDA_VISIBLE_DEVICES by "index" or "uuid". Without `by`: as `c.GpuMagics.by` in IPython's
        configuration, or else as when the process started.

    Returns
    -------
    Choice
        The GPUs that are now `cuda:0`, `cuda:1`, ….

    Raises
    ------
    ChoiceError
        These GPUs cannot be chosen. Nothing has changed.
    NotFreeError
        With `only_free` or `wait`: other processes use or claim the GPUs, or their use is unknown. Nothing
        has changed.
    CudaInitializedError
        With `strict`: CUDA has started with other GPUs. Nothing has changed.
    KernelRestarting
        With `restart`: it is too late. The kernel is about to restart.

    Warns
    -----
    CudaInitializedWarning
        Without `strict`: CUDA has started with other GPUs. Nothing has changed.

    """
    from gpu_magic.gpus.apply import apply, keep_restarted, narrow
    from gpu_magic.gpus.request import normalize_request

    if on_wait is not None and not callable(on_wait):
        raise ChoiceError(f"on_wait={on_wait!r:.40} is not a function. Try on_wait=print")
    if in_process and restart:
        raise ChoiceError("--in-process needs no --restart. Use one of the two.")
    asked, text = Options(**options), normalize_request(wanted)
    is_plain = not (in_process or restart or dry_run)
    if is_plain and (kept := keep_restarted(current(), text, asked)):
        choice = kept
    elif wait is None:
        choice = (narrow if in_process else apply)(current(), text, asked, dry_run=dry_run)
    elif in_process or dry_run:
        raise ChoiceError("--wait goes with neither --in-process nor --dry-run.")
    else:
        from gpu_magic.gpus.wait import Waiting  # imports asyncio

        waiting = Waiting(current(), text, asked, read_seconds(wait))
        choice = waiting.wait(lambda line: on_wait(str(line)) if on_wait else None)
    if restart and choice.too_late:
        from gpu_magic.panel.widget import restart_with_choice

        restart_with_choice(choice.too_late, dry_run=choice.is_dry_run)
        choice = replace(choice, too_late=None, restarts=True)
    if choice.too_late:
        _refuse(choice, _line(sys._getframe(2)), strict=strict)  # noqa: SLF001 - 1 is `public`
    return choice


def _line(frame: FrameType) -> tuple[str, int, str]:
    """Return the file, the line and the module of a frame, which is not kept."""
    return frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__", "")


def _refuse(choice: Choice, caller: tuple[str, int, str], *, strict: bool = False) -> None:
    """Warn or raise because a choice came too late."""
    if strict:
        raise CudaInitializedError(choice.refusal)
    # Without a registry, Python shows the warning at every call, not only at the first from a line.
    warnings.warn_explicit(choice.refusal, CudaInitializedWarning, *caller)


@public
@in_signature(ChoiceOptions)
def wait_for(
    wanted: int | str | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] = 1,
    *,
    within: str | float | None = None,
    **options: Unpack[ChoiceOptions],
) -> Coroutine[Any, Any, Choice]:
    """Wait until GPUs are free, then choose them. The event loop runs meanwhile.

    >>> choice = await gpu_magic.wait_for(2, min_free="20GB")

    In a notebook, later cells run after this `await`. To run other cells meanwhile, wait in a task:
    `asyncio.create_task(gpu_magic.wait_for(2))`.

    Parameters
    ----------
    wanted
        How many GPUs. Or which, as for `choose`: `"1,3"` or `[1, 3]` waits until no other process
        uses or has claimed GPUs 1 and 3.
    within
        How long to wait: "30m", or seconds. None: without a limit.
    **options
        As for `choose`. Without `min_free`, `wait_for` waits for free GPUs.

    Returns
    -------
    Choice
        The result of `await`: the GPUs that are now `cuda:0`, `cuda:1`, ….

    Raises
    ------
    ChoiceError
        At the call: `wait_for` cannot wait for these GPUs. While it waits: the time ran out, or these GPUs
        can never be chosen. Nothing has changed.

    Warns
    -----
    CudaInitializedWarning
        CUDA has started with other GPUs. Nothing has changed.

    """
    from gpu_magic.gpus.apply import keep_restarted
    from gpu_magic.gpus.request import normalize_wait
    from gpu_magic.gpus.wait import Waiting

    asked = Options(**options)
    seconds = None if within is None else read_seconds(within)
    caller, text = _line(sys._getframe(2)), normalize_wait(wanted)  # noqa: SLF001 - 1 is `public`
    waiting, kept = Waiting(current(), text, asked, seconds), keep_restarted(current(), text, asked)
    return _awaited(waiting, kept, caller)


@public
async def _awaited(waiting: Waiting, kept: Choice | None, caller: tuple[str, int, str]) -> Choice:
    choice = kept or await waiting.wait_async()
    if choice.too_late:
        _refuse(choice, caller)
    return choice
