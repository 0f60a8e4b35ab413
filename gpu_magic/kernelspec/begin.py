"""Chooses GPUs as a kernel starts: those that its notebook asks for, else those of its kernelspec.

A kernel always starts. If it can't have its GPUs it has none, and its first cell says why.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.binding import HUNG_DRIVER
from gpu_magic.devices.call_timeout import HUNG
from gpu_magic.errors import ChoiceError, GpuMagicError, NotFreeError
from gpu_magic.gpus.apply import apply
from gpu_magic.gpus.auto import held_by
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.request import Auto, parse
from gpu_magic.interrupts import unasked
from gpu_magic.process.environment import variables_now
from gpu_magic.process.mask import MASK
from gpu_magic.process.session import current
from gpu_magic.process.view import read_machine
from gpu_magic.restart.saved import remember, remembered
from gpu_magic.shell.arguments import read
from gpu_magic.shell.extension import print_in_first_cell
from gpu_magic.text import listed, nearest_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.gpus.choice import Choice
    from gpu_magic.process.session import Session

__all__ = ["begin", "read_request"]

# The options of a choice that nobody watches, and of a notebook's metadata.
_OPTIONS = ("order", "growth", "memory_limit", "only_free", "min_free", "model")
_DRIVER_SECONDS, _LOOK_SECONDS = 5.0, 0.1
_MOST_BYTES = 64 << 20  # of a notebook that is read for what it asks


def begin(shell: Any, typed: str, *, is_plain: bool = False) -> None:
    """Load the extension, and choose what is typed after `%gpus`, or what was chosen before a restart."""
    says: list[str] = []
    if not is_plain:
        try:
            shell.extension_manager.load_extension("gpu_magic")
        except Exception as error:  # noqa: BLE001 - of IPython's configuration: the kernel starts
            says.append(f"gpu_magic is not loaded: {error}")
    session = current()
    if session.chosen is None:
        with unasked():
            says += _choose(session, typed)
    session.begun_with = variables_now()
    if says:
        print_in_first_cell(shell, "\n".join(says))


def read_request(typed: str) -> tuple[str, Options]:
    """Return the GPUs and options that are typed after `%gpus`; raise GpuMagicError if they can't be read.

    `auto` picks GPUs that nobody uses: a kernel that starts does not take memory from anybody.
    """
    values = vars(read("%gpus", typed))
    request = values.pop("request")
    for name, value in values.items():
        if value and name not in _OPTIONS:
            raise ChoiceError(f"--{name.replace('_', '-')} does not work when a kernel starts. Omit it.")
    is_auto = isinstance(parse(request), Auto)
    options = {name: values[name] for name in _OPTIONS}
    return request, Options(**options | {"only_free": is_auto or values["only_free"]})


def _choose(session: Session, typed: str) -> Iterator[str]:
    """Choose, and yield what the first cell says."""
    try:
        typed = _typed_by_notebook() or typed
    except GpuMagicError as error:
        yield f"Ignored the notebook's metadata: {error}"
    before = remembered()
    _wait_for_driver(session)
    try:
        request, options = read_request(typed)
        choice = apply(session, request, options, preferred=before, is_start=True)
    except NotFreeError as error:
        waits = f"%gpus {request}{options.filters.removeprefix(' --only-free')} --wait 30m"
        yield f"This kernel started without a GPU. Not free: {error.holders}. To wait: {waits}"
    except GpuMagicError as error:
        yield f"This kernel started without a GPU. {error}"
    else:
        if choice.too_late:
            yield str(choice.too_late)
        elif isinstance(parse(request), Auto):
            yield from _changed(session, choice, before)
            remember(choice.devices)
        else:
            yield from choice.warnings
        return
    try:
        apply(session, "none")
    except GpuMagicError:  # the driver does not answer, and may do so once a framework is imported
        session.environment.set(MASK, "")


def _wait_for_driver(session: Session) -> None:
    """Wait until the driver has started; without persistence mode it starts with its first user."""
    end = time.monotonic() + _DRIVER_SECONDS
    while time.monotonic() < end:
        machine = session.reader.inventory()
        if machine.problem != HUNG_DRIVER and all(gpu.problem != HUNG for gpu in machine.gpus):
            return
        time.sleep(_LOOK_SECONDS)


def _changed(session: Session, choice: Choice, before: frozenset[str]) -> Iterator[str]:
    """Say which GPUs a restarted kernel had, and who has them now, if they are others."""
    lost = before - {str(device.uuid) for device in choice.devices}
    there = [device for device in read_machine(session).devices if str(device.uuid) in lost] if lost else ()
    if there:
        had = listed(f"{device.label} ({held_by(device) or 'not free'})" for device in there)
        now = listed(device.label for device in choice.devices)
        yield f"Before its restart this kernel had {had}. Now it has {now}."


def _typed_by_notebook() -> str:
    """Return what a notebook's metadata asks for, as it is typed after `%gpus`; empty for nothing.

    The Jupyter server names the notebook in JPY_SESSION_NAME (jupyter_server 2, `get_kernel_env`).
    """
    path = Path(os.environ.get("JPY_SESSION_NAME", ""))
    try:
        if path.suffix != ".ipynb" or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return ""
        raw = path.read_bytes()
    except OSError:
        return ""
    if b'"gpu_magic"' not in raw:
        return ""
    try:
        asked = json.loads(raw)["metadata"].get("gpu_magic")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ChoiceError("the notebook is not valid JSON") from None
    if asked is None:
        return ""
    if not isinstance(asked, dict) or not all(isinstance(one, str | int) for one in asked.values()):
        raise ChoiceError('write "gpu_magic" as {"gpus": "auto:1", "min_free": "20GB"}')
    words = [str(asked.get("gpus", "auto"))]
    for name, value in asked.items():
        if name not in ("gpus", *_OPTIONS):
            near = nearest_option(name, ("gpus", *_OPTIONS))
            raise ChoiceError(
                f'"gpu_magic" has no "{name:.40}".' + (f' Did you mean "{near}"?' if near else "")
            )
        if name != "gpus" and value is not False:
            words.append(f"--{name.replace('_', '-')}{'' if value is True else f' {value}'}")
    return " ".join(words)
