"""The choice of this process: the one place with state and side effects.

Environment variables change here and nowhere else, and what was changed can be put back.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpu_magic.cuda.watch import Watch

if TYPE_CHECKING:
    from gpu_magic.choice import Choice
    from gpu_magic.cuda.guard import Guard
    from gpu_magic.devices.model import Inventory, KernelView, Unknown
    from gpu_magic.devices.nvml import Nvml
    from gpu_magic.selection.choose import By, Order, Selection
    from gpu_magic.selection.request import Request

__all__ = ["Session", "current"]

MASK, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
# PyTorch reads it at every call of torch.cuda.is_available(), which without it calls cuInit and so
# freezes the process (torch 2.13, torch/cuda/__init__.py).
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


class Session:
    """What one process was given, what it chose, and whether that can still change."""

    def __init__(self) -> None:
        launched = _launch_environment()
        self.inherited = launched.get(MASK), launched.get(ORDER)
        self.watch = Watch(_started)
        self._nvml: Nvml | None = None
        self._before: dict[str, str | None] = {}
        self._ours: dict[str, str | None] = {}
        self._chosen: Request | None = None

    def load(self, shell: Any) -> None:
        """Begin to watch an IPython shell's cells."""
        if NVML_CHECK not in os.environ:
            self._set(NVML_CHECK, "1")
        self.watch.begin(shell)

    def unload(self) -> list[str]:
        """Stop watching and put back what was set; return the names of the variables that changed."""
        self.watch.end()
        can_change = self.watch.see().can_change
        # A mask that CUDA has read stays: taking it away would only set frameworks against each other.
        names = [name for name in self._before if can_change or name not in (MASK, ORDER)]
        # What somebody else has changed since is theirs.
        names = [name for name in names if os.environ.get(name) == self._ours[name]]
        changed = [name for name in names if self._before[name] != self._ours[name]]
        for name in names:
            _put(name, self._before[name])
        self._before.clear()
        self._ours.clear()
        self._chosen = None
        if self._nvml is not None:
            self._nvml.close()
        return changed

    def gpus(self) -> Inventory:
        """Read the machine, and what this process makes of it."""
        inventory = self._read()
        return replace(inventory, kernel=self._view(inventory))

    def guard(self) -> Guard:
        """Ask whether a choice can still take effect."""
        return self._judge(self._read())

    def choose(
        self,
        text: str,
        *,
        by: By | None = None,
        order: Order = "pci",
        dry_run: bool = False,
        force: bool = False,
    ) -> Choice:
        """Choose GPUs: see `gpu_magic.choose`. A frozen process gets a refusal and keeps all as it was."""
        from gpu_magic.choice import Choice
        from gpu_magic.frameworks import imported
        from gpu_magic.selection.choose import choose as decide
        from gpu_magic.selection.request import Reset, parse

        request = parse(text)
        inventory = self._read()
        selection = decide(request, inventory, self.inherited, by=by, order=order, force=force)
        answer = Choice(
            selection,
            is_applied=not dry_run,
            is_dry_run=dry_run,
            is_reset=isinstance(request, Reset),
            is_simulated=bool(inventory.simulated),
        )
        if not self.watch.see().can_change:
            guard = self._judge(inventory)
            if have := self._have_already(request, selection, guard):
                return replace(answer, selection=have, is_applied=True, is_dry_run=False)
            lines = [(framework.name, framework.line_for) for framework in imported()]
            typed = "" if answer.is_reset else f"%gpus {text.strip()}"
            refusal = guard.refusal(_devices(selection), typed, lines)
            return replace(answer, is_applied=False, refusal=refusal)
        if not dry_run:
            self._set(MASK, selection.mask)
            self._set(ORDER, selection.order)
            self._chosen = request
        return answer

    def _have_already(self, request: Request, selection: Selection, guard: Guard) -> Selection | None:
        """Return what a frozen process has, where that is what is asked for."""
        from gpu_magic.selection.request import Auto

        if tuple(str(device.uuid) for device in _devices(selection)) == guard.uuids:
            return selection
        had = tuple(device for device in guard.devices if not isinstance(device, str))
        # "The least busy one" is another one by now; running the cell again asks for nothing new.
        if isinstance(request, Auto) and request == self._chosen and len(had) == len(guard.devices):
            return replace(selection, devices=had, mask=os.environ.get(MASK), order=os.environ.get(ORDER))
        return None

    def _read(self) -> Inventory:
        if self._nvml is None:
            from gpu_magic.devices.nvml import Nvml

            self._nvml = Nvml()
        return self._nvml.inventory()

    def _judge(self, inventory: Inventory) -> Guard:
        from gpu_magic.cuda.driver import look
        from gpu_magic.cuda.guard import judge

        return judge(look(self.watch.see()), self.watch.first, inventory)

    def _view(self, inventory: Inventory) -> KernelView:
        from gpu_magic.devices.model import UNKNOWN, KernelView
        from gpu_magic.selection.mask import read

        guard = self._judge(inventory)
        mask, order = os.environ.get(MASK), os.environ.get(ORDER)
        reading = read(mask, inventory, order)
        notes = list(reading.notes)
        names: dict[str, str] | Unknown = UNKNOWN
        if not guard.can_change:
            names = {uuid: f"cuda:{place}" for place, uuid in enumerate(guard.uuids)}
            if reading.devices is not UNKNOWN and tuple(one.uuid for one in reading.devices) != guard.uuids:
                notes.append(
                    f"{MASK} was changed after CUDA had read it: this process stays with {guard.frozen_to}, "
                    "while frameworks may go by the new one, as processes started from here will."
                )
        elif reading.devices is not UNKNOWN:
            names = {str(device.uuid): f"cuda:{place}" for place, device in enumerate(reading.devices)}
        return KernelView(
            self.inherited[0], mask, order, names, guard.state.value, guard.sentence, tuple(notes)
        )

    def _set(self, name: str, value: str | None) -> None:
        self._before.setdefault(name, os.environ.get(name))
        self._ours[name] = value
        _put(name, value)


_current: Session | None = None


def current() -> Session:
    """Return this process's session; the first call makes it."""
    global _current  # noqa: PLW0603 - a process has one environment, so it has one session
    if _current is None:
        _current = Session()
    return _current


def _started() -> list[str]:
    from gpu_magic.frameworks import started

    return started()


def _devices(selection: Selection) -> tuple[Any, ...]:
    return selection.devices if isinstance(selection.devices, tuple) else ()


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _launch_environment() -> dict[str, str]:
    """Return the environment this process was started with, whatever was set since (Linux: /proc).

    Elsewhere, and where a program has overwritten it (setproctitle does), it is the environment of now.
    """
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environ)
    pairs = [entry.partition(b"=") for entry in entries if entry]
    if not pairs or not all(equals for _, equals, _ in pairs):
        return dict(os.environ)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
