"""One's own processes on GPUs, as `gpu_magic.my_processes` returns them and `%gpus --mine` shows them."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from gpu_magic.devices.process_names import ProcessNames
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.display.table import title
from gpu_magic.errors import ProcessError
from gpu_magic.process.ending import this_kernel
from gpu_magic.process.own_processes import devices_with_processes
from gpu_magic.public import public
from gpu_magic.text import age_text, bytes_text, html_block, listed, printable, since_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.claim import Claim
    from gpu_magic.devices.model import Device
    from gpu_magic.devices.unknown import Unknown
    from gpu_magic.process.own_processes import Found, OwnProcess

__all__ = ["OwnProcesses"]

_HEADINGS = ("Process", "PID", "Memory", "Age", "What it is")


class OwnProcesses(Sequence["OwnProcess"]):
    """The processes of this user that have memory on GPUs. Shows itself as a table.

    Parameters
    ----------
    found
        The processes.

    """

    def __init__(self, found: Found) -> None:
        self._processes, self._others, self._machine, self._claimants = found
        self._names = ProcessNames(own.process for own in (*found.processes, *found.claimants))

    @overload
    def __getitem__(self, place: int) -> OwnProcess: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[OwnProcess]: ...

    def __getitem__(self, place: int | slice) -> OwnProcess | Sequence[OwnProcess]:
        return self._processes[place]

    def __len__(self) -> int:
        return len(self._processes)

    def name(self, own: OwnProcess) -> str:
        """Return what a process is called: a kernel by its notebook."""
        return self._names.name(own.process)

    @public
    def find(self, which: int | str) -> OwnProcess:
        """Return the process with a number or a name, as the table has it, or the lines of claims below it.

        Raises
        ------
        ProcessError
            There is none, or there are several.

        """
        text = str(which).strip()
        number = int(text) if re.fullmatch(r"[0-9]{1,10}", text) else None
        all_of_them = (*self._processes, *self._claimants)
        if number is not None:
            found = [own for own in all_of_them if own.pid == number]
        else:
            found = [own for own in all_of_them if self.name(own) == text] or [
                own
                for own in all_of_them
                if own.process.is_kernel and f"/{own.notebook}".endswith(f"/{text}")
            ]
        if len(found) == 1:
            return found[0]
        if found:
            numbers = " or ".join(str(own.pid) for own in found)
            raise ProcessError(f"{text} could be {numbers}: %gpus --mine says which is which.")
        owner = None if number is None else self._others.get(number)
        if owner is not None:
            whose = "not known to be yours" if owner is UNKNOWN else f"{owner}'s, and not yours"
            raise ProcessError(f"Process {text} is {whose}, so it can't be ended from here.")
        yours = listed(f"{own.pid} ({self.name(own)})" for own in all_of_them)
        raise ProcessError(f"You have no process {text} on a GPU{f'; yours: {yours}' * bool(yours)}.")

    def check_can_end(self, own: OwnProcess) -> None:
        """Raise ProcessError where a process is not one to be ended by itself."""
        if own.is_this:
            raise ProcessError(this_kernel(own.pid))
        if own.manager and own.manager.how_to_end:
            raise ProcessError(f"Process {own.pid} is of {own.manager.name}: {own.manager.how_to_end}.")
        if self._machine.simulated:
            raise ProcessError(f"Process {own.pid} can't be ended: the GPUs here are SIMULATED.")

    @property
    def can_be_ended(self) -> list[OwnProcess]:
        """Those that `end_process` can end."""
        return [own for own in self if not own.is_this and not (own.manager and own.manager.how_to_end)]

    def described(self, own: OwnProcess) -> str:
        """Return `train.py (pid 4711, 12.4 GiB on GPU 3)`, `the kernel of train.ipynb (…)`."""
        memory = ", ".join(f"{_size(size)} on {device.label}" for device, size in own.memory.items())
        has = memory or f"claims {listed(device.label for device in own.claimed)}"
        return f"{self.called(own)} (pid {own.pid}, {has})"

    def called(self, own: OwnProcess) -> str:
        """Return `train.py`, `the kernel of train.ipynb`."""
        return f"{'the kernel of ' * own.process.is_kernel}{self.name(own)}"

    def __repr__(self) -> str:
        lines = [title(self._machine)] if self._machine.simulated else []
        if self:
            cells = [_HEADINGS, *(line for own in self for line in self._lines(own))]
            widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
            for line in cells:
                texts = (text.ljust(width) for text, width in zip(line, widths, strict=True))
                lines.append("  ".join(texts).rstrip())
        return "\n".join([*lines, *self._below, *(f"! {note}" for note in self._notes)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
        body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(self._row, self))}</tbody></table>"
        below = "".join(f"<p class='gm-title'>{html.escape(line)}</p>" for line in self._below)
        heading = title(self._machine) if self._machine.simulated else ""
        return html_block(heading, (body if self else "") + below, self._notes)

    def _row(self, own: OwnProcess) -> str:
        """Return a process as a row of HTML: a cell has a line for each of its devices."""
        columns = zip(*self._lines(own), strict=True)
        cells = ("<br>".join(map(html.escape, filter(None, column))) for column in columns)
        return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"

    def _lines(self, own: OwnProcess) -> Iterator[tuple[str, ...]]:
        """Yield the cells of a process, in a line for each of its devices."""
        memory = [f"{device.label}: {_size(size)}" for device, size in own.memory.items()]
        age = "" if own.age is UNKNOWN else age_text(own.age)
        yield self.name(own), str(own.pid), memory[0], age, self._what(own)
        yield from (("", "", more, "", "") for more in memory[1:])

    def _what(self, own: OwnProcess) -> str:
        if own.is_this:
            return "this kernel"
        if own.manager:
            return printable(own.manager.name)
        if own.process.mine:
            return "started by this kernel"
        if own.process.is_kernel:
            return "another kernel"
        return f"started in {self._names.notebook(own.process)}" if own.notebook else "another process"

    @property
    def _below(self) -> list[str]:
        """The lines below the table."""
        return [*filter(None, [self._hint]), *self._claims()]

    def _claims(self) -> Iterator[str]:
        """Yield a line for each of this user's processes that has claimed devices, without memory there."""
        has_memory = {(own.pid, device) for own in self for device in own.memory}
        found: dict[tuple[int | Unknown, str], list[tuple[Device, Claim]]] = {}
        for device in devices_with_processes(self._machine):
            for claim in device.status.claims:
                if claim.is_own and (claim.pid, device) not in has_memory:
                    found.setdefault((claim.pid, claim.notebook), []).append((device, claim))
        for (pid, notebook), claimed in found.items():
            labels = listed(device.label for device, _ in claimed)
            since = since_text(min(claim.since for _, claim in claimed))
            name = notebook or "another process"
            can_end = not self._machine.simulated and any(own.pid == pid for own in self._claimants)
            ends = f"; %gpus --end {pid} ends it" if can_end else ""
            yield printable(
                f"Claimed by you in {name} (pid {pid}), without memory there: {labels}, since {since}{ends}."
            )

    @property
    def _hint(self) -> str:
        if not self:
            return "" if self._unlisted else "None of your processes has memory on a GPU."
        ended = [] if self._machine.simulated else self.can_be_ended
        first = f"%gpus --end {ended[0].pid} ends {self.name(ended[0])}, after a question." if ended else ""
        return printable(first)

    @property
    def _notes(self) -> list[str]:
        if not self._unlisted:
            return []
        is_all = len(self._unlisted) == len([*devices_with_processes(self._machine)])
        none = "" if self or is_all else ", and on the others none is yours"
        return [f"Which processes are on {listed(self._unlisted)} can't be known{none}."]

    @property
    def _unlisted(self) -> list[str]:
        """The devices whose processes the driver does not list."""
        devices = devices_with_processes(self._machine)
        return [device.label for device in devices if device.status.processes is UNKNOWN]


def _size(size: object) -> str:
    return bytes_text(size) if isinstance(size, int) else "?"
