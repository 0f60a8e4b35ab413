"""Diagnoses a process's GPU set-up: reads the facts, runs the checks, and shows both."""

from __future__ import annotations

import enum
import os
import platform
import re
import socket
import sys
from collections import Counter
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.call_timeout import CallTimeout
from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.problems import GpuProblem, Problem
from gpu_magic.devices.processes import owner_name
from gpu_magic.doctor.checks import CHECKS
from gpu_magic.doctor.facts import Facts, Finding, Kernel, Program, Severity
from gpu_magic.doctor.sources import loaded_version, read_packages, read_system
from gpu_magic.errors import GpuMagicError
from gpu_magic.panel.front_end import pages, read_front_end
from gpu_magic.process.environment import launch_environment, misspelt, program
from gpu_magic.process.mask import Note, names_of
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.process.visible import read_visible
from gpu_magic.public import public
from gpu_magic.text import (
    counted,
    escaped,
    html_block,
    html_table,
    listed,
    printable,
    shortened,
    simulated_mark,
    text_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpu_magic.doctor.checks import Check

__all__ = ["Diagnosis", "diagnose", "doctor", "judge", "private_names", "read_kernel", "without_private"]

_SECONDS = 15.0  # for sources that are files, because a network file system may hang
_LONGEST, _LONGEST_ERROR = 200, 300  # characters of a variable's value, and of an error
# The heading of a finding, and its color.
_SHOWN: dict[Severity, tuple[str, str]] = {
    "wrong": ("Wrong", "var(--jp-error-color1,#d0453a)"),
    "worth knowing": ("Worth knowing", "var(--jp-warn-color0,#c77f1a)"),
    "unknown": ("Unknown", "var(--jp-ui-font-color2,#888)"),
}
_BORDER = "padding:2px 10px;margin:8px 0;border-left:4px solid"
_FIX = "margin:2px 8px;color:inherit;white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px"


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """The findings about this process's GPU set-up. `Diagnosis` shows itself, with the fix of each finding.

    Parameters
    ----------
    findings
        Errors first.
    facts
        Everything that was read.

    """

    findings: tuple[Finding, ...]
    facts: Facts

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(finding for finding in self.findings if finding.severity == "wrong")

    @property
    def summary(self) -> str:
        """The result as a line: how many errors there are, and how much else is worth knowing."""
        counts = Counter(finding.severity for finding in self.findings)
        wrong, more, unknown = (counts[severity] for severity in _SHOWN)
        parts = [f"{counted(wrong, 'thing')} {'is' if wrong == 1 else 'are'} wrong"] * bool(wrong)
        noun = f"{more}" if wrong else counted(more, "thing")
        parts += [f"{noun} {'is' if more == 1 else 'are'} worth knowing"] * bool(more)
        parts += [f"{unknown} could not be read or checked"] * bool(unknown)
        return " ".join(["Nothing wrong was found."] * (not wrong) + [f"{', '.join(parts)}."] * bool(parts))

    def report(self) -> str:
        """Return a text for an issue, without names and paths, and with shortened UUIDs."""
        public = [
            Finding(one.severity, one.about, one.public) if one.public else one for one in self.findings
        ]
        versions = f"gpu_magic {loaded_version('gpu_magic')}, Python {platform.python_version()}"
        text = f"{versions}: {Diagnosis(tuple(public), self.facts)!r}"
        return without_private(text, private_names())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values for JSON, which `%gpu_doctor --json` prints.

        Returns
        -------
        dict
            "summary" is a line. "findings" is a list with the fields of each `Finding`, errors first. "facts"
            has everything that was read, with null for unknown values. The keys "summary" and "findings"
            and the fields of a finding do not change. The keys in "facts" change with the checks. "facts" has
            user names, paths and UUIDs, which `report` leaves out.

        """
        return {"summary": self.summary, "findings": _plain(self.findings), "facts": _plain(self.facts)}

    def __repr__(self) -> str:
        lines = [self.summary]
        for finding in self.findings:
            lines += ["", f"{_SHOWN[finding.severity][0]}: {finding.problem}"]
            lines += [f"  {finding.effect}"] * bool(finding.effect)
            lines += [f"      {line}" for line in finding.fix.splitlines()]
        if rows := self._rows():
            lines += ["", *text_table(("", ""), rows)]
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        newline, parts = "\n", [f"<p><b>{escaped(self.summary)}</b></p>"]
        for finding in self.findings:
            heading, color = _SHOWN[finding.severity]
            lines = [finding.problem, finding.effect, *finding.fix.splitlines()]
            problem, effect, *fix = (escaped(printable(line)) for line in lines)
            shown = f"<p><b>{heading}:</b> {problem}</p>" + f"<p class='gm-soft'>{effect}</p>" * bool(effect)
            shown += f"<pre style='{_FIX}'>{newline.join(fix)}</pre>" if fix else ""
            parts.append(f"<div style='{_BORDER} {color}'>{shown}</div>")
        rows = [[printable(text) for text in row] for row in self._rows()]
        return html_block("", f"{''.join(parts)}{html_table((), rows)}")

    def _rows(self) -> list[tuple[str, str]]:
        """Return the rows of the facts. A row that was checked, without a finding, ends with `: fine`."""
        found = {finding.about for finding in self.findings}
        rows = _rows(self.facts)
        return [(name, f"{text}{': fine' * (fine and name not in found)}") for name, text, fine in rows]


@public
def doctor() -> Diagnosis:
    """Find errors of this process's GPU set-up: driver, builds, variables, permissions.

    `doctor` changes nothing, imports no framework and does not start CUDA.

    Returns
    -------
    Diagnosis
        The `findings`, errors first, and the `facts`. A finding has `problem`, `effect` and `fix`: a command
        to copy, or the address of a page that has it. The diagnosis shows itself as HTML. `report()` returns
        a text for an issue. `to_dict()` returns values for JSON.

    """
    return diagnose(program())


def diagnose(where: Program, root: Path = Path("/"), seconds: float = _SECONDS) -> Diagnosis:
    """Read the facts, with files below `root`, and check them. `where` is the program for typed commands."""
    launched = launch_environment()
    # On this thread, because the GPUs' reader has its own timeout, and the guard notes the current cell.
    snapshot = _tried(partial(Snapshot.take, current()))
    machine = snapshot if isinstance(snapshot, str) else snapshot.machine
    kernel = snapshot if isinstance(snapshot, str) else _tried(partial(read_kernel, snapshot, where))
    places = [place for place in sys.path if isinstance(place, str)]  # Python ignores all other entries
    # The variables of the launch, because sitecustomize can have set others since.
    sources: dict[str, Callable[[], Any]] = {
        "installed packages": partial(read_packages, places, root, launched.get("LD_LIBRARY_PATH", "")),
        "the system": partial(read_system, dict(os.environ) | launched, root),
        "the front end": partial(read_front_end, launched, root),
    }
    timeout = CallTimeout(seconds)
    answers = timeout.call([(name, partial(_tried, source)) for name, source in sources.items()])
    timeout.close()
    read = {"the GPUs": machine, "this process": kernel} | dict(zip(sources, answers, strict=True))
    read = {name: "it did not answer in time" if one is None else one for name, one in read.items()}
    unread = [
        Finding("unknown", name, f"The facts about {name} could not be read: {why}")
        for name, why in read.items()
        if isinstance(why, str)
    ]
    facts: list[Any] = [UNKNOWN if isinstance(one, str) else one for one in read.values()]
    return judge(Facts(*facts, pages()), unread)  # type: ignore[call-arg] # one for each field


def judge(facts: Facts, unread: Iterable[Finding] = (), checks: Iterable[Check] = CHECKS) -> Diagnosis:
    """Run the checks in order. A check that fails becomes a finding."""
    found = list(unread)
    for check in checks:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        try:
            found += check(facts)
        except Exception as error:  # noqa: BLE001 - a diagnosis must not fail
            found.append(Finding("unknown", name, f"The check of {name} failed: {_one_line(error)}"))
    order = list(_SHOWN)
    return Diagnosis(tuple(sorted(dict.fromkeys(found), key=lambda one: order.index(one.severity))), facts)


def _tried(read: Callable[[], Any]) -> Any:
    """Return the facts of a source, or as text why the source cannot be read."""
    try:
        return read()
    except GpuMagicError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a diagnosis must not fail
        return _one_line(error)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {shortened(' '.join(str(error).split()), _LONGEST_ERROR)}"


def read_kernel(snapshot: Snapshot, where: Program) -> Kernel:
    """Return the facts about this process. `where` is the program in which commands are typed."""
    changes, simulate = current().environment, os.environ.get("GPU_MAGIC_SIMULATE", "")
    guard, seen = snapshot.guard, read_visible(snapshot.now, snapshot.machine).devices
    name = names_of(guard.vendor)[0]
    return Kernel(
        where,
        guard,
        variables=snapshot.now,
        launched=snapshot.inherited,
        notes=snapshot.notes,
        seen=seen,
        grant=snapshot.grant,
        chose_none=seen == () and name in changes and changes.is_unchanged(name),
        simulate=simulate,
        misspelt=tuple(misspelt(os.environ).items()),
    )


def _rows(facts: Facts) -> Iterator[tuple[str, str, bool]]:  # noqa: C901 - one row after another
    """Yield a row for each known fact: its name, its text, and whether a check covers it."""
    machine, kernel, packages, system = facts.machine, facts.kernel, facts.packages, facts.system
    if machine is not UNKNOWN:
        parts = [f"{simulated_mark(machine.simulated)}({machine.simulated})"] * bool(machine.simulated)
        parts += [] if machine.driver_version is UNKNOWN else [machine.driver_version]
        parts += [f"CUDA up to {facts.driver_cuda}"] * bool(facts.driver_cuda)
        parts = parts or ["AMD's" if machine.vendor == "amd" else "versions unknown"]
        yield "driver", "no GPU can be read" if machine.problem else ", ".join(parts), not machine.problem
        kinds: Counter[str] = Counter()
        for gpu in machine.gpus:
            mode = "" if gpu.compute_mode in (UNKNOWN, "Default") else f" (compute mode {gpu.compute_mode})"
            split = f" (MIG, {counted(len(gpu.mig), 'instance')})" if gpu.is_split else ""
            kinds[f"{'unknown' if gpu.name is UNKNOWN else gpu.name}{mode}{split}"] += 1
        if kinds:
            yield "GPUs", ", ".join(f"{n} of {kind}" if n > 1 else kind for kind, n in kinds.items()), True
    if kernel is not UNKNOWN:
        names = names_of(kernel.guard.vendor)
        for name, value in kernel.variables.named(names).items():
            sees = ""
            if kernel.seen is not UNKNOWN and name == names[0]:
                sees = f": {listed((device.label for device in kernel.seen), 'no GPU')}"
            if value is not None or name == names[0]:
                shown = "not set" if value is None else shortened(value, _LONGEST) or "empty"
                yield name, f"{shown}{sees}", False
        guard, has_gpus = kernel.guard, machine is UNKNOWN or machine.gpus
        yield guard.runtime, guard.sentence if has_gpus else guard.status, False
    if system is not UNKNOWN:
        where = [f"a container ({system.container})"] * bool(system.container) + [system.kind]
        read = {
            "system": ", ".join(filter(None, where)),
            "NVIDIA_DRIVER_CAPABILITIES": shortened(system.capabilities or "", _LONGEST),
            "device files": ", ".join(file.path for file in system.devices),
        }
        yield from ((name, text, name == "device files") for name, text in read.items() if text)
    if packages is not UNKNOWN:
        for build in packages.builds:
            text = "CUDA version unknown"
            if build.built_for is not UNKNOWN:
                text = f"built for {build.built_for} {build.runtime}".strip()
            is_judged = build.built_for == "CUDA" and bool(facts.driver_cuda and facts.nvidia_gpus)
            yield build.framework, f"{build.version}, {text}", is_judged
        if packages.versions:
            yield "packages", ", ".join(map(" ".join, packages.versions.items())), False


def _plain(value: Any) -> Any:
    """Convert a value to JSON types, with null for UNKNOWN."""
    if isinstance(value, enum.Enum):
        return None if value is UNKNOWN else value.value
    if isinstance(value, Problem | GpuProblem | Note):
        return str(value)
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return list(map(_plain, value)) if isinstance(value, tuple | list | set | frozenset) else value


# The paths and UUIDs that a report for other people leaves out. A path in quotes can have spaces. A path
# behind a word or a slash is part of a URL, and stays. Names become "…" first, so a path can start with "…".
_PATH = re.compile(r"(?<=(['\"]))[~/…].*?(?=\1)|(?<![\w:/.~>])(?:~|…?/)[^\s'\",;:()<>|*]+")
_UUID = re.compile(r"\b((?:GPU|MIG)-[0-9a-fA-F]{4})[-0-9a-fA-F]*(?:/\d+)*")
# System paths, which are the same everywhere, stay in a report.
_SYSTEM = ("/dev/nvidia", "/dev/dxg", "/dev/kfd", "/proc/driver/nvidia", "/usr/lib/wsl", "/usr/local/cuda")


def private_names() -> list[str]:
    """Return the names of this user and this host, and the home folder, the longest first."""
    owner = owner_name(os.getuid()) if hasattr(os, "getuid") else ""  # not on Windows
    host, home = socket.gethostname(), os.environ.get("HOME", "")
    names = {owner, host, host.partition(".")[0], home, PurePath(home).name}
    names |= {os.environ.get(name, "") for name in ("USER", "LOGNAME", "JUPYTERHUB_USER", "HOSTNAME")}
    # Without single letters, which can also be words.
    return sorted((name for name in names if name[1:]), key=len, reverse=True)


def without_private(text: str, names: Sequence[str]) -> str:
    """Return a text without names and paths, and with shortened UUIDs."""
    for name in names:
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "…", text)
    text = _PATH.sub(lambda found: found[0] if found[0].startswith(_SYSTEM) else "…", text)
    return _UUID.sub(r"\1…", text)
