"""The state of this process: what it was launched with, what was chosen, and what is watched.

`choosing` changes it and `view` reads the machine for it. Environment variables change in this module and
nowhere else. `%load_ext` loads it, so it imports little.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpu_magic.process.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpu_magic.devices.nvml import Nvml
    from gpu_magic.frameworks.settings import FrameworkSettings
    from gpu_magic.selection.request import Request

__all__ = [
    "MASK",
    "NVML_CHECK",
    "ORDER",
    "EnvironmentChanges",
    "Session",
    "connection_file",
    "current",
    "fresh",
    "mask_and_order",
    "saved_choice_file",
]

MASK, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
# PyTorch reads it at every call of torch.cuda.is_available(), which without it calls cuInit (torch 2.13,
# torch/cuda/__init__.py).
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


class Session:
    """What one process was launched with, what it chose, and whether that can still change.

    Parameters
    ----------
    launched
        The environment it was launched with; None: find out.

    """

    def __init__(self, launched: Mapping[str, str] | None = None) -> None:
        self._launched = launched
        self.watch = Watch()
        self.environment = EnvironmentChanges()
        self.chosen: Request | None = None
        # Made when they are first used.
        self.reader: Nvml | None = None
        self.settings: FrameworkSettings | None = None

    @cached_property
    def inherited(self) -> tuple[str | None, str | None]:
        """CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as this process was launched; None: not set."""
        launched = launch_environment() if self._launched is None else self._launched
        return launched.get(MASK), launched.get(ORDER)

    def load(self, shell: Any) -> None:
        """Begin to watch an IPython shell's cells."""
        if NVML_CHECK not in os.environ:
            self.environment.set(NVML_CHECK, "1")
        self.watch.begin(shell)

    def unload(self) -> list[str]:
        """Stop watching and restore what was set; return the names of the variables that changed."""
        can_change = self.watch.look().can_change
        self.watch.end()
        # The mask and its order mean something together only. A mask that CUDA has read stays: without it
        # frameworks would contradict each other. One that somebody else has changed since is theirs.
        ours = self.environment
        pair = [name for name in (MASK, ORDER) if name in ours]
        if not can_change or not all(map(ours.is_unchanged, pair)):
            pair = []
        others = [name for name in ours.names if name not in (MASK, ORDER)]
        changed = ours.restore([*pair, *others])
        ours.forget()
        if can_change:
            self.chosen = None
        if self.settings is not None:
            self.settings.forget()
        if self.reader is not None:
            self.reader.close()
        return changed


def connection_file() -> str:
    """Return the connection file of the Jupyter kernel that this process is; empty where it is not one."""
    module: Any = sys.modules.get("ipykernel.kernelapp")  # a kernel has imported it
    if module is None or not module.IPKernelApp.initialized():
        return ""
    app = module.IPKernelApp.instance()
    file: str = app.connection_file
    if os.sep not in file:  # it is in the folder of the application
        file = app.abs_connection_file
    return file if os.path.isabs(file) else ""  # noqa: PTH117 - pathlib takes ten times as long


def saved_choice_file() -> str:
    """Return the file that a choice is saved in for the next start of this kernel; empty if it is not one."""
    folder, slash, name = connection_file().rpartition(os.sep)
    return f"{folder}{slash}gpu_magic-{name.removesuffix('.json')}.json" if name else ""


_current: Session | None = None


def current() -> Session:
    """Return this process's session; the first call makes it."""
    global _current  # noqa: PLW0603 - a process has one environment, so it has one session
    if _current is None:
        _current = Session()
    return _current


@contextlib.contextmanager
def fresh(mask: str | None, order: str | None) -> Iterator[Session]:
    """Run a block in a session of its own, as if the process had been launched with this mask.

    For tests: what is chosen in the block ends with it.
    """
    global _current  # noqa: PLW0603
    session, before = _current, mask_and_order()
    launched = {name: value for name, value in ((MASK, mask), (ORDER, order)) if value is not None}
    _current = Session(launched)
    _set_variable(MASK, mask)
    _set_variable(ORDER, order)
    try:
        yield _current
    finally:
        _current.unload()
        _current = session
        _set_variable(MASK, before[0])
        _set_variable(ORDER, before[1])


def mask_and_order() -> tuple[str | None, str | None]:
    """Return CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as they are now; None: not set."""
    return os.environ.get(MASK), os.environ.get(ORDER)


def launch_environment() -> dict[str, str]:
    """Return the environment that this process was launched with, whatever was set since (Linux: /proc).

    Elsewhere, and where a program has written its title over it (setproctitle does), it is that of now.
    """
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environ)
    launched: dict[str, str] = {}
    for name, equals, value in (entry.partition(b"=") for entry in entries):
        if equals and not re.fullmatch(rb"[^\s=]+", name):
            return dict(os.environ)
        if equals:
            launched.setdefault(os.fsdecode(name), os.fsdecode(value))  # getenv takes the first, too
    return launched or dict(os.environ)


class EnvironmentChanges:
    """The variables that we have set, and the values they had before."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}
        self._ours: dict[str, str | None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._before

    @property
    def names(self) -> list[str]:
        """The variables that we have set."""
        return list(self._before)

    def set(self, name: str, value: str | None) -> None:
        """Set a variable; None removes it."""
        self._before.setdefault(name, os.environ.get(name))
        self._ours[name] = value
        _set_variable(name, value)

    def is_unchanged(self, name: str) -> bool:
        """Whether a variable still has the value that we gave it."""
        return os.environ.get(name) == self._ours[name]

    def restore(self, names: Iterable[str]) -> list[str]:
        """Give variables back the values they had before; return the names of those that change by it.

        A variable that somebody else has changed since is left as it is.
        """
        changed = []
        for name in names:
            is_ours, before, ours = self.is_unchanged(name), self._before.pop(name), self._ours.pop(name)
            if is_ours and before != ours:
                _set_variable(name, before)
                changed.append(name)
        return changed

    def forget(self) -> None:
        """Leave all that is still set as it is, for good."""
        self._before.clear()
        self._ours.clear()


def _set_variable(name: str, value: str | None) -> None:
    """Set one variable, without remembering its value before; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
