"""Makes a choice take effect in this process, or says why that comes too late."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import ChoiceError, GpuMagicError, NotFreeError
from gpu_magic.frameworks import imported
from gpu_magic.gpus.choice import Choice, TooLate
from gpu_magic.gpus.options import Options, plan_memory
from gpu_magic.gpus.request import Auto, Named, Nothing, Reset, parse
from gpu_magic.gpus.select import Selection, select, select_among
from gpu_magic.interrupts import uninterrupted
from gpu_magic.process.drivers import State
from gpu_magic.process.environment import program, variables_now
from gpu_magic.process.guard import judge_process, runtime_of
from gpu_magic.process.mask import NAMES, names_of, write
from gpu_magic.process.session import current
from gpu_magic.process.tasks import tasks
from gpu_magic.process.view import read_for_auto, read_machine
from gpu_magic.process.visible import read_visible
from gpu_magic.process.watch import cuda_watch
from gpu_magic.restart.saved import take
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpu_magic.claims.held import Taken
    from gpu_magic.devices.model import Device, Inventory
    from gpu_magic.frameworks.base import MemorySettings
    from gpu_magic.gpus.request import Request
    from gpu_magic.process.guard import Guard
    from gpu_magic.process.session import Session

__all__ = ["apply", "narrow", "or_wait", "resume"]

_PLAIN = Options()
_COUNT_EARLY = ("torch", "tensorflow")  # they keep how many GPUs they found, and do not say that they looked
_log = logging.getLogger("gpu_magic.process")


def apply(
    session: Session,
    text: str,
    options: Options = _PLAIN,
    *,
    dry_run: bool = False,
    inventory: Inventory | None = None,
    in_turn: Callable[[Inventory], Inventory] = lambda machine: machine,
) -> Choice:
    """Make CUDA see the GPUs that are asked for, where that can still take effect.

    Parameters
    ----------
    session
        This process's.
    text, options
        As typed after `%gpus`.
    dry_run
        Decide, and change nothing.
    inventory
        The machine, where it was read for this just now.
    in_turn
        Returns the machine without the GPUs that are left to those who have waited for longer.

    Raises
    ------
    ChoiceError
        For GPUs that can't be chosen; nothing was changed.

    """
    request = parse(text)  # what can't be read is nobody's GPU, can be anything, and is not logged
    try:
        with session.access.opened():
            outcome = _decide(
                session, text, request, options, dry_run=dry_run, inventory=inventory, in_turn=in_turn
            )
    except ChoiceError as error:
        is_waited_for = inventory is not None and isinstance(error, NotFreeError)
        if not dry_run and not is_waited_for:
            _log.info("Not chosen: %s", error)
        raise
    if not dry_run:
        _log.info("%s%s", outcome.log_line, ", with --force" if options.force else "")
    return outcome


def _decide(
    session: Session,
    text: str,
    request: Request,
    options: Options,
    *,
    dry_run: bool,
    inventory: Inventory | None,
    in_turn: Callable[[Inventory], Inventory],
) -> Choice:
    """Do the same with a request that was read, without a word in the log."""
    is_auto = isinstance(request, Auto)
    if not is_auto and not options.only_free:
        machine = read_machine(session) if inventory is None else inventory
        return _apply(session, text, request, machine, options, dry_run=dry_run)
    machine = read_for_auto(session) if inventory is None else inventory

    def pick(taken: Taken) -> Choice:
        # What this process has launched has claimed GPUs for it: nobody else has those.
        claims = taken if is_auto else session.claims.others()
        try:
            there = in_turn(machine.with_claims(claims))
            return _apply(session, text, request, there, options, dry_run=dry_run)
        except NotFreeError as error:
            if inventory is not None:  # a wait's own look
                raise
            raise or_wait(error, request) from None

    if dry_run:
        return pick(session.claims.taken())
    return session.claims.pick_in_turn(pick, waits=inventory is None)


def _apply(
    session: Session, text: str, request: Request, inventory: Inventory, options: Options, *, dry_run: bool
) -> Choice:
    """Do the same on a machine that was looked at."""
    guard = judge_process(inventory, cuda_watch.look())
    is_simulated, is_reset = bool(inventory.simulated), isinstance(request, Reset)
    had = _picked_before(session, request, options, guard)
    if had is None:
        # Where it is too late for a choice, it does not matter who else uses the GPUs that are named.
        is_too_late = isinstance(request, Named) and not guard.can_change
        selection = select(
            request,
            inventory,
            session.inherited,
            replace(options, only_free=False) if is_too_late else options,
            grant=session.grant,
            held=session.claims.held,
            by=session.by,
        )
    else:
        selection = had
    memory = plan_memory(_known(selection), growth=options.growth, limit=options.memory_limit)
    if memory:
        session.framework_settings().check(memory)
    if guard.can_change:
        found = _doubts(guard, selection, is_simulated=is_simulated)
        selection = replace(selection, notes=(*selection.notes, *found))
        if not dry_run:
            if selection.variables != variables_now().named(tuple(selection.variables)):
                _check_background()
            is_alone = isinstance(request, Auto) or options.only_free
            with uninterrupted():
                selection = _claim(session, request, selection, is_alone=is_alone)
                _set_memory(session, memory)
                _set_visible(session, selection)
                session.chosen = request, options.filters
        return Choice(selection, not dry_run, dry_run, is_simulated, is_reset, str(memory))
    if had := had or _had_already(session, request, selection, guard):
        had = _as_cuda_has_it(had, inventory, dry_run=dry_run)
        if not dry_run:
            with uninterrupted():
                had = _claim(session, request, had, is_alone=False)
                _set_memory(session, memory)
                if had.notes:
                    _set_visible(session, had)
        return Choice(
            had,
            is_applied=True,
            is_dry_run=dry_run and bool(memory),
            is_simulated=is_simulated,
            memory=str(memory),
        )
    ordinal = next(iter(guard.ordinals(_known(selection))), None)
    known = () if ordinal is None else [(one.name, one.statement_for(ordinal)) for one in imported()]
    asked = "" if is_reset else text.strip()
    too_late = TooLate(guard, _known(selection), asked, options, ordinal, tuple(known), program())
    return Choice(
        selection,
        is_applied=False,
        is_dry_run=dry_run,
        is_simulated=is_simulated,
        is_reset=is_reset,
        too_late=too_late,
    )


def _claim(session: Session, request: Request, selection: Selection, *, is_alone: bool) -> Selection:
    """Claim what is chosen, and nothing else; return the selection, with a note where others can't see it.

    Parameters
    ----------
    session, request, selection
        What is chosen.
    is_alone
        Whether no other process may have claimed one of them.

    Raises
    ------
    PickedTwiceError
        Another process has claimed one of them; nothing was changed.

    """
    claims = session.claims
    if isinstance(request, Reset) or not claims.are_wanted:
        claims.release()
        return selection
    uuids = _uuids(_known(selection))
    problem = claims.hold(uuids, alone=is_alone)
    note = f"Others can't see that they are claimed: {problem}."
    return replace(selection, notes=(*selection.notes, note)) if problem and uuids else selection


def _check_background() -> None:
    """Raise ChoiceError if a cell in the background runs on a GPU."""
    for task in tasks:
        if task.is_running and task.gpus:
            raise ChoiceError(
                f"{task.name} runs on {task.gpus}, which another choice would change. Run "
                f"%gpu_tasks wait {task.name} or %gpu_tasks stop {task.name} before."
            )


def _set_visible(session: Session, selection: Selection) -> None:
    ours = session.environment
    ours.restore([name for name in NAMES if name in ours and name not in selection.variables])
    for name, value in selection.variables.items():
        ours.set(name, value)


def _set_memory(session: Session, memory: MemorySettings) -> None:
    """Set how frameworks take memory: each choice says all of it, so that an earlier one's settings end."""
    if not memory and session.settings is None:
        return
    variables, ours = session.framework_settings().limit(memory), session.environment
    ours.restore([name for name in ours.names if name not in (*NAMES, *variables)])
    for name, value in variables.items():
        ours.set(name, value)


def _had_already(session: Session, request: Request, selection: Selection, guard: Guard) -> Selection | None:
    """Return what a process in which CUDA is initialized has, where that is what is asked for."""
    if guard.state is not State.FROZEN or not guard.is_known or len(guard.known) < len(guard.devices):
        return None
    had = replace(selection, devices=guard.known, notes=(), vendor=guard.vendor)
    if isinstance(selection.devices, tuple) and _uuids(selection.devices) == _uuids(guard.known):
        return had
    if isinstance(request, Reset) and session.chosen is None and variables_now() == session.inherited:
        return had  # nothing was ever chosen
    return None


def _picked_before(session: Session, request: Request, options: Options, guard: Guard) -> Selection | None:
    """Return what a process in which CUDA is initialized has, where `auto` has picked it, and is asked again.

    By now it would pick others; running the cell again asks for nothing new.
    """
    if guard.state is not State.FROZEN or not guard.is_known or len(guard.known) < len(guard.devices):
        return None
    if not isinstance(request, Auto) or (request, options.filters) != session.chosen:
        return None
    variables = variables_now().named(names_of(guard.vendor)[:2])
    had = Selection(guard.known, variables, (), guard.vendor)
    return had.with_mask(write(guard.known, by_uuid=True))


def _as_cuda_has_it(had: Selection, inventory: Inventory, *, dry_run: bool) -> Selection:
    """Return what a process has, with the variables as they are; or with others, where these mean others.

    A variable that was changed after CUDA has read it misleads frameworks and new processes.
    """
    variables, name = variables_now(), names_of(had.vendor)[0]
    now = read_visible(variables, inventory.of_vendor(had.vendor)).devices
    if now is UNKNOWN or had.devices is UNKNOWN or _uuids(now) == _uuids(had.devices):
        return replace(had, variables=variables.named(tuple(had.variables)))
    mask = variables.named((name,))[name]
    value = "not set" if mask is None else repr(mask)
    was, becomes = ("is", "would be") if dry_run else ("was", "is")
    runtime = runtime_of(had.vendor)
    return replace(
        had, notes=(f"{name} {was} {value}; it {becomes} {had.mask!r} again, as {runtime} has it.",)
    )


def narrow(session: Session, text: str, options: Options = _PLAIN, *, dry_run: bool = False) -> Choice:
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
        raise ChoiceError(
            "An in-process choice sets neither CUDA_VISIBLE_DEVICES nor memory limits: omit "
            f"{listed([*(['by'] if options.by else []), *options.given])}."
        )
    inventory = read_machine(session)
    guard = judge_process(inventory, cuda_watch.look())
    runtime = guard.runtime
    if guard.state is State.FORKED:
        raise ChoiceError(f"{guard}: start this process with spawn.")
    if guard.state is not State.FROZEN:
        # It raises where this would be no way out.
        select(request, inventory, session.inherited, grant=session.grant)
        raise ChoiceError(
            f"{runtime} has not been initialized here: try %gpus {text}, which is for every framework."
        )
    if isinstance(request, Nothing):
        raise ChoiceError(
            f"none can't hide GPUs once {runtime} has been initialized; %%on_gpu cpu runs a cell on the CPU."
        )
    wanted: tuple[Device, ...] = ()
    if not isinstance(request, Reset):
        wanted = select_among(request, inventory, guard.known)
    ordinals = guard.ordinals(wanted)
    if len(ordinals) < len(wanted):
        other = " and no other" if guard.devices else ""
        can_use = f"this process can use {guard.frozen_to}{other}"
        raise ChoiceError(f"{runtime} was {guard.seen}, and {can_use}.")
    results: list[str] = []
    if not dry_run:
        settings = session.framework_settings()
        results = settings.narrow(ordinals) if wanted else settings.widen()
    names = names_of(*(inventory.vendors or ("nvidia",)))
    selection = Selection(wanted, variables_now().named(names), (), guard.vendor)
    choice = Choice(
        selection,
        is_applied=not dry_run,
        is_dry_run=dry_run,
        is_simulated=bool(inventory.simulated),
        ordinals=ordinals,
        results=tuple(results),
    )
    if not dry_run:
        _log.info("%s", choice.log_line)
    return choice


def resume(file: Path) -> str:
    """Apply the choice that was saved in a file before a restart, once; return what became of it."""
    not_applied = "The choice that was saved before the restart was not applied"
    session = current()
    try:
        request, options = take(file)
        if session.chosen is not None:
            return f"{not_applied}, as another choice was made since."
        choice = apply(session, request, Options.saved(options))
    except OSError as error:
        return f"{not_applied}: {error}."
    except GpuMagicError as error:
        return f"{not_applied}: {error}"
    if choice.too_late:
        return f"{not_applied}. {choice.too_late}"
    return f"As chosen before the restart:\n{choice}"


def or_wait(error: NotFreeError, request: Request) -> NotFreeError:
    """Return an error with what waits; of GPUs that are named, it says so already."""
    if not isinstance(request, Auto):
        return error
    there = "there is one" if request.count == 1 else f"there are {request.count}"
    return NotFreeError(f"{error} --wait 30m waits until {there}.", error.holders)


def _doubts(guard: Guard, selection: Selection, *, is_simulated: bool) -> Iterator[str]:
    """Yield what is said of a choice that may have no effect in this process, a framework, a child."""
    if guard.state in (State.BROKEN, State.UNCLEAR):
        yield f"{guard}."
    variables = variables_now()
    if _has_fork_server() and selection.variables != variables.named(tuple(selection.variables)):
        yield (
            "multiprocessing's fork server was started before, and processes that it starts have what was "
            "set then: use the start method spawn."
        )
    if _known(selection) and not is_simulated:  # no framework can have such a GPU
        was_hidden = guard.state is State.LIVE and str(variables.mask).strip() in ("", "-1")
        yield from _of_frameworks(selection, was_hidden=was_hidden and guard.vendor == "nvidia")


def _of_frameworks(selection: Selection, *, was_hidden: bool) -> Iterator[str]:
    """Yield why imported frameworks will not have the GPUs.

    CUDA itself is not too late after a cuInit that found no GPU: it answers 100, and after another choice 0
    (seen on an H200, driver 580.159). But PyTorch can have kept its count, and TensorFlow its list.
    """
    started, counting = [], []
    for framework in imported():
        if without_cuda := framework.without_cuda():
            if selection.vendor == "nvidia":  # how to install it
                yield without_cuda
        elif not framework.is_started():
            counting += [framework.name] * (was_hidden and framework.module in _COUNT_EARLY)
        elif not framework.has_gpu():
            started.append(framework.name)
    if started:
        yield f"{listed(started)} started without a GPU, and will have none before a restart."
    if counting:
        who = " or ".join(counting)
        looked = f"If {who} has looked for GPUs meanwhile"
        yield f"Every GPU was hidden until now. {looked}, it finds none: restart then."


def _has_fork_server() -> bool:
    """Return whether multiprocessing has started its fork server, whose children get its own variables.

    It is the default way to start processes on Linux from Python 3.14 on.
    """
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    return getattr(server, "_forkserver_pid", None) is not None


def _known(selection: Selection) -> tuple[Device, ...]:
    return selection.devices if isinstance(selection.devices, tuple) else ()


def _uuids(devices: tuple[Device, ...]) -> tuple[str, ...]:
    return tuple(str(device.uuid) for device in devices)
