"""Makes a choice take effect in this process, or returns why it is too late."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import ChoiceError, GpuMagicError, NotFreeError
from gpu_magic.frameworks import imported
from gpu_magic.gpus.choice import Choice, TooLate
from gpu_magic.gpus.options import Options, plan_memory
from gpu_magic.gpus.request import Auto, Named, Nothing, Reset, parse
from gpu_magic.gpus.select import Selection, select, select_among
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.option_table import CHOICE
from gpu_magic.process.drivers import State
from gpu_magic.process.environment import variables_now
from gpu_magic.process.guard import judge_process, runtime_of
from gpu_magic.process.mask import NAMES, names_of, write
from gpu_magic.process.session import current
from gpu_magic.process.view import read_for_auto, read_machine
from gpu_magic.process.visible import read_visible
from gpu_magic.process.watch import cuda_watch
from gpu_magic.processes.tasks import tasks
from gpu_magic.restart.saved import take
from gpu_magic.text import listed, shortened, with_full_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from gpu_magic.claims.held import Taken
    from gpu_magic.devices.model import Device, Inventory, Unknown
    from gpu_magic.frameworks.base import MemorySettings
    from gpu_magic.gpus.request import Request
    from gpu_magic.process.guard import Guard
    from gpu_magic.process.session import Session

__all__ = ["apply", "narrow", "resume"]

_PLAIN = Options()
# They keep the number of GPUs that they found, without a sign that they looked (CuPy: CUDA's runtime).
_COUNT_EARLY = ("torch", "tensorflow", "cupy")
_LONGEST_ERROR = 200  # characters
_log = logging.getLogger("gpu_magic.process")


class _StartedMeanwhileError(Exception):
    """While a choice took effect, another thread has started CUDA with other devices."""


def apply(
    session: Session,
    text: str,
    options: Options = _PLAIN,
    *,
    dry_run: bool = False,
    inventory: Inventory | None = None,
    in_turn: Callable[[Inventory], Inventory] | None = None,
    preferred: frozenset[str] = frozenset(),
    is_start: bool = False,
) -> Choice:
    """Make CUDA see the GPUs that are typed after `%gpus`, if that can still take effect.

    Among equal GPUs, `auto` picks preferred UUIDs first. When a kernel starts (`is_start`), it looks once.

    A wait passes the machine that it has just read, and `in_turn`, which adds claims on the GPUs that are
    left to earlier waits. It raises ChoiceError for GPUs that cannot be chosen, and changes nothing.
    """
    request = parse(text)  # a text that cannot be parsed can be anything, so it is not logged
    is_wait = inventory is not None
    is_auto = isinstance(request, Auto)
    is_alone = is_auto or options.only_free
    choose = partial(
        _apply, session, text, request, options, dry_run=dry_run, preferred=preferred, is_start=is_start
    )

    def pick(taken: Taken) -> Choice:
        # Claims for this process's own commands keep only `auto` away, not numbers.
        there = machine.with_claims(taken if is_auto else session.claims.others())
        try:
            return choose(in_turn(there) if in_turn else there)
        except NotFreeError as error:
            # An error about named GPUs already has the advice.
            raise (error.or_wait() if is_auto and not is_wait else error) from None

    try:
        with session.access.opened():
            if not dry_run:
                session.renew_claims()
            if inventory is None:
                looks_again = is_alone and not is_start
                inventory = read_for_auto(session) if looks_again else read_machine(session)
            machine = inventory
            if not is_alone:
                choice = choose(machine)
            elif dry_run:
                choice = pick(session.claims.taken())
            else:
                choice = session.claims.pick_in_turn(pick, waits=not is_wait)
    except ChoiceError as error:
        if not dry_run and not (is_wait and isinstance(error, NotFreeError)):
            _log.info("Not chosen: %s", error)
        raise
    if not dry_run:
        _log.info("%s%s", choice.log_line, ", with --force" if options.force else "")
    return choice


def _apply(
    session: Session,
    text: str,
    request: Request,
    options: Options,
    inventory: Inventory,
    *,
    dry_run: bool,
    preferred: frozenset[str],
    is_start: bool,
) -> Choice:
    """Apply a parsed request to one reading of the machine. The caller logs the result."""
    guard = judge_process(inventory, cuda_watch.look())
    is_simulated, is_reset = bool(inventory.simulated), isinstance(request, Reset)
    is_kept = guard.state is State.FROZEN and guard.is_known and len(guard.known) == len(guard.devices)
    if is_kept and isinstance(request, Auto) and (request, options.filters) == session.chosen:
        # `auto` could pick other GPUs now, but running the cell again asks for nothing new.
        variables = variables_now().named(names_of(guard.vendor)[:2])
        kept = Selection(guard.known, variables, (), guard.vendor)
        has_uuids = all(device.uuid is not UNKNOWN for device in guard.known)
        selection = kept.with_mask(write(guard.known, by_uuid=True)) if has_uuids else kept
        is_same = True
    else:
        # If it is too late for a choice, it does not matter who else uses the named GPUs.
        is_too_late = isinstance(request, Named) and not guard.can_change
        selection = select(
            request,
            inventory,
            session.inherited,
            options.without("only_free") if is_too_late else options,
            grant=session.grant,
            held=session.claims.held | preferred,
            by=session.by,
        )
        never_chosen = is_reset and session.chosen is None and variables_now() == session.inherited
        is_same = is_kept and (never_chosen or _are_same(selection.devices, guard.known))
    memory = plan_memory(selection.known, growth=options.growth, limit=options.memory_limit)
    if memory:
        session.settings.check(memory)
    choose = partial(Choice, is_simulated=is_simulated)
    take_effect = partial(_take_effect, session, request, options, memory, inventory=inventory)
    if guard.can_change:
        notes = _doubts(guard, selection, has_frameworks=not (is_simulated or is_start))
        selection = replace(selection, notes=(*selection.notes, *notes))
        if not dry_run:
            _check_background(selection)
            try:
                selection = take_effect(selection, is_new=True)
            except _StartedMeanwhileError:
                again = partial(_apply, session, text, request, options, inventory, preferred=preferred)
                return again(dry_run=False, is_start=is_start)
        return choose(selection, not dry_run, dry_run, is_reset=is_reset, memory=str(memory))
    if is_same:
        kept = replace(selection, devices=guard.known, notes=())
        kept = _as_cuda_has_it(kept, inventory, dry_run=dry_run)
        if not dry_run:
            kept = take_effect(kept, is_new=False)
        return choose(kept, is_applied=True, is_dry_run=dry_run and bool(memory), memory=str(memory))
    too_late = TooLate(guard, selection.known, "" if is_reset else text.strip(), options)
    return choose(selection, is_applied=False, is_dry_run=dry_run, is_reset=is_reset, too_late=too_late)


def _check_background(selection: Selection) -> None:
    """Raise ChoiceError if a task in the background uses a GPU and the choice changes a variable."""
    if selection.variables == variables_now().named(tuple(selection.variables)):
        return
    for task in tasks:
        if task.is_running and task.gpus:
            raise ChoiceError(
                f"{task.name} runs on {task.gpus}, which another choice would change. First run "
                f"%gpu_tasks wait {task.name} or %gpu_tasks stop {task.name}"
            )


def _take_effect(
    session: Session,
    request: Request,
    options: Options,
    memory: MemorySettings,
    selection: Selection,
    *,
    inventory: Inventory,
    is_new: bool,
) -> Selection:
    """Claim exactly the chosen devices, and set the variables and the memory settings.

    It returns the selection, with a note if other users cannot see the claims. It raises an error and changes
    nothing if a framework fails, if another process has claimed a device that must be unclaimed
    (PickedTwiceError), or if another thread has started CUDA with other devices (_StartedMeanwhileError).
    """
    claims, ours, changes = session.claims, session.environment, is_new or selection.notes
    found: list[tuple[Mapping[str, str | None], Iterable[str]]] = []
    with defer_interrupts(), session.choosing, ExitStack() as undo:
        # Each choice replaces all memory settings of earlier choices.
        if memory or "settings" in vars(session):
            others, before = [name for name in ours.names if name not in NAMES], session.settings.memory
            found.append((session.settings.limit(memory), others))
            undo.callback(session.settings.limit, before)
        is_claimed, held = claims.are_wanted and not isinstance(request, Reset), claims.held
        is_alone = is_new and (isinstance(request, Auto) or options.only_free)
        problem = claims.hold(_identities(selection.known) if is_claimed else (), alone=is_alone)
        undo.callback(claims.hold, held)
        if changes:
            found.append((selection.variables, NAMES))
        undo.callback(ours.savepoint({*NAMES, *ours.names, *(one for names, _ in found for one in names)}))
        for variables, names in found:
            ours.restore([name for name in names if name in ours and name not in variables])
            for name, value in variables.items():
                ours.set(name, value)
        if is_new and (state := cuda_watch.look()) is State.FROZEN:
            guard = judge_process(inventory, state)
            if guard.uuids != _identities(selection.known):
                raise _StartedMeanwhileError
        undo.pop_all()
        note = session.note_on_claims(problem)
        if note and is_claimed and selection.known:
            selection = replace(selection, notes=(*selection.notes, note))
        if is_new:
            session.chosen = request, options.filters
    return selection


def _as_cuda_has_it(had: Selection, inventory: Inventory, *, dry_run: bool) -> Selection:
    """Return what a process has, with its variables, or with corrected ones if they mean other GPUs.

    A variable that was changed after CUDA has read it misleads frameworks and new processes.
    """
    variables, name = variables_now(), names_of(had.vendor)[0]
    now = read_visible(variables, inventory).devices
    if now is UNKNOWN or _are_same(now, had.known):
        return replace(had, variables=variables.named(tuple(had.variables)))
    mask = variables.named((name,))[name]
    value = "not set" if mask is None else repr(mask)
    was, becomes = ("is", "would be") if dry_run else ("was", "is")
    has = f"{becomes} {had.mask!r} again, as when {runtime_of(had.vendor)} started"
    return replace(had, notes=(f"{name} {was} {value}. It {has}.",))


def narrow(session: Session, text: str, options: Options = _PLAIN, *, dry_run: bool = False) -> Choice:
    """Make the imported frameworks use only some of the GPUs of this process, after CUDA has started.

    It raises ChoiceError and changes nothing if CUDA has not started, if the process does not have these
    GPUs, or if an option is given.
    """
    request = parse(text)
    if options != _PLAIN:
        given = [CHOICE[name].name for name in options.given()]
        raise ChoiceError(
            f"--in-process sets neither CUDA_VISIBLE_DEVICES nor memory limits. Omit {listed(given)}."
        )
    inventory = read_machine(session)
    guard = judge_process(inventory, cuda_watch.look())
    runtime = guard.runtime
    if guard.state is State.FORKED:
        raise ChoiceError(f'{guard}. Start workers with the "spawn" method.')
    if guard.state is not State.FROZEN:
        # It raises if `%gpus` without --in-process cannot work either.
        select(request, inventory, session.inherited, grant=session.grant)
        raise ChoiceError(f"{runtime} has not started, so --in-process is not needed. Try %gpus {text}")
    if isinstance(request, Nothing):
        raise ChoiceError(
            f"none cannot hide GPUs after {runtime} has started. %%on_gpu cpu runs a cell on the CPU."
        )
    wanted = () if isinstance(request, Reset) else select_among(request, inventory, guard.known)
    ordinals = guard.ordinals(wanted)
    if len(ordinals) < len(wanted):
        raise ChoiceError(f"Too late: {guard.cause}. {guard.keeps} and cannot use other GPUs.")
    results: list[str] = []
    if not dry_run:
        settings = session.settings
        results = settings.narrow(ordinals) if wanted else settings.widen()
    variables = variables_now().named(names_of(inventory.vendor))
    choice = Choice(
        Selection(wanted, variables, (), guard.vendor),
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
    """Apply, once, the choice that was saved in a file before a restart. Return the result as text."""
    not_applied = "The choice from before the restart was not applied"
    session = current()
    try:
        request, options = take(file)
        if session.chosen is not None:
            return f"{not_applied}: you made another choice since."
        choice = apply(session, request, Options.saved(options))
    except (OSError, GpuMagicError) as error:
        return f"{not_applied}: {with_full_stop(str(error))}"
    if choice.too_late:
        return f"{not_applied}. {choice.too_late}"
    return f"Applied the choice from before the restart:\n{choice}"


def _doubts(guard: Guard, selection: Selection, *, has_frameworks: bool) -> Iterator[str]:
    """Yield the warnings that a choice may have no effect in this process, a framework or a child."""
    if guard.state in (State.BROKEN, State.UNCLEAR):
        yield f"{guard}."
    variables = variables_now()
    # The default start method on Linux from Python 3.14 on. The server's children get its variables.
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    has_server = getattr(server, "_forkserver_pid", None) is not None
    if has_server and selection.variables != variables.named(tuple(selection.variables)):
        yield (
            "multiprocessing's fork server has already started. Its processes keep the earlier GPUs: use the "
            'start method "spawn".'
        )
    if selection.known and has_frameworks:  # no framework can use a simulated GPU
        was_hidden = guard.state is State.LIVE and str(variables.mask).strip() in ("", "-1")
        yield from _of_frameworks(selection, was_hidden=was_hidden and selection.vendor == "nvidia")


def _of_frameworks(selection: Selection, *, was_hidden: bool) -> Iterator[str]:
    """Yield why imported frameworks will not see the GPUs.

    For CUDA it is not too late after a cuInit that found no GPU: it returns 100, and after another choice 0
    (seen on an H200, driver 580.159). But PyTorch may have kept its count, and TensorFlow its list.
    """
    started, counting = [], []
    for framework in imported():
        try:
            if without_cuda := framework.without_cuda():
                if selection.vendor == "nvidia":  # how to install it
                    yield without_cuda
            elif (is_started := framework.is_started()) is False:
                counting += [framework.name] * (was_hidden and framework.module in _COUNT_EARLY)
            elif is_started is True and not framework.has_gpu():
                started.append(framework.name)
        except Exception as error:  # noqa: BLE001 - it is other people's code
            why = shortened(repr(error), _LONGEST_ERROR)
            yield f"Whether {framework.name} has looked for GPUs is unknown ({why}). If so, restart."
    if started:
        yield f"{listed(started)} started without a GPU and will see none until you restart."
    if counting:
        who = " or ".join(counting)
        yield f"Until now every NVIDIA GPU was hidden. If {who} has already looked for GPUs, restart."


def _are_same(one: tuple[Device, ...] | Unknown, other: tuple[Device, ...]) -> bool:
    """Return whether these are the same devices in the same order, by their identities."""
    return one is not UNKNOWN and _identities(one) == _identities(other)


def _identities(devices: tuple[Device, ...]) -> tuple[str, ...]:
    return tuple(device.identity for device in devices)
