"""Files for the next start of this kernel. They have the name of its connection file.

A restart keeps the connection file (ipykernel 6.30 to 7.4 with jupyter_client 8). A saved choice is used
once, and expires. The GPUs that a kernel started with are kept as long as its connection file. GPUs are saved
as UUIDs, because their numbers can change. Anything else in the place of such a file (a pipe, a symbolic
link, another user's file) is not read.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.process.environment import connection_file, program, saved_choices_folder
from gpu_magic.process.session import current

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_magic.devices.model import Device

__all__ = [
    "Saved",
    "read_saved",
    "remember",
    "remembered",
    "remove_expired",
    "save",
    "saved_choice_file",
    "take",
]

_EXPIRES_AFTER = 600.0  # seconds
_MOST_BYTES = 1 << 16
_log = logging.getLogger("gpu_magic.restart")


class Saved(NamedTuple):
    """A choice that was saved for a restart."""

    request: str
    options: dict[str, object]
    replaces: tuple[str, ...]  # the choices of before the restart, as typed


def saved_choice_file() -> Path | None:
    """Return the file for this kernel's saved choice; None if this process is not a Jupyter kernel."""
    file = connection_file()
    return Path(saved_choices_folder(), Path(file).name) if file else None


def save(
    request: str, devices: Sequence[Device], options: Mapping[str, object], *, dry_run: bool = False
) -> None:
    """Save a choice that came too late, for the next start of this kernel. In a dry run, write nothing.

    An empty request removes the saved choice, so that the next start has the GPUs of the launch.

    Raises ChoiceError, also in a dry run, if there is no kernel, or if no program would restart it.
    """
    file, typed = saved_choice_file(), f"%gpus {request or 'reset'}"
    if file is None:
        raise ChoiceError(
            f"--restart needs a Jupyter kernel, and this is none. Exit, start again and first run {typed}"
        )
    if program() == "unattended kernel":
        raise ChoiceError(
            "A program runs this notebook (nbclient, papermill), so --restart does not work here. "
            f"Before the first cell that uses CUDA, run {typed}"
        )
    if dry_run:
        return
    try:
        remove_expired()
        file.unlink(missing_ok=True)
        if not request:
            return
        # A GPU without a UUID is named by its number.
        named = (device.number_text if device.uuid is UNKNOWN else str(device.uuid) for device in devices)
        uuids = ",".join(named) or "none"
        saved = {"kernel": connection_file(), "saved": time.time(), "request": uuids, "options": options}
        _write(file, json.dumps(saved | {"replaces": list(current().typed)}))
        _log.info("Saved for after a restart: %s", uuids)
    except OSError as error:
        raise ChoiceError(
            f"The choice cannot be saved for a restart, so nothing was changed: {error}."
        ) from None


def read_saved(raw: bytes, kernel: str, now: float) -> Saved:
    """Return the choice from the bytes of a file. Raise ChoiceError if they are invalid."""
    unreadable = ChoiceError("its file cannot be read.")
    try:
        saved: dict[str, Any] = json.loads(raw)
        request, options, replaces = saved["request"], saved["options"], saved["replaces"]
        age = now - saved["saved"]
        is_for_us = saved["kernel"] == kernel
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise unreadable from None
    if not isinstance(request, str) or not isinstance(options, dict) or not isinstance(replaces, list):
        raise unreadable
    if not all(isinstance(text, str) for text in replaces):
        raise unreadable
    if not is_for_us:
        raise ChoiceError("it was saved for another kernel.")
    if not -_EXPIRES_AFTER < age < _EXPIRES_AFTER:  # negative if the clock was set back
        raise ChoiceError(f"it is older than {_EXPIRES_AFTER / 60:.0f} minutes.")
    return Saved(request, options, tuple(replaces))


def take(file: Path) -> Saved:
    """Return the choice saved in a file for this kernel, and remove the file.

    Raises ChoiceError or OSError if the file can't be read, is for another kernel, or is too old.
    """
    try:
        raw = _read(file)
    finally:
        file.unlink(missing_ok=True)
    if raw is None:
        raise ChoiceError("its file does not belong to this user.")
    return read_saved(raw, connection_file(), time.time())


def remember(devices: Sequence[Device]) -> None:
    """Save the GPUs that this kernel started with, for its restart. Remove the files of ended kernels.

    The first line is the connection file, which can be in any folder.
    """
    if program() != "kernel":  # an unattended kernel is not restarted
        return
    file = _started_file()
    with suppress(OSError):
        _write(file, "\n".join([connection_file(), *(device.identity for device in devices)]))
        for other in file.parent.glob("*.json"):  # not those that another kernel is writing
            connection = os.fsdecode(_read(other) or b"").partition("\n")[0]
            if not os.path.exists(connection):  # noqa: PTH110 - pathlib raises an error for what is no path
                other.unlink()


def remembered() -> frozenset[str]:
    """Return the identities of the GPUs that this kernel had after its previous start; empty if unknown."""
    with suppress(OSError):
        if program() == "kernel" and (raw := _read(_started_file())):
            return frozenset(raw.decode("utf-8", "replace").split("\n")[1:])
    return frozenset()


def _started_file() -> Path:
    return Path(f"{saved_choices_folder()}_started", Path(connection_file()).name)


def _write(file: Path, text: str) -> None:
    """Write a file atomically. Raise PermissionError if its folder belongs to another user."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _belongs_to_user(file.parent.lstat()):
        raise PermissionError(f"{file.parent} belongs to another user")
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(os.fsencode(text))
    new.replace(file)


def _read(file: Path) -> bytes | None:
    """Return the content of a regular file of this user, else None. Raises OSError if there is no file."""
    # Don't wait for the writer of a pipe, and don't follow a link. Windows has no such flags.
    safely = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | safely), "rb") as opened:
            about = os.fstat(opened.fileno())
            is_safe = stat.S_ISREG(about.st_mode) and _belongs_to_user(about)
            return opened.read(_MOST_BYTES) if is_safe else None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return None


def remove_expired() -> None:
    """Remove choices that this user's kernels saved and never used. Leave a folder of another user alone."""
    folder = Path(saved_choices_folder())
    with suppress(OSError):
        about = folder.lstat()
        for file in folder.iterdir() if stat.S_ISDIR(about.st_mode) and _belongs_to_user(about) else ():
            with suppress(OSError):
                if abs(time.time() - file.lstat().st_mtime) > _EXPIRES_AFTER:
                    file.unlink()


def _belongs_to_user(about: os.stat_result) -> bool:
    return sys.platform == "win32" or about.st_uid == os.geteuid()
