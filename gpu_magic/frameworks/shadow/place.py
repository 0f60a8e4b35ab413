"""Says what an error is and where it was raised: in the user's own line, else in a library's."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.frameworks.shadow.code import is_installed_file, is_users_file
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["described", "place_of"]

_LONGEST = 200  # characters of a message, and of a line
_FOLDERS = sorted({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}, key=len)[::-1]


def described(error: BaseException) -> str:
    """Return an error's type and its message, in one line: `ValueError: no such column`."""
    message = shortened(" ".join(str(error).split()), _LONGEST).rstrip(".")
    return f"{type(error).__name__}{f': {message}' if message else ''}"


def place_of(frames: TracebackType | None, plumbing: tuple[str, ...] = ()) -> str:
    """Return the last line of the user's in a traceback: `, in line 3 of train_step: if loss.item() > 1:`.

    Parameters
    ----------
    frames
        The traceback.
    plumbing
        Beginnings of file names below site-packages, `torch/_ops.py`: their lines tell nothing. Where no line
        is the user's, it is the last one of a library's that is in no such file.

    Returns
    -------
    str
        The place after a comma, and a full stop where no line of code ends it; a full stop alone where there
        is none.

    """
    walked = [(frame, number, frame.f_code.co_filename) for frame, number in traceback.walk_tb(frames)]
    own = [one for one in walked if is_users_file(one[2])]
    found = own or [
        one for one in walked if is_installed_file(one[2]) and not _inside(one[2]).startswith(plumbing)
    ]
    if not found:
        return "."
    frame, number, file = found[-1]
    line = linecache.getline(file, number, frame.f_globals).strip()
    name = frame.f_code.co_name
    of = f" of {name}" if name.isidentifier() else ""
    if not own:
        of += f" {'in' if of else 'of'} {_inside(file)}"
    return f", in line {number}{of}{f': {shortened(line, _LONGEST)}' if line else '.'}"


def _inside(file: str) -> str:
    """Return the name of an installed file without the folder that packages are installed in."""
    folder = next((one for one in _FOLDERS if Path(file).is_relative_to(one)), None)
    return file if folder is None else Path(file).relative_to(folder).as_posix()
