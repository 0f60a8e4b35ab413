"""Clusters that outlive the process that has started them: what is written down of one, and how it is found.

The record stands in the cluster's own folder, beside its connection files and logs. Only folders of this
user's are read.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.engines.ranks import Meeting
from gpu_magic.errors import ClusterError
from gpu_magic.launching.guardian import read_stat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.launching.guardian import Process

__all__ = ["Kept", "KeptEngine", "find_kept", "read_kept", "save"]

_RECORD = "cluster.json"


@dataclass(frozen=True, slots=True)
class KeptEngine:
    """An engine of a cluster that was kept.

    Parameters
    ----------
    uuids
        The GPUs that it has, in the order of `cuda:i`.
    variables
        The variables that name them there, and their values; None: not set.
    host, process
        See `Engine`.

    """

    uuids: tuple[str, ...]
    variables: Mapping[str, str | None]
    host: str
    process: Process


@dataclass(frozen=True, slots=True)
class Kept:
    """A cluster that was kept.

    Parameters
    ----------
    folder
        Of its files.
    meeting
        Of its ranks.
    guardians
        The processes above its controller and its engines, by their numbers.
    engines
        In the order of their numbers.

    """

    folder: Path
    meeting: Meeting
    guardians: Mapping[int, Process]
    engines: tuple[KeptEngine, ...]

    @property
    def name(self) -> str:
        """What it is called: the name of its folder, without what all have in common."""
        return self.folder.name.rpartition("-")[2]


def save(kept: Kept) -> None:
    """Write a cluster down, in its folder.

    Raises
    ------
    ClusterError
        It can't be written.

    """
    record = {
        "meeting": asdict(kept.meeting),
        "guardians": list(kept.guardians.items()),
        "engines": [asdict(engine) for engine in kept.engines],
    }
    new = kept.folder / f"{_RECORD}.new"
    try:
        new.write_text(json.dumps(record))
        new.replace(kept.folder / _RECORD)
    except OSError as error:
        raise ClusterError(f"The engines can't be kept: {error}.") from None


def find_kept() -> list[Kept]:
    """Return the clusters of this user that run on this machine; what is left of others is removed."""
    found = []
    for file in Path(tempfile.gettempdir()).glob(f"gpu_magic-*/{_RECORD}"):
        about = file.parent.lstat()
        if about.st_uid != os.getuid() or about.st_mode & 0o77:
            continue
        kept = _read(file)
        if kept and any(_runs(process) for process in kept.guardians.values()):
            found.append(kept)
        else:
            shutil.rmtree(file.parent, ignore_errors=True)
    return found


def _read(file: Path) -> Kept | None:
    try:
        return read_kept(file.read_bytes(), file.parent)
    except OSError:
        return None


def read_kept(raw: bytes, folder: Path) -> Kept | None:
    """Return the cluster that a record in a folder is of; None where it can't be read."""
    try:
        record: dict[str, Any] = json.loads(raw)
        meeting = record["meeting"]
        return Kept(
            folder,
            Meeting(**{**meeting, "tensorflow": _texts(meeting["tensorflow"])}),
            {number: _process(process) for number, process in record["guardians"]},
            tuple(
                KeptEngine(**{**one, "uuids": _texts(one["uuids"]), "process": _process(one["process"])})
                for one in record["engines"]
            ),
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        RecursionError,
    ):  # of another version, or cut short
        return None


def _texts(given: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(one, str) for one in given):
        raise TypeError
    return tuple(given)


def _process(pair: list[Any]) -> Process:
    pid, start = pair
    return int(pid), str(start)


def _runs(process: Process) -> bool:
    pid, start = process
    found = read_stat(pid)
    return found is not None and found[2] == start
