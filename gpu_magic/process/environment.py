"""The kind of this process, and its variables at launch and now. Only this module changes them.

`import gpu_magic` loads this module, so that a forked child knows the variables at the fork.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpu_magic.process.mask import Variables

__all__ = [
    "KERNELS",
    "EnvironmentChanges",
    "Program",
    "connection_file",
    "has_saved_choices",
    "launch_environment",
    "misspelt",
    "note_variables",
    "program",
    "saved_choices_folder",
    "set_variable",
    "variables_at_start",
    "variables_now",
]

Program = Literal["kernel", "unattended kernel", "ipython", "python"]
KERNELS = ("kernel", "unattended kernel")
_LIKE = 0.92  # the ratio of difflib from which a name is taken for another one
_at_start: dict[str, str] | None = None  # the environment


def variables_now(environment: Mapping[str, str] | None = None) -> Variables:
    """Return the variables that decide which GPUs a process with this or another environment sees."""
    from gpu_magic.process.mask import NAMES, Variables  # `%load_ext` needs neither

    return Variables(*map(_value_in_c if environment is None else environment.get, NAMES))


def _value_in_c(name: str) -> str | None:
    """Return a variable as CUDA reads it. `os.putenv` changes it for C code alone, not in `os.environ`."""
    if "ctypes" not in sys.modules or os.name != "posix":  # whatever reads GPUs has loaded it
        return os.environ.get(name)
    value = _getenv()(os.fsencode(name))
    return None if value is None else os.fsdecode(value)


@cache
def _getenv() -> Callable[[bytes], bytes | None]:
    """Return C's own function. It keeps Python's lock, so that no thread changes a variable meanwhile."""
    import ctypes

    getenv = ctypes.PyDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return getenv


def misspelt(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with almost the name of one that names GPUs, and the name that is meant.

    An empty one is how `%env` removes it.
    """
    from difflib import get_close_matches

    from gpu_magic.process.mask import NAMES

    likely = (name for name, value in environment.items() if value and "VIS" in name.upper())
    names = [name for name in likely if name not in NAMES]
    found = {name: get_close_matches(name.upper(), NAMES, 1, _LIKE) for name in names}
    return {name: meant[0] for name, meant in found.items() if meant}


def note_variables(cells: Iterable[str] = ()) -> None:
    """Record the variables at the first call, unless a cell that has run names one of them."""
    global _at_start  # noqa: PLW0603 - a process starts once
    if _at_start is None and not any("_VISIBLE_DEVICES" in cell for cell in cells):
        _at_start = dict(os.environ)


def variables_at_start() -> Variables:
    """Return the variables before the first cell or at the fork, or else at the launch.

    A startup file of IPython, or sitecustomize, can set them after the launch.
    """
    return variables_now(launch_environment() if _at_start is None else _at_start)


def launch_environment() -> dict[str, str]:
    """Return the environment at the launch of this process, from /proc (Linux).

    On other systems, or if the process has overwritten it with a title (setproctitle does), return the
    current environment.
    """
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            entries = [entry.partition(b"=") for entry in file.read().split(b"\0")]
    except OSError:
        entries = []
    launched: dict[str, str] = {}
    for name, equals, value in entries:
        if equals and name.split() != [name]:
            return dict(os.environ)
        if equals:
            launched.setdefault(os.fsdecode(name), os.fsdecode(value))  # getenv also returns the first
    return launched or dict(os.environ)


class EnvironmentChanges:
    """The variables that gpu_magic has set, each with its previous value and its new value."""

    def __init__(self) -> None:
        self._changes: dict[str, tuple[str | None, str | None]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._changes

    @property
    def names(self) -> list[str]:
        return list(self._changes)

    def set(self, name: str, value: str | None) -> None:
        """Set a variable. None removes it. The value to restore is the last one that other code has set."""
        before = self._changes[name][0] if name in self and self.is_unchanged(name) else os.environ.get(name)
        self._changes[name] = before, value
        set_variable(name, value)

    def is_unchanged(self, name: str) -> bool:
        return os.environ.get(name) == self._changes[name][1]

    def replaced(self) -> tuple[Variables, Variables] | None:
        """Return the variables of a choice, and those that CUDA would read. None if they are the same."""
        if not self._changes:
            return None
        from gpu_magic.process.mask import NAMES, Variables

        now = variables_now()
        pairs = zip(NAMES, now, strict=True)
        chosen = Variables(*(self._changes[name][1] if name in self else value for name, value in pairs))
        return None if chosen == now else (chosen, now)

    def restore(self, names: Iterable[str]) -> list[str]:
        """Restore variables, unless other code has changed them since. Return the names that changed."""
        changed = []
        for name in names:
            is_unchanged, (before, now) = self.is_unchanged(name), self._changes.pop(name)
            if is_unchanged and before != now:
                set_variable(name, before)
                changed.append(name)
        return changed

    def savepoint(self, names: Iterable[str]) -> Callable[[], None]:
        """Return a function that undoes all changes of these variables from now on."""
        changes, values = self._changes.copy(), {name: os.environ.get(name) for name in names}

        def put_back() -> None:
            self._changes = changes
            for name, value in values.items():
                set_variable(name, value)

        return put_back

    def forget(self) -> None:
        """Forget the values to restore. The variables stay as they are."""
        self._changes.clear()


def set_variable(name: str, value: str | None) -> None:
    """Set a variable without a value to restore. None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _kernel_app() -> Any:
    """Return the application of this Jupyter kernel. None if this process is not a Jupyter kernel."""
    module: Any = sys.modules.get("ipykernel.kernelapp")  # a kernel has imported it
    is_kernel = module is not None and module.IPKernelApp.initialized()
    return module.IPKernelApp.instance() if is_kernel else None


def connection_file() -> str:
    """Return the connection file of this Jupyter kernel. Empty if this process is not a Jupyter kernel."""
    app = _kernel_app()
    file: str = "" if app is None else app.abs_connection_file
    return file if os.path.isabs(file) else ""  # noqa: PTH117 - pathlib takes ten times as long


def program() -> Program:
    """Return the kind of this process: a Jupyter kernel, unattended or not, terminal IPython, or Python.

    A kernel is unattended if a program runs a notebook in it and does not restart it. nbclient (0.11;
    papermill, nbconvert, Quarto), nbval and testbook make a kernel manager without naming a connection file,
    and their run fails when the kernel ends. jupyter_client then names the file by
    `tempfile.mkstemp(".json")` (`write_connection_file`, jupyter_client 8.10). Jupyter servers, consoles and
    editors restart kernels and name their connection files (`kernel-<id>.json`).
    """
    if file := connection_file():
        import re  # IPython has imported it

        is_unnamed = re.fullmatch(r"tmp[a-z0-9_]{8}\.json", file.rpartition(os.sep)[2])
        return "unattended kernel" if is_unnamed else "kernel"
    ipython: Any = sys.modules.get("IPython.core.getipython")
    return "ipython" if ipython is not None and ipython.get_ipython() is not None else "python"


def saved_choices_folder() -> str:
    """Return the folder in which this user's kernels save choices. Empty if this process is not a kernel.

    The folder is in Jupyter's runtime directory, which belongs to the user. The connection file can be in
    another folder, such as the folder for temporary files, where everybody can write.
    """
    app = _kernel_app()
    return os.path.join(app.connection_dir, "gpu_magic") if app else ""  # noqa: PTH118


def has_saved_choices() -> bool:
    """Return whether one of this user's kernels has saved a choice. `restart.saved` finds this kernel's."""
    try:
        return bool(os.listdir(saved_choices_folder()))  # noqa: PTH208
    except OSError:
        return False


def _begin_child() -> None:
    global _at_start  # noqa: PLW0603
    _at_start = dict(os.environ)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
