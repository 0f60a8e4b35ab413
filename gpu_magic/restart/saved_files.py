"""The files that choices are saved in: none but a file of this user's is read, and none stays for long.

They are small, and used once. Whatever else stands in the place of one (a pipe, a symbolic link, another
user's file) is removed unread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from pathlib import Path

from gpu_magic import process
from gpu_magic.errors import ChoiceError

__all__ = ["EXPIRES_AFTER", "is_there", "remove_expired", "take", "write"]

EXPIRES_AFTER = 600.0  # seconds

_MOST_BYTES = 1 << 16
# A pipe is opened without waiting for a writer, and a symbolic link not followed. Windows has no such flags.
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NOT_OURS = "what stands in the place of its file is not a file of this user's."


def is_there(file: Path | None) -> bool:
    """Return whether anything stands in the place of a file."""
    return file is not None and os.path.lexists(file)


def write(file: Path, text: str) -> None:
    """Write the whole file or nothing, readable by its owner only.

    Raises
    ------
    OSError
        It can't be written.

    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_own(file.parent.lstat()):
        raise PermissionError(f"{file.parent} belongs to another user")
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    new.replace(file)


def take(file: Path) -> bytes:
    """Return what stands in a file, and remove it.

    Raises
    ------
    ChoiceError
        It is not a regular file of this user's.
    OSError
        It can't be read, or not be removed.

    """
    try:
        handle = os.open(file, os.O_RDONLY | _SAFELY)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ChoiceError(_NOT_OURS) from None
        raise
    else:
        with os.fdopen(handle, "rb") as opened:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode) or not _is_own(about):
                raise ChoiceError(_NOT_OURS)
            return opened.read(_MOST_BYTES)
    finally:
        file.unlink(missing_ok=True)


def remove_expired() -> None:
    """Remove what kernels of this user have saved and never used."""
    for file in _all_in(Path(process.saved_choices_folder())):
        with contextlib.suppress(OSError):
            if abs(time.time() - file.lstat().st_mtime) > EXPIRES_AFTER:
                file.unlink()


def _all_in(folder: Path) -> list[Path]:
    """Return what is in the folder of saved choices; nothing where it is another user's, or a link to one."""
    try:
        about = folder.lstat()
        return list(folder.iterdir()) if stat.S_ISDIR(about.st_mode) and _is_own(about) else []
    except OSError:
        return []


def _is_own(about: os.stat_result) -> bool:
    return sys.platform == "win32" or about.st_uid == os.geteuid()
