"""A choice that is kept for the next start of this very kernel: in a file beside its connection file.

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
from gpu_magic.kernel import kept_file
from gpu_magic.selection.options import Options
from gpu_magic.session import current

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_magic.choice import Choice

__all__ = ["keep", "resume"]

_SECONDS = 600.0
_NOT_APPLIED = "The choice that was saved before the restart was not applied"


def keep(wanted: str, options: Options, *, dry_run: bool = False) -> Choice:
    """Choose where that can still take effect; where it can't, keep the choice for the next start.

    Parameters
    ----------
    wanted, options
        As for `Session.choose`.
    dry_run
        Decide, and change nothing.

    Returns
    -------
    Choice
        Its `refusal` is empty where no restart is needed.

    Raises
    ------
    ChoiceError
        For GPUs that can't be chosen, or where there is no kernel to restart; nothing was changed.

    """
    choice = current().choose(wanted, options, dry_run=dry_run)
    if not choice.refusal:
        return choice
    file = kept_file()
    if file is None:
        raise ChoiceError(
            f"This is no Jupyter kernel, so it can't be restarted from here: leave, and start again with "
            f"%gpus {wanted}."
        )
    if dry_run:
        return choice
    try:
        _tidy(file.parent)
        _drop()
        if not choice.is_reset:
            names = ",".join(str(device.uuid) for device in choice.devices) or "none"
            kept = {"file": file.name, "saved": time.time(), "wanted": names, "options": asdict(options)}
            _write(file, json.dumps(kept))
    except OSError as error:
        raise ChoiceError(
            f"The choice can't be kept for a restart, so nothing was changed: {error}."
        ) from None
    return choice


def _drop() -> None:
    """Forget what is kept."""
    if file := kept_file():
        file.unlink(missing_ok=True)


def resume() -> str:
    """Apply what is kept for this kernel, once; return what became of it, as text."""
    file = kept_file()
    try:
        raw = file.read_bytes() if file else b""
        _drop()
    except OSError as error:
        return f"{_NOT_APPLIED}: {error}."
    try:
        kept: dict[str, Any] = json.loads(raw)
        age, wanted, options = time.time() - kept["saved"], str(kept["wanted"]), Options(**kept["options"])
        is_ours = file is not None and kept["file"] == file.name
    except (ValueError, TypeError, KeyError):
        return f"{_NOT_APPLIED}: its file can't be read."
    if not is_ours:
        return f"{_NOT_APPLIED}: it was saved for another kernel."
    if not -_SECONDS < age < _SECONDS:  # a clock can be set back
        return f"{_NOT_APPLIED}, as it is older than {_SECONDS / 60:.0f} minutes: %gpus chooses again."
    if current().has_chosen:
        return f"{_NOT_APPLIED}, as another choice was made since."
    try:
        choice = current().choose(wanted, options)
    except GpuMagicError as error:
        return f"{_NOT_APPLIED}: {error}"
    if choice.refusal:
        return f"{_NOT_APPLIED}. {choice.refusal}"
    return f"As chosen before the restart:\n{choice}"


def _tidy(folder: Path) -> None:
    """Remove what other kernels have kept and not used. The folder can hold anything else, too."""
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
