"""A choice saved for the next start of this kernel, in a file beside its connection file.

It is used once, expires, and names GPUs by UUID, as their numbers can change.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import ChoiceError, GpuMagicError
from gpu_magic.process.choosing import apply
from gpu_magic.process.session import current
from gpu_magic.restart.kernel import saved_choice_file
from gpu_magic.selection.options import Options

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_magic.process.outcome import Applied, Refused

__all__ = ["NOT_APPLIED", "resume", "save"]

_EXPIRES_AFTER = 600.0  # seconds
NOT_APPLIED = "The choice that was saved before the restart was not applied"


def save(refused: Refused) -> None:
    """Save a choice that came too late, for the next start of this kernel.

    After a dry run, nothing is written; whether there is a kernel to restart is still checked.

    Raises
    ------
    ChoiceError
        There is no kernel to restart, or the file can't be written; nothing was changed.

    """
    file = saved_choice_file()
    if file is None:
        raise ChoiceError(
            f"This is not a Jupyter kernel, so it can't be restarted from here: exit, and start again with "
            f"%gpus {refused.request or 'reset'}."
        )
    if refused.is_dry_run:
        return
    try:
        _remove_expired(file.parent)
        file.unlink(missing_ok=True)
        if not refused.is_reset:
            uuids = ",".join(str(device.uuid) for device in refused.devices) or "none"
            options = asdict(refused.options)
            saved = {"file": file.name, "saved": time.time(), "request": uuids, "options": options}
            _write(file, json.dumps(saved))
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
    raw = file.read_bytes() if file else b""
    if file:
        file.unlink(missing_ok=True)
    try:
        saved: dict[str, Any] = json.loads(raw)
        age, request = time.time() - saved["saved"], str(saved["request"])
        options = Options(**saved["options"])
        is_for_us = file is not None and saved["file"] == file.name
    except (ValueError, TypeError, KeyError):
        raise ChoiceError("its file can't be read.") from None
    if not is_for_us:
        raise ChoiceError("it was saved for another kernel.")
    if not -_EXPIRES_AFTER < age < _EXPIRES_AFTER:  # negative where the clock was set back
        raise ChoiceError(f"it is older than {_EXPIRES_AFTER / 60:.0f} minutes: %gpus chooses again.")
    return request, options


def _remove_expired(folder: Path) -> None:
    """Remove expired choices of other kernels. The folder can hold other files of the same name pattern."""
    for file in folder.glob("gpu_magic-kernel-*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if time.time() - json.loads(file.read_bytes())["saved"] > _EXPIRES_AFTER:
                file.unlink()


def _write(file: Path, text: str) -> None:
    """Write the whole file or nothing, readable by its owner only."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    new.replace(file)
