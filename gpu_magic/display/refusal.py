"""What a choice that came too late says: why, and what works instead."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from gpu_magic.devices.model import Gpu
from gpu_magic.process.guard import label_of
from gpu_magic.process.state import State
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.process.outcome import Refused

__all__ = ["RefusalBlock", "refusal_text"]

_STYLE = (
    "border-left:4px solid var(--jp-warn-color0,#c77f1a);padding:6px 12px;margin:4px 0;"
    "white-space:pre-wrap;font-family:inherit;background:none;color:inherit"
)


class RefusalBlock:
    """A refusal as one readable block, in a notebook and in a terminal."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return f"CudaInitializedWarning: {self._text}"

    def _repr_html_(self) -> str:
        return f"<pre style='{_STYLE}'><b>Too late for this choice.</b>\n{html.escape(self._text)}</pre>"


def refusal_text(refused: Refused) -> str:
    """Explain why a choice was not applied, and what works instead: a few lines."""
    guard = refused.guard
    if guard.state is State.FORKED:
        return (
            f"{guard}. Nothing was changed.\n"
            f'Start workers with the "spawn" method, or fork before the first use of {guard.runtime}.'
        )
    why = f"{guard.runtime} was {guard.seen}, and this process keeps {guard.frozen_to}. Nothing was changed."
    return "\n".join([why, *_without_a_restart(refused), _with_a_restart(refused)])


def _without_a_restart(refused: Refused) -> Iterator[str]:
    """Say which of the GPUs the process has already, and how to work on it."""
    ordinal = refused.ordinal
    if ordinal is None:
        return
    device = refused.guard.devices[ordinal]
    ordinals = refused.guard.ordinals(refused.devices)
    labels = listed(label_of(refused.guard.devices[one]) for one in ordinals)
    verb, names = "is" if len(ordinals) == 1 else "are", listed(f"cuda:{one}" for one in ordinals)
    has = f"{labels} {verb} already visible here, as {names}."
    if len(ordinals) == len(refused.devices) == len(refused.guard.devices):
        has = f"The order alone differs: {has}"
    if not refused.statements:
        yield has
        return
    yield f"{has} To work on {label_of(device)} without a restart:"
    for name, statement in refused.statements:
        yield f"  {name}: {statement}"
    number = device.number_text if isinstance(device, Gpu) else refused.guard.uuids[ordinal]
    if refused.program == "python":
        block, onwards = f"with gpu_magic.on_gpu({ordinal})", f"gpu_magic.choose({number!r}, in_process=True)"
        yield f"  any framework: {block} for a block, {onwards} from here on"
    else:
        yield f"  any framework: %%on_gpu {ordinal} for one cell, %gpus {number} --in-process from here on"


def _with_a_restart(refused: Refused) -> str:
    """Say how to have it after a restart, of which only a kernel is capable by itself."""
    kinds = {"kernel": "restart the kernel", "unattended kernel": "start the notebook anew"}
    restart = kinds.get(refused.program, "start Python anew")
    if refused.is_reset:
        return f"To go back to what this process was started with: {restart}."
    labels = listed(device.label for device in refused.devices)
    wish = f"To have exactly {labels}" if labels else "To have no GPU"
    typed = f"%gpus {refused.request}{refused.options}"
    if refused.program == "python":
        options = ", …" if str(refused.options) else ""
        typed = f"gpu_magic.choose({refused.request!r}{options})"
    again = f"{restart} and run {typed} before anything starts {refused.guard.runtime}"
    return f"{wish}: {typed} --restart, or {again}." if refused.program == "kernel" else f"{wish}: {again}."
