"""A choice saved for the next start of this kernel, in a file that is named like its connection file.

It is used once, expires, and names GPUs by UUID, as their numbers can change.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import ChoiceError, GpuMagicError
from gpu_magic.log import logger
from gpu_magic.process import connection_file, program
from gpu_magic.process.choosing import apply
from gpu_magic.process.session import current
from gpu_magic.restart.kernel import saved_choice_file
from gpu_magic.restart.saved_files import EXPIRES_AFTER, remove_expired, take, write
from gpu_magic.selection.options import Options

if TYPE_CHECKING:
    from gpu_magic.process.outcome import Applied, Refused

__all__ = ["NOT_APPLIED", "read_saved", "resume", "save"]

NOT_APPLIED = "The choice that was saved before the restart was not applied"
_log = logger("restart")


def save(refused: Refused) -> None:
    """Save a choice that came too late, for the next start of this kernel.

    After a dry run, nothing is written; whether there is a kernel to restart is still checked.

    Raises
    ------
    ChoiceError
        There is no kernel to restart, nobody to start it again, or the file can't be written; nothing was
        changed.

    """
    file, typed = saved_choice_file(), f"%gpus {refused.request or 'reset'}"
    if file is None:
        raise ChoiceError(
            f"This is not a Jupyter kernel, so it can't be restarted from here: exit, and start again with "
            f"{typed}."
        )
    if program() == "unattended kernel":
        raise ChoiceError(
            "--restart needs somebody to start the kernel again, and a program runs this notebook (nbclient, "
            f"papermill): place {typed} before the first cell that uses CUDA."
        )
    if refused.is_dry_run:
        return
    try:
        remove_expired()
        file.unlink(missing_ok=True)
        if not refused.is_reset:
            uuids = ",".join(str(device.uuid) for device in refused.devices) or "none"
            options = asdict(refused.options.of_named)
            saved = {"kernel": connection_file(), "saved": time.time(), "request": uuids, "options": options}
            write(file, json.dumps(saved))
            _log.info("Saved for after a restart: %s", uuids)
    except OSError as error:
        raise ChoiceError(
            f"The choice can't be saved for a restart, so nothing was changed: {error}."
        ) from None


def resume() -> Applied | Refused:
    """Apply the choice saved for this kernel, and remove it.

    Raises
    ------
    ChoiceError
        It was not applied; the message says why.

    """
    try:
        request, options = _take()
        if current().chosen is None:
            return apply(current(), request, options)
    except OSError as error:
        raise ChoiceError(f"{NOT_APPLIED}: {error}.") from None
    except GpuMagicError as error:
        raise ChoiceError(f"{NOT_APPLIED}: {error}") from None
    raise ChoiceError(f"{NOT_APPLIED}, as another choice was made since.")


def _take() -> tuple[str, Options]:
    """Return the request and the options saved for this kernel, and remove the file."""
    file = saved_choice_file()
    return read_saved(take(file) if file else b"", connection_file(), time.time())


def read_saved(raw: bytes, kernel: str, now: float) -> tuple[str, Options]:
    """Return the request and the options that a file has.

    Parameters
    ----------
    raw
        What stands in it, which can be anything.
    kernel
        The connection file of this kernel.
    now
        Seconds since the epoch.

    Raises
    ------
    ChoiceError
        It can't be read, is for another kernel, or too old; the message says it as a clause.

    """
    try:
        saved: dict[str, Any] = json.loads(raw)
        age = now - saved["saved"]
        request, options = _checked(saved["request"], Options(**saved["options"]))
        is_for_us = saved["kernel"] == kernel
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise ChoiceError("its file can't be read.") from None
    if not is_for_us:
        raise ChoiceError("it was saved for another kernel.")
    if not -EXPIRES_AFTER < age < EXPIRES_AFTER:  # negative where the clock was set back
        raise ChoiceError(f"it is older than {EXPIRES_AFTER / 60:.0f} minutes: %gpus chooses again.")
    return request, options


def _checked(request: object, options: Options) -> tuple[str, Options]:
    """Return a request and options where they are of the types that are saved; else raise TypeError."""
    if not isinstance(request, str) or not all(map(_is_option, astuple(options), astuple(Options()))):
        raise TypeError
    return request, options


def _is_option(value: object, default: object) -> bool:
    """Return whether an option with this default can have a value: a flag is True or False, and no text."""
    if default is False:
        return isinstance(value, int) and value in (0, 1)  # as `choose` takes 1 for True
    return value is None or type(value) in (str, int, float)
