"""The result of a choice, as `gpu_magic.choose` returns it and `%gpus` prints it."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN, Gpu
from gpu_magic.devices.processes import ProcessNames
from gpu_magic.frameworks import imported
from gpu_magic.option_table import CHOICE
from gpu_magic.process.drivers import State
from gpu_magic.process.environment import program
from gpu_magic.process.guard import label_of, runtime_of
from gpu_magic.process.mask import ORDER
from gpu_magic.text import GIB, TIB, bytes_text, html_text, listed, printable, simulated_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_magic.devices.model import Device
    from gpu_magic.gpus.options import Options
    from gpu_magic.gpus.select import Selection
    from gpu_magic.process.guard import Guard

__all__ = ["Choice", "TooLate", "gpu_notes"]

_STYLE = (
    "border-left:4px solid var(--jp-warn-color0,#c77f1a);padding:6px 12px;margin:4px 0;font-family:inherit"
)

# Notebooks show it (labextension/page/machine.css). rerun.js hears its clicks. It is an <input>, because
# a page that removes buttons would keep the text of a <button>.
_AGAIN = (
    "<input type='button' hidden class='gm-rerun' data-lm-suppress-shortcuts='true' data-request='{request}' "
    "value='Restart, and run the cells above again'>"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The result of a choice. It shows itself as the lines that `%gpus` prints.

    Parameters
    ----------
    selection
        The devices, and the values of the variables that name them.
    is_applied
        Whether this process now has these devices, from this choice or from an earlier one.
    is_dry_run
        Whether `dry_run` kept the choice from changing anything.
    is_simulated
        Whether these GPUs do not exist.
    is_reset
        Whether it restores the values that the process started with.
    memory
        How frameworks allocate memory, as a sentence. Empty if the choice does not set it.
    ordinals
        With `--in-process`: the i of each device's `cuda:i`. Without `--in-process`: None, because i is the
        position of the device.
    results
        With `--in-process`: the result in each framework, a sentence each.
    too_late
        Why the choice cannot take effect in this process, and what works instead. None if it can, or if
        `restart` asks for another process.
    restarts
        Whether it is a dry run of a choice that would restart the kernel.
    instead_of
        The request, if the choice of `--restart` was kept instead. Empty otherwise.

    """

    selection: Selection
    is_applied: bool
    is_dry_run: bool
    is_simulated: bool
    is_reset: bool = False
    memory: str = ""
    ordinals: tuple[int, ...] | None = None
    results: tuple[str, ...] = ()
    too_late: TooLate | None = None
    restarts: bool = False
    instead_of: str = ""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices, in the order of `cuda:0`, `cuda:1`, …. Empty if a reset leads to unknown devices."""
        return self.selection.known

    @property
    def mask(self) -> str | None:
        """The value of CUDA_VISIBLE_DEVICES (AMD: HIP_VISIBLE_DEVICES) for these devices. None: not set."""
        return self.selection.mask

    @property
    def order(self) -> str | None:
        """The value of CUDA_DEVICE_ORDER for these devices. None: not set."""
        return self.selection.variables.get(ORDER)

    @property
    def refusal(self) -> str:
        """Why it cannot take effect in this process, and what works instead. Empty if it can."""
        return "" if self.too_late is None else str(self.too_late)

    @property
    def warnings(self) -> list[str]:
        """Its lines that warn: who else uses the GPUs, and anything unusual about them."""
        others = [line for device in self.devices for line in _others_on(device)]
        return [printable(line) for line in (*others, *self.selection.notes)]

    @property
    def log_line(self) -> str:
        """Its line in the log."""
        what = listed((device.label for device in self.devices), "no GPU")
        what = f"{simulated_mark(self.is_simulated and self.devices)}{what}"
        if self.too_late:
            return printable(f"Too late for {'a reset' if self.is_reset else what}: {self.too_late.guard}")
        if self.ordinals is not None:
            return f"Chosen in-process: {what if self.devices else 'all'}"
        return printable(" · ".join(("Reset" if self.is_reset else f"Chosen: {what}", *self._settings)))

    @property
    def _settings(self) -> list[str]:
        pairs = self.selection.variables.items()
        return [f"{name} not set" if value is None else f"{name}={value}" for name, value in pairs]

    def __repr__(self) -> str:
        if self.too_late:
            return f"Not applied. {self.too_late.guard.keeps}."
        return "\n".join(map(printable, self._applied() if self.ordinals is None else self._in_process()))

    def _repr_html_(self) -> str:
        return html_text(repr(self))

    def _applied(self) -> Iterator[str]:
        if self.instead_of:
            kept = listed((device.label for device in self.devices), "no GPU")
            yield f"{kept}, as chosen with --restart. To choose {self.instead_of} instead, run this again."
            yield from self.warnings
            return
        if self.is_reset and not self.is_dry_run:
            yield f"Reset: {', '.join(self._settings)}"
        # A reset that leaves every variable unset is no choice, so no GPUs are listed.
        if not self.is_reset or any(value is not None for value in self.selection.variables.values()):
            if self.selection.devices == ():
                runtime = runtime_of(self.selection.vendor)
                yield f"No GPU is visible to {runtime}. Frameworks run on the CPU."
            yield from self._map(range(len(self.devices)))
            yield from self.warnings
        if self.memory:
            yield self.memory
        if self.is_dry_run:
            restart = "restart the kernel. Variables would be lost."
            yield f"Dry run: would {restart if self.restarts else listed(self._changes())}"

    def _changes(self) -> Iterator[str]:
        """Yield the changes of variables: `set CUDA_VISIBLE_DEVICES=2,0`, `unset CUDA_DEVICE_ORDER`."""
        pairs = self.selection.variables.items()
        if to_set := [f"{name}={value}" for name, value in pairs if value is not None]:
            yield f"set {', '.join(to_set)}"
        if to_unset := [name for name, value in pairs if value is None]:
            yield f"unset {', '.join(to_unset)}"

    def _in_process(self) -> Iterator[str]:
        if not self.is_dry_run and not self.results:
            why = "no framework is imported. Import one, then run this again"
            yield f"Nothing was changed: {why if self.devices else 'no framework uses fewer GPUs'}."
            return
        yield from self._map(self.ordinals or ())
        yield from self.results
        if self.is_dry_run:
            yield "Dry run: nothing was changed."

    def _map(self, ordinals: Sequence[int]) -> Iterator[str]:
        mark = simulated_mark(self.is_simulated)
        for ordinal, device in zip(ordinals, self.devices, strict=True):
            name = "name unknown" if device.name is UNKNOWN else device.name
            yield f"cuda:{ordinal} = {device.label} ({mark}{name}, {_free(device)})"


@dataclass(frozen=True, slots=True)
class TooLate:
    """The answer if CUDA has started with other devices. Nothing was changed.

    The first line of `str` has the reason and what to type, the other lines what works without a restart.
    """

    guard: Guard  # when and how CUDA started, and with which devices
    devices: tuple[Device, ...]  # the requested devices
    request: str  # the request as typed, to repeat in a fresh kernel; empty for a reset
    options: Options

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        text = html_text(self._text(), "Too late:", _STYLE)
        options = self.options.given().keys() - {"by"}
        if program() != "kernel" or not self.request or not all(CHOICE[name].in_panel for name in options):
            return text
        request = html.escape(f"{self.request}{self.options}")
        return f"{text}{_AGAIN.format(request=request)}"

    def __str__(self) -> str:
        return f"Too late: {self._text()}"

    def _text(self) -> str:
        guard = self.guard
        if guard.state is State.FORKED:
            return f'{guard}. Start workers with the "spawn" method, or before {guard.runtime} starts.'
        first = f"{guard.cause}. {guard.keeps}. {self._with_a_restart()}"
        return "\n".join([first, *self._without_a_restart()])

    def _without_a_restart(self) -> Iterator[str]:
        """Yield which of the GPUs are visible, how to use one of them, and how a script can use the GPUs."""
        is_python, force = program() == "python", self.options.force
        gpus = ",".join(one.number_text if isinstance(one, Gpu) else str(one.uuid) for one in self.devices)
        script = f"%gpu_launch --gpus {gpus}{' --force' * force} python train.py"
        if is_python:
            script = f"gpu_magic.launch('python train.py', gpus={gpus!r}{', force=True' * force})"
        wanted, there = listed(one.label for one in self.devices), self.guard.devices
        ordinals = self.guard.ordinals(self.devices)
        if not ordinals:
            if wanted:
                yield f"A script can use {wanted} without a restart: {script}"
            return
        first = ordinals[0]
        device, labels = there[first], listed(label_of(there[one]) for one in ordinals)
        verb, names = "is" if len(ordinals) == 1 else "are", listed(f"cuda:{one}" for one in ordinals)
        has = f"{labels} {verb} visible as {names}."
        if len(ordinals) == len(self.devices) == len(there):
            has = f"Only the order differs: {has}"
        yield f"{has} To use {label_of(device)} without a restart:"
        number = device.number_text if isinstance(device, Gpu) else self.guard.uuids[first]
        if is_python:
            yield f"  one block: with gpu_magic.on_gpu({first}):"
            onwards = f"gpu_magic.choose({number!r}, in_process=True)"
        else:
            yield f"  one cell: %%on_gpu {first}"
            onwards = f"%gpus {number} --in-process"
        if frameworks := imported():
            yield f"  from here on: {onwards}"
        for one in frameworks:
            yield f"  {one.name}: {one.statement_for(first)}"
        yield f"  a script{f' on {wanted}' * (len(self.devices) > 1)}: {script}"

    def _with_a_restart(self) -> str:
        """Return how to get the GPUs with a restart. Only an attended kernel can restart itself."""
        kind = program()  # nobody would start an unattended kernel again
        if kind == "kernel" and self.request:
            return f"{self._wish}: %gpus {self.request}{self.options} --restart"
        kinds = {"kernel": "restart the kernel", "unattended kernel": "run the notebook again"}
        restart = kinds.get(kind, "restart IPython" if kind == "ipython" else "restart Python")
        if not self.request:
            return f"To reset, {restart}."
        typed = f"%gpus {self.request}{self.options}"
        if kind == "python":
            given = (f"{name}={value!r}" for name, value in self.options.given().items())
            typed = f"gpu_magic.choose({', '.join([repr(self.request), *given])})"
        return f"{self._wish}, {restart}. Before {self.guard.runtime} starts: {typed}"

    @property
    def _wish(self) -> str:
        ordinals, count = self.guard.ordinals(self.devices), len(self.devices)
        if not count:
            return "To hide all GPUs"
        order = " in this order" * (len(ordinals) == count == len(self.guard.devices))
        only = "only " * (not order and len(ordinals) == count)
        return f"To use {only}{listed(device.label for device in self.devices)}{order}"


def _free(device: Device) -> str:
    free = device.status.memory_free
    if free is UNKNOWN:
        return "free memory unknown"
    return f"{free / GIB:.0f} GiB free" if 10 * GIB <= free < TIB else f"{bytes_text(free)} free"


def _others_on(device: Device) -> Iterator[str]:
    """Yield the other users and programs of a device, a sentence each without its full stop."""
    users = () if device.status.users is UNKNOWN else device.status.users
    others = [process for process in users if process.is_this_process is not True]
    if others:
        yield from (f"{device.label} is in use by {line}" for line in map(ProcessNames(others).line, others))
    if not users and device.is_busy is True:
        yield f"{device.label} is in use (owner unknown)"
    for claim in device.status.claims:
        yield f"{device.label} is {claim}"


def gpu_notes(devices: Sequence[Device], instead: str, *, is_chosen: bool) -> Iterator[str]:
    """Yield notes on the GPUs of a command or engines: that none was chosen, and who else uses them.

    `instead` is a sentence with the way to use other GPUs, up to their numbers.
    """
    if not is_chosen and len(devices) > 1:
        some = ",".join(device.number_text for device in devices[:2])
        yield f"No GPUs were chosen, so all {len(devices)} are used. {instead} {some}"
    for device in devices:
        yield from _others_on(device)
