"""A choice that is saved for the next start of this very kernel: in a file beside its connection file.

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

_SECONDS = 600.0
NOT_APPLIED = "The choice that was saved before the restart was not applied"


def save(refused: Refused) -> None:
    """Save a choice that came too late, for the next start of this kernel; after a dry run only see whether.

    Raises
    ------
    ChoiceError
        There is no kernel to restart, or the file can't be written; nothing was changed.

    """
    file = saved_choice_file()
    if file is None:
        raise ChoiceError(
            f"This is no Jupyter kernel, so it can't be restarted from here: leave, and start again with "
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
            saved = {"file": file.name, "saved": time.time(), "wanted": uuids, "options": options}
            _write(file, json.dumps(saved))
    except OSError as error:
        raise ChoiceError(
            f"The choice can't be kept for a restart, so nothing was changed: {error}."
        ) from None


def resume() -> Applied | Refused:
    """Apply what is saved for this kernel, once.

    Raises
    ------
    ChoiceError
        It was not applied: why.

    """
    try:
        outcome = apply(current(), *_take())
    except OSError as error:
        raise ChoiceError(f"{NOT_APPLIED}: {error}.") from None
    except GpuMagicError as error:
        raise ChoiceError(f"{NOT_APPLIED}: {error}") from None
    return outcome


def _take() -> tuple[str, Options]:
    """Read what is saved for this kernel, and remove it."""
    file = saved_choice_file()
    raw = file.read_bytes() if file else b""
    if file:
        file.unlink(missing_ok=True)
    try:
        saved: dict[str, Any] = json.loads(raw)
        age, wanted = time.time() - saved["saved"], str(saved["wanted"])
        options = Options(**saved["options"])
        is_ours = file is not None and saved["file"] == file.name
    except (ValueError, TypeError, KeyError):
        raise ChoiceError("its file can't be read.") from None
    if not is_ours:
        raise ChoiceError("it was saved for another kernel.")
    if not -_SECONDS < age < _SECONDS:  # a clock can be set back
        raise ChoiceError(f"it is older than {_SECONDS / 60:.0f} minutes: %gpus chooses again.")
    if current().chosen is not None:
        raise ChoiceError("another choice was made since.")
    return wanted, options


def _remove_expired(folder: Path) -> None:
    """Remove what other kernels have saved and not used. The folder can hold anything else, too."""
    for file in folder.glob("gpu_magic-kernel-*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if time.time() - json.loads(file.read_bytes())["saved"] > _SECONDS:
                file.unlink()


def _write(file: Path, text: str) -> None:
    """Write it whole or not at all, for nobody else to read."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    new.replace(file)
