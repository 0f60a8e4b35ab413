"""The choice of this process: the one place with state and side effects."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpu_magic.cuda.watch import Watch
from gpu_magic.variables import Variables, put

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpu_magic.choice import Choice
    from gpu_magic.cuda.driver import State
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
        self._variables = Variables()
        self._chosen: Request | None = None
        self._told: Told | None = None

    @cached_property
    def inherited(self) -> tuple[str | None, str | None]:
        """The mask and its order as this process was started with; they do not change any more."""
        from gpu_magic.launched import launch_environment

        launched = launch_environment() if self._launched is None else self._launched
        return launched.get(MASK), launched.get(ORDER)

    @property
    def has_chosen(self) -> bool:
        """Whether a choice was made in this process."""
        return self._chosen is not None

    def load(self, shell: Any) -> None:
        """Begin to watch an IPython shell's cells."""
        if NVML_CHECK not in os.environ:
            self._variables.set(NVML_CHECK, "1")
        self.watch.begin(shell)

    def unload(self) -> list[str]:
        """Stop watching and put back what was set; return the names of the variables that changed."""
        can_change = self.watch.see().can_change
        self.watch.end()
        # The mask and its order mean something together only. One that CUDA has read stays: taking it away
        # would set frameworks against each other. One that somebody else has changed since is theirs.
        ours = self._variables
        pair = [name for name in (MASK, ORDER) if name in ours]
        if not can_change or not all(map(ours.is_as_set, pair)):
            pair = []
        others = [name for name in ours.names if name not in (MASK, ORDER)]
        changed = ours.put_back([*pair, *others])
        ours.forget()
        if can_change:
            self._chosen = None
        if self._told is not None:
            self._told.forget()
        if self._nvml is not None:
            self._nvml.close()
        return changed

    def gpus(self, state: State | None = None) -> Inventory:
        """Read the machine, and what this process makes of it.

        Parameters
        ----------
        state
            Whether CUDA has started, where that was asked already. Another thread has to ask `probe` itself:
            what the watch sees, it notes as seen in the cell that runs, and that is for the main thread.

        """
        from gpu_magic.view import view

        inventory = self._read()
        now = os.environ.get(MASK), os.environ.get(ORDER)
        guard = self._judge(inventory, self.watch.see() if state is None else state)
        return replace(inventory, kernel=view(inventory, self.inherited, now, guard))

    def guard(self) -> Guard:
        """Ask whether a choice can still take effect; GPUs are read only to name what it is frozen to."""
        from gpu_magic.cuda.driver import State
        from gpu_magic.devices.model import Inventory

        state = self.watch.see()
        return self._judge(self._read() if state is State.FROZEN else Inventory(), state)

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
        state = self.watch.see()
        if not state.can_change:
            guard = self._judge(inventory, state)
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
            self._variables.set(MASK, selection.mask)
            self._variables.set(ORDER, selection.order)
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
        state = self.watch.see()
        if state is not State.FROZEN:
            raise ChoiceError(
                f"CUDA was not started here yet, so %gpus {text} chooses for every framework; --in-process "
                "is for later."
            )
        inventory = self._read()
        guard = self._judge(inventory, state)
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
        variables, ours = self.told.limit(memory), self._variables
        ours.put_back([name for name in ours.names if name not in (MASK, ORDER, NVML_CHECK, *variables)])
        for name, value in variables.items():
            ours.set(name, value)

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

    def _judge(self, inventory: Inventory, state: State) -> Guard:
        from gpu_magic.cuda.frozen import look
        from gpu_magic.cuda.guard import judge

        return judge(look(state), self.watch.first, inventory)


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
    put(MASK, mask)
    put(ORDER, order)
    try:
        yield _current
    finally:
        _current.unload()
        _current = before[0]
        put(MASK, before[1])
        put(ORDER, before[2])


def _started() -> list[str]:
    from gpu_magic.frameworks import started

    return started()


def _devices(selection: Selection) -> tuple[Device, ...]:
    return selection.devices if isinstance(selection.devices, tuple) else ()


def _uuids(devices: tuple[Device, ...]) -> tuple[str, ...]:
    return tuple(str(device.uuid) for device in devices)
