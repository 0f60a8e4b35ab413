"""Chooses GPUs when a kernel starts: those that its notebook asks for, else those of its kernelspec.

A kernel always starts. If it can't get its GPUs, it gets none, and its first cell prints why.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.problems import Cause, GpuCause
from gpu_magic.errors import ChoiceError, GpuMagicError, NotFreeError
from gpu_magic.gpus.apply import Asked, apply, log_refusal, pick_unclaimed
from gpu_magic.gpus.auto import held_by
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.request import Auto, Word, normalize_request, parse
from gpu_magic.gpus.select import check_options
from gpu_magic.interrupts import in_background
from gpu_magic.option_table import CHOICE, Kind
from gpu_magic.process.environment import variables_now
from gpu_magic.process.mask import MASK
from gpu_magic.process.session import current
from gpu_magic.process.view import read_machine
from gpu_magic.restart.saved import remember, remembered
from gpu_magic.shell.arguments import read
from gpu_magic.shell.extension import print_in_first_cell
from gpu_magic.text import listed, nearest_option, shortened, simulated_title

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.model import Inventory
    from gpu_magic.gpus.choice import Choice
    from gpu_magic.process.session import Session

__all__ = ["begin", "read_request"]

# The options that work when a kernel starts, by their names in a notebook's metadata.
_OPTIONS = {name: one for name, one in CHOICE.items() if one.at_start}
_DRIVER_SECONDS, _LOOK_SECONDS = 5.0, 0.1
_LONGEST_NAME = 60  # characters
_MOST_BYTES = 64 << 20  # the largest notebook whose metadata is read


def begin(shell: Any, typed: str, *, is_plain: bool = False) -> None:
    """Load the extension, and choose the typed GPUs unless a choice saved before a restart was applied."""
    says: list[str] = []
    if not is_plain:
        try:
            shell.extension_manager.load_extension("gpu_magic")
        except Exception as error:  # noqa: BLE001 - an invalid configuration must not stop the kernel
            says.append(f"gpu_magic is not loaded: {error}")
    session = current()
    if session.chosen is None:
        with in_background():
            says += _choose(session, typed)
    session.begun_with = variables_now()
    if says:
        says += filter(None, [simulated_title(session.reader.simulated)])
        print_in_first_cell(shell, "\n".join(says))


def read_request(typed: str) -> tuple[str, Options]:
    """Return the GPUs and options typed after `%gpus`. Raise GpuMagicError if no kernel starts with them."""
    values = vars(read("%gpus", typed))
    request = values.pop("request")
    for name, value in values.items():
        if value and name not in _OPTIONS:
            raise ChoiceError(f"--{name.replace('_', '-')} does not work when a kernel starts. Omit it.")
    return request, _with_free(request, Options.of(values))


def _with_free(request: str, options: Options) -> Options:
    """Return the options of a choice. `auto` picks only free GPUs, because nobody watches the start."""
    asked = parse(request)
    if asked is Word.RESET:
        raise ChoiceError("Without a choice a kernel starts as after reset.", ways=["auto", "all", "none"])
    check_options(asked, options)
    return options._replace(only_free=True) if isinstance(asked, Auto) else options


def _choose(session: Session, typed: str) -> Iterator[str]:
    """Choose GPUs, and yield the lines that the first cell prints."""
    asked = None
    try:
        asked = _asked_by_notebook()
    except GpuMagicError as error:
        yield f"Ignored the notebook's metadata: {error}"
    before = remembered()
    try:
        machine = _machine_once_started(session)
        request, options = asked or read_request(typed)
        typed = f"{request}{options.without('only_free')}"
        choice = _pick(session, Asked(parse(request), options, request, preferred=before), machine)
    except NotFreeError as error:
        holders = f"GPU {request} ({error.holders})" if request.isdecimal() else error.holders
        yield f"This kernel started without a GPU. Not free: {holders}. To wait: %gpus {typed} --wait 30m"
    except GpuMagicError as error:
        yield f"This kernel started without a GPU. %gpus {typed}: {error}"
    else:
        if choice.too_late:
            yield str(choice.too_late)
        elif isinstance(parse(request), Auto):
            yield from _changed(machine, choice, before)
            remember(choice.devices)
        else:
            yield from choice.warnings
        return
    try:
        apply(session, "none")
    except GpuMagicError:  # the machine can't be read now, but a framework may still find GPUs
        session.environment.set(MASK, "")


def _pick(session: Session, asked: Asked, machine: Inventory) -> Choice:
    """Choose by one look at the machine, because three would delay the start."""
    try:
        return pick_unclaimed(session, asked, machine)
    except ChoiceError as error:
        log_refusal(error)
        raise


def _machine_once_started(session: Session) -> Inventory:
    """Read the machine when the driver has started. Without persistence mode, its first user starts it."""
    end = time.monotonic() + _DRIVER_SECONDS
    while True:
        machine = read_machine(session)
        is_hanging = machine.problem is not None and machine.problem.cause is Cause.HUNG
        is_hanging |= GpuCause.HUNG in [gpu.problem.cause for gpu in machine if gpu.problem]
        if not is_hanging or time.monotonic() >= end:
            return machine
        time.sleep(_LOOK_SECONDS)


def _changed(machine: Inventory, choice: Choice, before: frozenset[str]) -> Iterator[str]:
    """Yield which GPUs a restarted kernel has lost, and who has them now."""
    lost = before - {device.identity for device in choice.devices}
    if there := [device for device in machine.devices if device.identity in lost]:
        had = listed(f"{device.label} ({held_by(device) or 'not free'})" for device in there)
        now = listed(device.label for device in choice.devices)
        yield f"Before its restart this kernel had {had}. Now it has {now}."


def _asked_by_notebook() -> tuple[str, Options] | None:
    """Return the GPUs and options that a notebook's metadata asks for; None if it asks for none."""
    asked = _metadata()
    if asked is None:
        return None
    if not isinstance(asked, dict):
        raise ChoiceError('write "gpu_magic" as {"gpus": "auto:1", "min_free": "20GB"}')
    request = asked.pop("gpus", "auto")
    if isinstance(request, bool) or not isinstance(request, str | int | list):
        raise ChoiceError(f'"gpus" is {json.dumps(request):.40}. Write "auto:1" or [2, 0]')
    for name, value in asked.items():
        if name not in _OPTIONS:
            near = nearest_option(name, ("gpus", *_OPTIONS))
            instead = f'Did you mean "{near}"?' if near else f"It has {listed(('gpus', *_OPTIONS))}."
            raise ChoiceError(f'"gpu_magic" has no "{name:.40}". {instead}')
        kind, example = _OPTIONS[name].kind, _OPTIONS[name].example
        written = "true" if kind is Kind.FLAG else example if kind is Kind.NUMBER else json.dumps(example)
        try:
            Options(**{name: value})
        except (TypeError, ChoiceError):
            raise ChoiceError(f'"{name}" is {json.dumps(value):.40}. Write {written}') from None
    request = normalize_request(request)
    return request, _with_free(request, Options(**asked))


def _metadata() -> Any:
    """Return "gpu_magic" of the notebook's metadata; None if there is none.

    The Jupyter server names the notebook in JPY_SESSION_NAME (jupyter_server 2, `get_kernel_env`). With
    jupyter_client before 8.5, a restart keeps the name of before a rename.
    """
    path = Path(os.environ.get("JPY_SESSION_NAME", ""))
    try:
        if path.suffix == ".ipynb" and path.is_absolute() and path.parent.is_dir() and not path.exists():
            name = shortened(path.name, _LONGEST_NAME)
            way = "If you renamed it, shut down its kernel and start it again."
            raise ChoiceError(f"there is no {name} any more. {way}")
        if path.suffix != ".ipynb" or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        raw = path.read_bytes()
    except OSError:
        return None
    if b'"gpu_magic"' not in raw:
        return None
    try:
        return json.loads(raw)["metadata"].get("gpu_magic")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ChoiceError("the notebook is not valid JSON") from None
