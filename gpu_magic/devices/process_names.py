"""What processes on GPUs are called: a kernel by its notebook, everything else by its script or program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.claim import idle_text
from gpu_magic.devices.processes import name_text
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.text import age_text, bytes_text, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpu_magic.devices.status import GpuProcess

__all__ = ["ProcessNames"]


class ProcessNames:
    """Names of processes that are shown together.

    A notebook is its file's name, with folders only as far as they tell it from others of that name.

    Parameters
    ----------
    processes
        All that are shown.

    """

    def __init__(self, processes: Iterable[GpuProcess]) -> None:
        paths = {process.notebook for process in processes if process.notebook}
        self._notebooks = {path: _shortest(path, paths) for path in paths}

    def line(self, process: GpuProcess) -> str:
        """Return `maria: train.py, 59.6 GiB, for 3 h, idle 2 h`; of this user's own, `you: …`."""
        owner = "this kernel" if process.mine else "you" if process.is_own else process.owner
        memory = "?" if process.memory is UNKNOWN else bytes_text(process.memory)
        facts = [self.name(process), memory]
        if process.age is not UNKNOWN and not process.mine:
            facts.append(f"for {age_text(process.age)}")
        if not process.mine and (idle := idle_text(process.idle)):
            facts.append(idle)
        return printable(f"{'owner unknown' if owner is UNKNOWN else owner}: {', '.join(facts)}")

    def name(self, process: GpuProcess) -> str:
        """Return `train.ipynb` of a kernel, else `train.py`, or `process 4711` where nothing is known."""
        if process.is_kernel:
            return self.notebook(process)
        return f"process {process.pid}" if process.name is UNKNOWN else process.name

    def notebook(self, process: GpuProcess) -> str:
        """Return the notebook of a kernel, or of what was started in one; empty for none."""
        return name_text(self._notebooks.get(process.notebook) or process.notebook.rpartition("/")[2])


def _shortest(path: str, paths: Collection[str]) -> str:
    """Return the shortest end of a path, in whole folders, that is not the end of another one."""
    parts = path.split("/")
    for count in range(1, len(parts)):
        end = "/".join(parts[-count:])
        if not any(f"/{other}".endswith(f"/{end}") for other in paths if other != path):
            return end
    return path
