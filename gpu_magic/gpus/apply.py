"""Makes a choice take effect in this process, or returns why it is too late."""

from __future__ import annotations

import enum
import logging
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import ChoiceError, GpuMagicError, NotFreeError
from gpu_magic.frameworks import imported
from gpu_magic.frameworks.base import MemorySettings
from gpu_magic.gpus.choice import Choice, TooLate
from gpu_magic.gpus.options import Options, plan_memory
from gpu_magic.gpus.request import Auto, Named, Word, parse
from gpu_magic.gpus.select import Selection, select, select_among
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.option_table import CHOICE
from gpu_magic.process.drivers import State
from gpu_magic.process.guard import judge_process, runtime_of
from gpu_magic.process.mask import NAMES, names_of, write
from gpu_magic.process.session import Restarted, current
from gpu_magic.process.view import Snapshot, read_for_auto, read_machine
from gpu_magic.process.visible import read_visible
from gpu_magic.process.watch import cuda_watch
from gpu_magic.processes.tasks import tasks
from gpu_magic.restart.saved import take
from gpu_magic.text import listed, shortened, with_full_stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from gpu_magic.claims.held import Taken
    from gpu_magic.devices.model import Device, Inventory, Unknown
    from gpu_magic.gpus.request import Request
    from gpu_magic.process.session import Session

__all__ = [
    "Asked",
    "apply",
    "check_asked",
    "claims_against",
    "commit",
    "decide",
    "keep_restarted",
    "log_refusal",
    "narrow",
    "pick_unclaimed",
    "read_asked",
    "resume",
]

_PLAIN = Options()
# They keep the number of GPUs that they found, without a sign that they looked (CuPy: CUDA's runtime).
_COUNT_EARLY = ("torch", "tensorflow", "cupy")
# Packages that start worker processes. pathos and Hugging Face's datasets use the copy `multiprocess`.
_OF_PROCESSES = ("multiprocessing", "multiprocess")
_LONGEST_ERROR = 200  # characters
_log = logging.getLogger("gpu_magic.process")


class _StartedMeanwhileError(Exception):
    """While a choice took effect, another thread has started CUDA with other devices."""


class Asked(NamedTuple):
    """What is asked for: a request with its options, and the text after `%gpus`."""

    request: Request
    options: Options
    typed: str
    preferred: frozenset[str] = frozenset()  # devices that `auto` picks first among equals, by identity

    @property
    def must_be_unclaimed(self) -> bool:
        """Whether no other process may have claimed the devices."""
        return isinstance(self.request, Auto) or self.options.only_free

    def is_like(self, other: object) -> bool:
        """Return whether this asks for the same GPUs as another choice."""
        if not isinstance(other, Asked):
            return False
        return (self.request, self.options.filters) == (other.request, other.options.filters)


class Outcome(enum.Enum):
    """What a choice comes to in this process."""

    NEW = "new"  # it can take effect
    KEPT = "kept"  # CUDA has started with exactly these devices
    TOO_LATE = "too late"  # CUDA has started with other devices


class Decision(NamedTuple):
    """What a choice would do on the machine of a snapshot."""

    asked: Asked
    snapshot: Snapshot
    selection: Selection
    memory: MemorySettings | None  # None: the options ask for none
    outcome: Outcome


def read_asked(session: Session, text: str, options: Options) -> Asked:
    """Return what a text after `%gpus` asks for. If that is unclear, the error suggests only what works."""

    def check(request: Request) -> None:
        check_asked(session, Asked(request, options, text))

    return Asked(parse(text, check), options, text)


def check_asked(session: Session, asked: Asked) -> None:
    """Raise ChoiceError if what is asked for cannot be chosen now."""
    machine = read_machine(session).with_claims(claims_against(session, asked.request))
    decide(asked, Snapshot.of(session, machine))


def apply(session: Session, text: str, options: Options = _PLAIN, *, dry_run: bool = False) -> Choice:
    """Make CUDA see the GPUs that are typed after `%gpus`, if that can still take effect.

    It raises ChoiceError for GPUs that cannot be chosen, and changes nothing.
    """
    asked = read_asked(session, text, options)
    try:
        with session.access.opened():
            if not dry_run:
                session.renew_claims()
            if not asked.must_be_unclaimed:
                snapshot = Snapshot.of(session, read_machine(session))
                return commit(session, decide(asked, snapshot), dry_run=dry_run)
            return pick_unclaimed(session, asked, read_for_auto(session), dry_run=dry_run)
    except ChoiceError as error:
        if isinstance(error, NotFreeError) and isinstance(asked.request, Auto):
            error = error.or_wait()  # an error about named GPUs already has the advice
        if not dry_run:
            log_refusal(error)
        raise error from None


def pick_unclaimed(session: Session, asked: Asked, machine: Inventory, *, dry_run: bool = False) -> Choice:
    """Choose by one reading of the machine, while no other process picks."""

    def pick() -> Choice:
        there = machine.with_claims(claims_against(session, asked.request))
        return commit(session, decide(asked, Snapshot.of(session, there)), dry_run=dry_run)

    return pick() if dry_run else session.claims.pick_in_turn(pick)


def log_refusal(error: ChoiceError) -> None:
    """Log why a choice is refused. A text that cannot be parsed can be anything, so it is not logged."""
    _log.info("Not chosen: %s", error)


def claims_against(session: Session, request: Request) -> Taken:
    """Return the claims that keep a request away. Those for this process's commands keep only `auto` away."""
    return session.claims.taken() if isinstance(request, Auto) else session.claims.others()


def decide(asked: Asked, snapshot: Snapshot) -> Decision:
    """Return what a choice would do. It asks nothing and changes nothing.

    It raises ChoiceError for GPUs that cannot be chosen.
    """
    request, options = asked.request, asked.options
    guard, is_reset = snapshot.guard, request is Word.RESET
    is_kept = guard.state is State.FROZEN and guard.is_known and len(guard.known) == len(guard.devices)
    if is_kept and isinstance(request, Auto) and asked.is_like(snapshot.chosen):
        # `auto` could pick other GPUs now, but running the cell again asks for nothing new.
        kept = Selection(guard.known, snapshot.now.named(names_of(guard.vendor)[:2]), (), guard.vendor)
        has_uuids = all(device.uuid is not UNKNOWN for device in guard.known)
        selection = kept.with_mask(write(guard.known, by_uuid=True)) if has_uuids else kept
        is_same = True
    else:
        # If it is too late for a choice, it does not matter who else uses the named GPUs.
        is_too_late = isinstance(request, Named) and not guard.can_change
        selection = select(
            request,
            snapshot.machine,
            snapshot.inherited,
            options.without("only_free") if is_too_late else options,
            grant=snapshot.grant,
            held=snapshot.claimed | asked.preferred,
            by=snapshot.by,
        )
        never_chosen = is_reset and snapshot.chosen is None and snapshot.now == snapshot.inherited
        is_same = is_kept and (never_chosen or _are_same(selection.devices, guard.known))
    try:
        memory = plan_memory(selection.known, growth=options.growth, limit=options.memory_limit)
    except ChoiceError as error:
        error.keep_ways(lambda way: decide(asked._replace(request=parse(way.partition(" --")[0])), snapshot))
        raise
    outcome = Outcome.NEW if guard.can_change else Outcome.KEPT if is_same else Outcome.TOO_LATE
    return Decision(asked, snapshot, selection, memory, outcome)


def commit(session: Session, decision: Decision, *, dry_run: bool = False) -> Choice:
    """Make a decision take effect if it is not too late, and log it. A dry run changes nothing.

    It raises ChoiceError, and changes nothing, if it is too late for the memory settings, if a framework
    fails, or if a task in the background uses a GPU.
    """
    asked, snapshot, selection, memory, outcome = decision
    guard, is_reset = snapshot.guard, asked.request is Word.RESET
    if memory:
        session.settings.check(memory)
    choose = partial(Choice, is_simulated=bool(snapshot.simulated))
    if outcome is Outcome.TOO_LATE:
        too_late = TooLate(guard, selection.known, "" if is_reset else asked.typed.strip(), asked.options)
        choice = choose(selection, False, dry_run, is_reset=is_reset, too_late=too_late)
    elif outcome is Outcome.KEPT:
        kept = selection._replace(devices=guard.known, notes=())
        kept = _as_cuda_has_it(kept, snapshot, dry_run=dry_run)
        if not dry_run:
            kept = _take_effect(session, decision._replace(selection=kept))
        choice = choose(kept, True, dry_run and bool(memory), memory=str(memory or ""))
    else:
        selection = selection._replace(notes=(*selection.notes, *_doubts(snapshot, selection)))
        if not dry_run:
            _check_background(selection, snapshot)
            try:
                selection = _take_effect(session, decision._replace(selection=selection))
            except _StartedMeanwhileError:
                return commit(session, decide(asked, Snapshot.of(session, snapshot.machine)))
        choice = choose(selection, not dry_run, dry_run, is_reset=is_reset, memory=str(memory or ""))
    if not dry_run and _log.isEnabledFor(logging.INFO):
        _log.info("%s%s", choice.log_line, ", with --force" if asked.options.force else "")
    return choice


def _check_background(selection: Selection, snapshot: Snapshot) -> None:
    """Raise ChoiceError if a task in the background uses a GPU and the choice changes a variable."""
    if selection.variables == snapshot.now.named(tuple(selection.variables)):
        return
    for task in tasks:
        if task.is_running and task.gpus:
            raise ChoiceError(
                f"{task.name} runs on {task.gpus}, which another choice would change. First run "
                f"%gpu_tasks wait {task.name} or %gpu_tasks stop {task.name}"
            )


def _take_effect(session: Session, decision: Decision) -> Selection:
    """Claim exactly the chosen devices, and set the variables and the memory settings.

    It returns the selection, with a note if other users cannot see the claims. It raises an error and changes
    nothing if a framework fails, if another process has claimed a device that must be unclaimed
    (PickedTwiceError), or if another thread has started CUDA with other devices (_StartedMeanwhileError).
    """
    asked, snapshot, selection, memory, outcome = decision
    claims, changes, is_new = session.claims, session.environment, outcome is Outcome.NEW
    found: list[tuple[Mapping[str, str | None], Iterable[str]]] = []
    with defer_interrupts(), session.choosing, ExitStack() as undo:
        # Each choice replaces all memory settings of earlier choices.
        if memory or "settings" in vars(session):
            others, before = [name for name in changes.names if name not in NAMES], session.settings.memory
            found.append((session.settings.limit(memory or MemorySettings()), others))
            undo.callback(session.settings.limit, before)
        is_claimed, held = claims.are_wanted and asked.request is not Word.RESET, claims.held
        uuids = _identities(selection.known)
        problem = claims.hold(uuids if is_claimed else (), unclaimed=is_new and asked.must_be_unclaimed)
        undo.callback(claims.hold, held)
        if is_new or selection.notes:
            found.append((selection.variables, NAMES))
        set_now = {name for variables, _ in found for name in variables}
        undo.callback(changes.savepoint({*NAMES, *changes.names, *set_now}))
        for variables, names in found:
            changes.restore([name for name in names if name in changes and name not in variables])
            for name, value in variables.items():
                changes.set(name, value)
        has_started = is_new and cuda_watch.look() is State.FROZEN
        if has_started and judge_process(snapshot.machine, State.FROZEN).uuids != uuids:
            raise _StartedMeanwhileError
        undo.pop_all()
        note = session.note_on_claims(problem)
        if note and is_claimed and selection.known:
            selection = selection._replace(notes=(*selection.notes, note))
        if is_new:
            session.chosen = asked
            session.typed.append(_as_typed(asked.typed, asked.options))
            if uuids != session.restarted.devices:
                session.restarted = Restarted()
            session.followed = session.reported = None  # what changes this choice is news
    return selection


def _as_cuda_has_it(had: Selection, snapshot: Snapshot, *, dry_run: bool) -> Selection:
    """Return what a process has, with its variables, or with corrected ones if they mean other GPUs.

    A variable that was changed after CUDA has read it misleads frameworks and new processes.
    """
    variables, name = snapshot.now, names_of(had.vendor)[0]
    now = read_visible(variables, snapshot.machine).devices
    if now is UNKNOWN or _are_same(now, had.known):
        return had._replace(variables=variables.named(tuple(had.variables)))
    mask = variables.named((name,))[name]
    value = "not set" if mask is None else repr(mask)
    was, becomes = ("is", "would be") if dry_run else ("was", "is")
    has = f"{becomes} {had.mask!r} again, as when {runtime_of(had.vendor)} started"
    return had._replace(notes=(f"{name} {was} {value}. It {has}.",))


def narrow(session: Session, text: str, options: Options = _PLAIN, *, dry_run: bool = False) -> Choice:
    """Make the imported frameworks use only some of the GPUs of this process, after CUDA has started.

    It raises ChoiceError and changes nothing if CUDA has not started, if the process does not have these
    GPUs, or if an option is given.
    """
    request = read_asked(session, text, options).request
    if options != _PLAIN:
        given = [CHOICE[name].name for name in options.given()]
        raise ChoiceError(
            f"--in-process sets neither CUDA_VISIBLE_DEVICES nor memory limits. Omit {listed(given)}."
        )
    snapshot = Snapshot.of(session, read_machine(session))
    inventory, guard = snapshot.machine, snapshot.guard
    runtime = guard.runtime
    if guard.state is State.FORKED:
        raise ChoiceError(f'{guard}. Start workers with the "spawn" method.')
    if guard.state is not State.FROZEN:
        # It raises if `%gpus` without --in-process cannot work either.
        select(request, inventory, session.inherited, grant=session.grant)
        raise ChoiceError(f"{runtime} has not started, so --in-process is not needed. Try %gpus {text}")
    if request is Word.NONE:
        raise ChoiceError(
            f"none cannot hide GPUs after {runtime} has started. %%on_gpu cpu runs a cell on the CPU."
        )
    wanted = () if request is Word.RESET else select_among(request, inventory, guard.known)
    ordinals = guard.ordinals(wanted)
    if len(ordinals) < len(wanted):
        raise ChoiceError(f"Too late: {guard.cause}. {guard.keeps} and cannot use other GPUs.")
    results: list[str] = []
    if not dry_run:
        settings = session.settings
        results = settings.narrow(ordinals) if wanted else settings.widen()
        session.narrowed = text if wanted else ""
    variables = snapshot.now.named(names_of(snapshot.machine.vendor))
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
        request, saved_options, replaces = take(file)
        if session.chosen is not None:
            return f"{not_applied}: you made another choice since."
        options = Options.saved(saved_options)
        choice = apply(session, request, options)
    except (OSError, GpuMagicError) as error:
        return f"{not_applied}: {with_full_stop(str(error))}"
    if choice.too_late:
        return f"{not_applied}. {choice.too_late}"
    session.restarted = Restarted(request, options, _identities(choice.devices), replaces)
    session.typed.extend(replaces)
    return f"Applied the choice from before the restart:\n{choice}"


def keep_restarted(session: Session, text: str, options: Options) -> Choice | None:
    """Keep the choice of `--restart` instead of a choice of before the restart, once for each of these.

    So it survives when the notebook's cells run again. Return None for all other choices, and for one that is
    made twice in a row.
    """
    restarted, typed = session.restarted, _as_typed(text, options)
    if typed not in restarted.replaces or typed == restarted.replaced:
        session.restarted = restarted._replace(replaced="")
        return None
    left = list(restarted.replaces)
    left.remove(typed)  # once: two cells can have the same choice
    session.restarted = restarted._replace(replaces=tuple(left), replaced=typed)
    kept = apply(session, restarted.request, cast("Options", restarted.options))
    return replace(kept, instead_of=typed)


def _as_typed(text: str, options: Options) -> str:
    """Return a choice as typed, without the option that a wait adds."""
    return f"{text.strip()}{options.without('only_free')}"


def _doubts(snapshot: Snapshot, selection: Selection) -> Iterator[str]:
    """Yield the warnings that a choice may have no effect in this process, a framework or a child."""
    guard, variables = snapshot.guard, snapshot.now
    if guard.state in (State.BROKEN, State.UNCLEAR):
        yield f"{guard}."
    if selection.variables != variables.named(tuple(selection.variables)):
        yield from _of_older_processes()
    if selection.known and not snapshot.simulated:  # no framework can use a simulated GPU
        was_hidden = guard.state is State.LIVE and str(variables.mask).strip() in ("", "-1")
        yield from _of_frameworks(selection, was_hidden=was_hidden and selection.vendor == "nvidia")


def _of_older_processes() -> Iterator[str]:
    """Yield warnings about processes of this one that keep the earlier variables."""
    found = {name: module for name in _OF_PROCESSES if (module := sys.modules.get(name))}
    # The default start method on Linux from Python 3.14 on. The server's children get its variables.
    for name in found:
        server = getattr(sys.modules.get(f"{name}.forkserver"), "_forkserver", None)
        if getattr(server, "_forkserver_pid", None) is not None:
            yield (
                f"{name}'s fork server has already started. Its processes keep the earlier GPUs: use the "
                'start method "spawn".'
            )
    # Workers of process pools, joblib's and those of DataLoaders are children of multiprocessing too.
    if workers := [worker for module in found.values() for worker in module.active_children()]:
        counts = Counter(shortened(worker.name, 40) for worker in workers)  # Dask gives all one name
        names = [f"{name} ({count})" if count > 1 else name for name, count in sorted(counts.items())]
        names[3:] = [f"{len(names) - 3} more"] if names[3:] else []
        is_one = len(workers) == 1
        do = "runs already and keeps" if is_one else "run already and keep"
        how = "To renew the worker, end it" if is_one else "To renew the workers, end them"
        yield f"{listed(names)} {do} the earlier GPUs. {how} or the pool."
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        yield "Ray has already started. Its workers keep the earlier GPUs: ray.shutdown(), then ray.init()."


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
