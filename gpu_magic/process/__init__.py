"""What this process is: whether CUDA was initialized in it, what it began with, and which kernel it is.

`import gpu_magic` loads this module, so that the driver is asked before every fork: in a child forked after
CUDA was initialized, CUDA can't be used (see also triton #10443).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Literal

from gpu_magic.process.drivers import Driver, RocmRuntime, Values, values_now

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Driver",
    "Program",
    "Values",
    "connection_file",
    "driver",
    "has_saved_choices",
    "note_variables",
    "program",
    "saved_choices_folder",
    "use_driver",
    "variables_at_start",
]

Program = Literal["kernel", "unattended kernel", "ipython", "python"]


_cuda = _driver = Driver()
_rocm = RocmRuntime()


def driver() -> Driver:
    """Return the driver of this process; within `testing.simulate`, a simulated one.

    It is ROCm's runtime where something has loaded that, and CUDA was not initialized.
    """
    if _driver is _cuda and not _cuda.was_initialized():
        _rocm.is_initialized()
        if _rocm.is_loaded() and not _cuda.is_initialized():
            return _rocm
    return _driver


def use_driver(other: Driver) -> Driver:
    """Ask another driver from now on; return the one before."""
    global _driver
    before, _driver = _driver, other
    return before


def connection_file() -> str:
    """Return the connection file of the Jupyter kernel that this process is; empty where it is not one."""
    app = _kernel_app()
    if app is None:
        return ""
    file: str = app.connection_file
    if os.sep not in file:  # it is in the folder of the application
        file = app.abs_connection_file
    return file if os.path.isabs(file) else ""  # noqa: PTH117 - pathlib takes ten times as long


def program() -> Program:
    """Return what this process is: a Jupyter kernel, unattended or not, IPython in a terminal, or Python.

    A kernel is unattended where a program runs a notebook in it and does not start it again: nbclient (0.11;
    papermill, nbconvert, Quarto), nbval and testbook make a kernel manager without naming a connection file,
    and when their kernel ends, the run fails. Then jupyter_client gives the file a name from
    `tempfile.mkstemp(".json")` (`write_connection_file`, jupyter_client 8.10). Jupyter servers, consoles and
    editors restart kernels, and name their connection files (`kernel-<id>.json`).
    """
    if file := connection_file():
        import re  # IPython has imported it

        is_unnamed = re.fullmatch(r"tmp[a-z0-9_]{8}\.json", file.rpartition(os.sep)[2])
        return "unattended kernel" if is_unnamed else "kernel"
    ipython: Any = sys.modules.get("IPython.core.getipython")
    return "ipython" if ipython is not None and ipython.get_ipython() is not None else "python"


def saved_choices_folder() -> str:
    """Return the folder in which this user's kernels save choices; empty where this process is not one.

    It is in Jupyter's runtime directory, which belongs to the user. The connection file can lie elsewhere, as
    in the folder for temporary files, which everybody can write to.
    """
    app = _kernel_app()
    return os.path.join(app.connection_dir, "gpu_magic") if app else ""  # noqa: PTH118


def has_saved_choices() -> bool:
    """Return whether one of this user's kernels has saved a choice; another look finds out which."""
    try:
        return bool(os.listdir(saved_choices_folder()))  # noqa: PTH208
    except OSError:
        return False


def _kernel_app() -> Any:
    """Return the application of the Jupyter kernel that this process is; None where it is not one."""
    module: Any = sys.modules.get("ipykernel.kernelapp")  # a kernel has imported it
    if module is None or not module.IPKernelApp.initialized():
        return None
    return module.IPKernelApp.instance()


_at_start: Values | None = None


def variables_at_start() -> Values | None:
    """Return what the variables were before any cell could set them; None: that was not noted.

    A start-up file of IPython, or sitecustomize, can have set them after the process was launched. In a
    forked process they are what they were at the fork.
    """
    return _at_start


def note_variables(cells: Iterable[str] = ()) -> None:
    """Note the variables, the first time, unless one of the cells that have run names them."""
    global _at_start  # noqa: PLW0603 - a process begins once
    if _at_start is None and not any("_VISIBLE_DEVICES" in cell for cell in cells):
        _at_start = values_now()


def _begin_fork() -> None:
    driver().is_initialized()


def _begin_child() -> None:
    global _at_start  # noqa: PLW0603
    _at_start = None
    note_variables()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_begin_fork, after_in_child=_begin_child)
