"""Gathers the facts from their sources. What can't be read is UNKNOWN, and a finding says why."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.call_timeout import CallTimeout
from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.diagnosis.facts import Facts, Kernel, Program
from gpu_magic.diagnosis.finding import Finding, one_line
from gpu_magic.diagnosis.front_end import read_front_end
from gpu_magic.diagnosis.packages import read_packages
from gpu_magic.diagnosis.private import private_names
from gpu_magic.diagnosis.system import read_system
from gpu_magic.errors import GpuMagicError
from gpu_magic.process.environment import launch_environment, variables_now
from gpu_magic.process.state import probe
from gpu_magic.process.view import judge_process, take_snapshot
from gpu_magic.selection.seen import read_visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.process.session import Session
    from gpu_magic.process.view import Snapshot

__all__ = ["Gathered", "Pages", "gather"]

# For the sources that are files: they can lie on a network's file system that does not answer.
_SECONDS = 15.0


class Pages(NamedTuple):
    """The panels that this process has shown, and whether a page has answered one."""

    panels: int = 0
    has_answered: bool = False


class Gathered(NamedTuple):
    """The facts, and what is said of the sources that could not be read."""

    facts: Facts
    unread: tuple[Finding, ...]


class _Failure(NamedTuple):
    """Why a source could not be read, as a clause."""

    why: str


def gather(
    session: Session,
    program: Program,
    pages: Pages = Pages(),  # noqa: B008 - it can't be changed
    *,
    root: Path = Path("/"),
    seconds: float = _SECONDS,
) -> Gathered:
    """Read all facts.

    Parameters
    ----------
    session
        This process's.
    program
        Where commands are typed.
    pages
        What is known of the pages that show panels.
    root
        The folder with dev, proc, sys and so on.
    seconds
        How long the sources that are files may take.

    """
    launched = launch_environment()
    # These are read on this thread: the GPUs' reader gives up calls that hang, and the guard notes in which
    # cell it has seen CUDA.
    snapshot = _tried(partial(take_snapshot, session))
    kernel = (
        snapshot if isinstance(snapshot, _Failure) else _tried(partial(_kernel, session, snapshot, program))
    )
    sources: dict[str, Callable[[], Any]] = {
        "installed packages": partial(
            read_packages, root=root, library_path=launched.get("LD_LIBRARY_PATH", "")
        ),
        "the system": partial(read_system, launched | _since(launched), root),
        "the front end": partial(
            read_front_end, launched, pages.panels, has_answered=pages.has_answered, root=root
        ),
    }
    calls = [(name, partial(_tried, source)) for name, source in sources.items()]
    timeout = CallTimeout(seconds)
    answers = dict(zip(sources, timeout.call(calls), strict=True))
    timeout.close()
    found = {"the GPUs": snapshot, "this process": kernel, **answers}
    unread = [_unread(name, answer) for name, answer in found.items() if not _is_read(answer)]
    packages, system, front_end = map(_known, answers.values())
    facts = Facts(_known(snapshot), _known(kernel), packages, system, front_end, private_names(os.environ))
    return Gathered(facts, tuple(unread))


def _kernel(session: Session, snapshot: Snapshot, program: Program) -> Kernel:
    now = variables_now()
    seen = read_visible(now, snapshot).devices
    return Kernel(
        program,
        judge_process(snapshot, probe()),
        now,
        session.inherited,
        snapshot.kernel.notes,
        UNKNOWN if seen is UNKNOWN else tuple(device.label for device in seen),
        session.grant.by,
        session.grant.can_force,
        "" if session.chosen is None else str(session.chosen),
        os.environ.get("GPU_MAGIC_SIMULATE", ""),
    )


def _since(launched: dict[str, str]) -> dict[str, str]:
    """Return variables that were set since this process was launched, as sitecustomize does."""
    return {name: value for name, value in os.environ.items() if name not in launched}


def _tried(read: Callable[[], Any]) -> Any:
    """Return what a source says, or why it can't be read."""
    try:
        return read()
    except GpuMagicError as error:
        return _Failure(str(error))
    except Exception as error:  # noqa: BLE001 - a page that says what is wrong must not fail itself
        return _Failure(one_line(error))


def _is_read(answer: Any) -> bool:
    return answer is not None and not isinstance(answer, _Failure)


def _known(answer: Any) -> Any | Unknown:
    return answer if _is_read(answer) else UNKNOWN


def _unread(name: str, answer: _Failure | None) -> Finding:
    why = "it did not answer in time" if answer is None else answer.why
    return Finding("unknown", name, f"What there is to know of {name} could not be read: {why}")
