"""Applies a choice to this process, or says why that comes too late. The one place with side effects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_magic.errors import ChoiceError
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.settings import FrameworkSettings
from gpu_magic.process.environment import MASK, ORDER, mask_and_order
from gpu_magic.process.outcome import Applied, Narrowed, Refused
from gpu_magic.process.state import State
from gpu_magic.process.view import judge_process, read_machine
from gpu_magic.process.watch import cuda_watch
from gpu_magic.selection.memory import plan_memory
from gpu_magic.selection.options import Options
from gpu_magic.selection.request import Auto, Reset, parse
from gpu_magic.selection.select import Selection, select

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device
    from gpu_magic.process.guard import Guard
    from gpu_magic.process.session import Session
    from gpu_magic.selection.memory import MemorySettings
    from gpu_magic.selection.request import Request

__all__ = ["apply", "narrow"]

_PLAIN = Options()


def apply(
    session: Session, text: str, options: Options = _PLAIN, *, dry_run: bool = False
) -> Applied | Refused:
    """Make CUDA see the GPUs that are asked for, where that can still take effect.

    Parameters
    ----------
    session
        This process's.
    text, options
        As typed after `%gpus`.
    dry_run
        Decide, and change nothing.

    Raises
    ------
    ChoiceError
        For GPUs that can't be chosen; nothing was changed.

    """
    request = parse(text)
    inventory = read_machine(session)
    selection = select(request, inventory, session.inherited, options)
    memory = plan_memory(_known(selection), growth=options.growth, limit=options.memory_limit)
    if memory:
        FrameworkSettings.check(memory)
    is_simulated, is_reset = bool(inventory.simulated), isinstance(request, Reset)
    state = cuda_watch.look()
    if state.can_change:
        if not dry_run:
            _set_memory(session, memory)
            session.environment.set(MASK, selection.mask)
            session.environment.set(ORDER, selection.order)
            session.chosen = request
        return Applied(selection, dry_run, is_simulated, not dry_run, is_reset, str(memory))
    guard = judge_process(inventory, state)
    if had := _had_already(session, request, selection, guard):
        if not dry_run:
            _set_memory(session, memory)
        return Applied(had, dry_run and bool(memory), is_simulated, True, False, str(memory))
    ordinal = min(guard.ordinals(_known(selection)), default=None)
    known = () if ordinal is None else [(one.name, one.statement_for(ordinal)) for one in imported()]
    asked = "" if is_reset else text.strip()
    return Refused(selection, dry_run, is_simulated, guard, asked, options, ordinal, tuple(known))


def narrow(session: Session, text: str, options: Options = _PLAIN, *, dry_run: bool = False) -> Narrowed:
    """Have the imported frameworks use some of the GPUs that this process has, once CUDA is initialized.

    Parameters
    ----------
    session, text, options, dry_run
        As for `apply`; no option goes with it.

    Raises
    ------
    ChoiceError
        CUDA has not been initialized, or the process has not got these GPUs; nothing was changed.

    """
    request = parse(text)
    if options != _PLAIN:
        raise ChoiceError(f"--in-process sets neither CUDA_VISIBLE_DEVICES nor memory limits: omit{options}.")
    state = cuda_watch.look()
    if state is not State.FROZEN:
        raise ChoiceError(
            f"CUDA has not been initialized here, so %gpus {text} chooses for every framework; --in-process "
            "is for later."
        )
    inventory = read_machine(session)
    guard = judge_process(inventory, state)
    is_reset = isinstance(request, Reset)
    wanted = () if is_reset else _known(select(request, inventory, session.inherited))
    ordinals = guard.ordinals(wanted)
    if not is_reset and (not wanted or len(ordinals) < len(wanted)):
        raise ChoiceError(f"CUDA was {guard.seen}, and this process can use {guard.frozen_to} and no other.")
    results: list[str] = []
    if not dry_run:
        settings = _settings(session)
        results = settings.widen() if is_reset else settings.narrow(ordinals)
    selection = Selection(wanted, *mask_and_order())
    return Narrowed(selection, dry_run, bool(inventory.simulated), ordinals, tuple(results))


def _settings(session: Session) -> FrameworkSettings:
    if session.settings is None:
        session.settings = FrameworkSettings()
    return session.settings


def _set_memory(session: Session, memory: MemorySettings) -> None:
    """Set how frameworks take memory: each choice says all of it, so that an earlier one's settings end."""
    if not memory and session.settings is None:
        return
    variables, ours = _settings(session).limit(memory), session.environment
    ours.restore([name for name in ours.names if name not in (MASK, ORDER, *variables)])
    for name, value in variables.items():
        ours.set(name, value)


def _had_already(session: Session, request: Request, selection: Selection, guard: Guard) -> Selection | None:
    """Return what a process in which CUDA is initialized has, where that is what is asked for."""
    had = tuple(device for device in guard.devices if not isinstance(device, str))
    if guard.state is not State.FROZEN or len(had) < len(guard.devices):
        return None
    is_same = isinstance(selection.devices, tuple) and _uuids(selection.devices) == _uuids(had)
    if isinstance(request, Reset) and session.chosen is None:  # nothing was ever chosen
        is_same = is_same or mask_and_order() == session.inherited
    # "The least busy one" is another one by now; running the cell again asks for nothing new.
    if is_same or (isinstance(request, Auto) and request == session.chosen):
        mask, order = mask_and_order()
        return replace(selection, devices=had, mask=mask, order=order, notes=())
    return None


def _known(selection: Selection) -> tuple[Device, ...]:
    return selection.devices if isinstance(selection.devices, tuple) else ()


def _uuids(devices: tuple[Device, ...]) -> tuple[str, ...]:
    return tuple(str(device.uuid) for device in devices)
