"""The choice of this process: the one place with state and side effects.

Environment variables change here and nowhere else, and what was changed can be put back.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpu_magic.cuda.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpu_magic.choice import Choice
    from gpu_magic.cuda.guard import Guard
    from gpu_magic.devices.model import Device, Inventory
    from gpu_magic.devices.nvml import Nvml
    from gpu_magic.frameworks.told import Told
    from gpu_magic.selection.choose import Selection
    from gpu_magic.selection.memory import Memory
    from gpu_magic.selection.options import Options
    from gpu_magic.selection.request import Request

__all__ = ["Session", "current"]

MASK, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
# PyTorch reads it at every call of torch.cuda.is_available(), which without it calls cuInit and so
# freezes the process (torch 2.13, torch/cuda/__init__.py).
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


class Session:
    """What one process was given, what it chose, and whether that can still change.

    Parameters
    ----------
    launched
        The environment it was started with; None: find out.

    """

    def __init__(self, launched: Mapping[str, str] | None = None) -> None:
        self._launched = launched
        self.watch = Watch(_started)
        self._nvml: Nvml | None = None
        self._before: dict[str, str | None] = {}
        self._ours: dict[str, str | None] = {}
        self._chosen: Request | None = None
        self._told: Told | None = None

    @cached_property
    def inherited(self) -> tuple[str | None, str | None]:
        """The mask and its order as this process was started with; they do not change any more."""
        from gpu_magic.launched import launch_environment

        launched = launch_environment() if self._launched is None else self._launched
        return launched.get(MASK), launched.get(ORDER)

    def load(self, shell: Any) -> None:
        """Begin to watch an IPython shell's cells."""
        if NVML_CHECK not in os.environ:
            self._set(NVML_CHECK, "1")
        self.watch.begin(shell)

    def unload(self) -> list[str]:
        """Stop watching and put back what was set; return the names of the variables that changed."""
        can_change = self.watch.see().can_change
        self.watch.end()
        # The mask and its order mean something together only. One that CUDA has read stays: taking it away
        # would set frameworks against each other. One that somebody else has changed since is theirs.
        pair = [name for name in (MASK, ORDER) if name in self._before]
        if not can_change or not all(map(self._is_as_set, pair)):
            pair = []
        others = [name for name in self._before if name not in (MASK, ORDER)]
        names = [*pair, *filter(self._is_as_set, others)]
        changed = [name for name in names if self._before[name] != self._ours[name]]
        for name in names:
            _put(name, self._before[name])
        self._before.clear()
        self._ours.clear()
        if can_change:
            self._chosen = None
        if self._told is not None:
            self._told.forget()
        if self._nvml is not None:
            self._nvml.close()
        return changed

    def _is_as_set(self, name: str) -> bool:
        return os.environ.get(name) == self._ours[name]

    def gpus(self) -> Inventory:
        """Read the machine, and what this process makes of it."""
        from gpu_magic.view import view

        inventory = self._read()
        now = os.environ.get(MASK), os.environ.get(ORDER)
        return replace(inventory, kernel=view(inventory, self.inherited, now, self._judge(inventory)))

    def guard(self) -> Guard:
        """Ask whether a choice can still take effect; GPUs are read only to name what it is frozen to."""
        from gpu_magic.cuda.driver import State
        from gpu_magic.devices.model import Inventory

        return self._judge(self._read() if self.watch.see() is State.FROZEN else Inventory())

    def choose(self, text: str, options: Options | None = None, *, dry_run: bool = False) -> Choice:
        """Choose GPUs: see `gpu_magic.choose`. A frozen process gets a refusal and keeps all as it was."""
        from gpu_magic.choice import Choice
        from gpu_magic.frameworks import imported
        from gpu_magic.selection.choose import choose as decide
        from gpu_magic.selection.memory import plan
        from gpu_magic.selection.options import Options
        from gpu_magic.selection.request import Reset, parse

        request, options = parse(text), options or Options()
        inventory = self._read()
        selection = decide(request, inventory, self.inherited, options)
        memory = plan(_devices(selection), growth=options.growth, limit=options.memory_limit)
        if memory:
            self.told.check(memory)
        answer = Choice(
            selection,
            is_applied=not dry_run,
            is_dry_run=dry_run,
            is_reset=isinstance(request, Reset),
            is_simulated=bool(inventory.simulated),
            memory=str(memory),
        )
        if not self.watch.see().can_change:
            guard = self._judge(inventory)
            if have := self._have_already(request, selection, guard):
                answer = replace(answer, selection=have, is_applied=True, is_reset=False)
                if not dry_run:
                    self._set_memory(memory)
                return replace(answer, is_dry_run=dry_run and bool(memory))
            lines = [(framework.name, framework.line_for) for framework in imported()]
            typed = "" if answer.is_reset else f"%gpus {text.strip()}{options}"
            return replace(
                answer, is_applied=False, refusal=guard.refusal(_devices(selection), typed, lines), memory=""
            )
        if not dry_run:
            self._set_memory(memory)
            self._set(MASK, selection.mask)
            self._set(ORDER, selection.order)
            self._chosen = request
        return answer

    def narrow(self, text: str, options: Options, *, dry_run: bool = False) -> Choice:
        """Tell the imported frameworks to use some of the GPUs that a frozen process has: `--in-process`."""
        from gpu_magic.choice import Choice
        from gpu_magic.cuda.driver import State
        from gpu_magic.errors import ChoiceError
        from gpu_magic.selection.choose import Selection
        from gpu_magic.selection.choose import choose as decide
        from gpu_magic.selection.options import Options
        from gpu_magic.selection.request import Reset, parse

        request = parse(text)
        if options != Options():
            raise ChoiceError(f"--in-process changes no mask and no memory: leave{options} out.")
        if self.watch.see() is not State.FROZEN:
            raise ChoiceError(
                f"CUDA was not started here yet, so %gpus {text} chooses for every framework; --in-process "
                "is for later."
            )
        inventory = self._read()
        guard = self._judge(inventory)
        is_reset = isinstance(request, Reset)
        wanted = () if is_reset else _devices(decide(request, inventory, self.inherited))
        ordinals = guard.ordinals(wanted)
        if not is_reset and (not wanted or len(ordinals) < len(wanted)):
            raise ChoiceError(
                f"CUDA was {guard.seen}, and this process can use {guard.frozen_to} and no other."
            )
        said: list[str] = []
        if not dry_run:
            said = self.told.widen() if is_reset else self.told.narrow(ordinals)
        selection = Selection(wanted, os.environ.get(MASK), os.environ.get(ORDER))
        return Choice(
            selection, is_applied=not dry_run, is_dry_run=dry_run, ordinals=ordinals, told=tuple(said)
        )

    @property
    def told(self) -> Told:
        """What frameworks were told for good."""
        if self._told is None:
            from gpu_magic.frameworks.told import Told

            self._told = Told()
        return self._told

    def _set_memory(self, memory: Memory) -> None:
        """Say how much memory to take: each choice says all of it, so what an earlier one said ends."""
        if not memory and self._told is None:
            return
        variables = self.told.limit(memory)
        for name in [name for name in self._before if name not in (MASK, ORDER, NVML_CHECK, *variables)]:
            before, ours = self._before.pop(name), self._ours.pop(name)
            if os.environ.get(name) == ours:
                _put(name, before)
        for name, value in variables.items():
            self._set(name, value)

    def _have_already(self, request: Request, selection: Selection, guard: Guard) -> Selection | None:
        """Return what a frozen process has, where that is what is asked for."""
        from gpu_magic.cuda.driver import State
        from gpu_magic.selection.request import Auto, Reset

        had = tuple(device for device in guard.devices if not isinstance(device, str))
        if guard.state is not State.FROZEN or len(had) < len(guard.devices):
            return None
        is_same = isinstance(selection.devices, tuple) and _uuids(selection.devices) == _uuids(had)
        if isinstance(request, Reset) and self._chosen is None:  # nothing was ever chosen
            is_same = is_same or (os.environ.get(MASK), os.environ.get(ORDER)) == self.inherited
        # "The least busy one" is another one by now; running the cell again asks for nothing new.
        if is_same or (isinstance(request, Auto) and request == self._chosen):
            mask, order = os.environ.get(MASK), os.environ.get(ORDER)
            return replace(selection, devices=had, mask=mask, order=order, notes=())
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


@contextlib.contextmanager
def fresh(mask: str | None, order: str | None) -> Iterator[Session]:
    """Run a block in a session of its own, as if the process had been started with this mask.

    For tests: what is chosen in the block ends with it.
    """
    global _current  # noqa: PLW0603
    before = _current, os.environ.get(MASK), os.environ.get(ORDER)
    launched = {name: value for name, value in ((MASK, mask), (ORDER, order)) if value is not None}
    _current = Session(launched)
    _put(MASK, mask)
    _put(ORDER, order)
    try:
        yield _current
    finally:
        _current.unload()
        _current = before[0]
        _put(MASK, before[1])
        _put(ORDER, before[2])


def _started() -> list[str]:
    from gpu_magic.frameworks import started

    return started()


def _devices(selection: Selection) -> tuple[Device, ...]:
    return selection.devices if isinstance(selection.devices, tuple) else ()


def _uuids(devices: tuple[Device, ...]) -> tuple[str, ...]:
    return tuple(str(device.uuid) for device in devices)


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
