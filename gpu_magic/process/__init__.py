"""What this process is: whether CUDA was initialized in it, what it began with, and which kernel it is.

The CUDA driver library is looked up with RTLD_NOLOAD: it is neither loaded nor initialized here, and where
nothing has loaded it, nothing has initialized CUDA. Where it is loaded, `cuDeviceGetCount` returns
CUDA_ERROR_NOT_INITIALIZED (3) until cuInit was called, and after it 0, or CUDA_ERROR_NO_DEVICE (100) where
CUDA_VISIBLE_DEVICES names no GPU (CUDA driver API, "Initialization"). Any other answer means that CUDA
can't be used: the CUDA toolkit's stub of the library gives 34, for example. `cuDriverGetVersion` is not a
test: it answers before, too.

In a child forked after cuInit the answer is 3 again, and CUDA can't be used there. So the process in which
CUDA was seen to be initialized is remembered, and the driver is asked before every fork (see also triton
#10443). For that, `import gpu_magic` loads this module; it imports ctypes only once something has
loaded the driver, as that takes longer than all else.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterable

__all__ = [
    "Driver",
    "Program",
    "Variables",
    "connection_file",
    "driver",
    "has_saved_choices",
    "note_variables",
    "program",
    "saved_choices_folder",
    "use_driver",
    "variables_at_start",
]

# CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; None: not set.
Variables = tuple[str | None, str | None]
Program = Literal["kernel", "unattended kernel", "ipython", "python"]

_SUCCESS, _NOT_INITIALIZED, _NO_DEVICE = 0, 3, 100
# A flag in /proc/self/stat: forked, and has not run another program since (Linux, include/linux/sched.h).
_PF_FORKNOEXEC = 0x40


class Driver:
    """The CUDA driver library, once something has loaded it. It is never unloaded again.

    Attributes
    ----------
    error
        What it answered last, where that means that CUDA can't be used; 0 for anything else.

    """

    def __init__(self) -> None:
        self.error = 0
        self._library: ctypes.CDLL | None = None
        self._initialized_in: int | None = None  # the process in which CUDA was seen to be initialized
        # A library that is there before us in a forked process can have come from the process before.
        self._may_be_forked_with = os.getpid() if self._find() is not None else None

    def is_loaded(self) -> bool:
        """Return whether the library was seen to be loaded when CUDA was last asked for."""
        return self._library is not None

    def is_initialized(self) -> bool:
        """Return whether CUDA was initialized, in this process or in one that it was forked from.

        It takes about 20 µs until the library is loaded, and 1 µs from then on.
        """
        if self._initialized_in is not None:
            return True
        library = self._find()
        if library is None:
            return False
        import ctypes

        answer = library.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
        self.error = answer if answer not in (_SUCCESS, _NOT_INITIALIZED, _NO_DEVICE) else 0
        if answer in (_SUCCESS, _NO_DEVICE):
            self._initialized_in = os.getpid()
        return self._initialized_in is not None

    def is_forked(self) -> bool:
        """Return whether CUDA was initialized before this process was forked, and can't be used in it."""
        return self._initialized_in not in (None, os.getpid())

    def may_be_forked(self) -> bool:
        """Return whether that may be so: the library was loaded, perhaps before the fork, and we were not."""
        return self._may_be_forked_with == os.getpid() and _is_forked_process()

    def devices(self) -> tuple[str, ...]:
        """Return what CUDA was initialized with in this process.

        Returns
        -------
        tuple[str, ...]
            For `cuda:0`, `cuda:1`, … the 16 bytes of the UUID as text: `8f3a1c52-…`. The driver gives it
            without the "GPU-" or "MIG-" of NVML; the text is empty where it does not answer. There are none
            where CUDA is not initialized, or was initialized without any device.

        """
        if not self.is_initialized() or self.is_forked():
            return ()
        import ctypes

        library: Any = self._library
        count = ctypes.c_int()
        if library.cuDeviceGetCount(ctypes.byref(count)) != _SUCCESS:
            return ()  # CUDA_VISIBLE_DEVICES named no device
        found = []
        for ordinal in range(count.value):
            device = ctypes.c_int()
            if library.cuDeviceGet(ctypes.byref(device), ordinal) != _SUCCESS:
                break
            found.append(_uuid(library, device))
        return tuple(found)

    def _find(self) -> ctypes.CDLL | None:
        if self._library is None and sys.platform != "win32":
            from _ctypes import dlopen

            try:
                # CDLL would do the same, and take three times as long to find nothing.
                handle = dlopen("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_LAZY)
            except OSError:
                return None
            import ctypes

            self._library = ctypes.CDLL("libcuda.so.1", handle=handle)
        return self._library


_driver = Driver()


def driver() -> Driver:
    """Return the driver of this process; within `testing.simulate`, a simulated one."""
    return _driver


def use_driver(other: Driver) -> Driver:
    """Ask another driver from now on; return the one before."""
    global _driver
    before, _driver = _driver, other
    return before


def _is_forked_process() -> bool:
    """Return whether this process was forked and runs the same program since (Linux); False if unknown."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            flags = int(file.read().rpartition(b")")[2].split()[6])
    except (OSError, ValueError, IndexError):
        return False
    return bool(flags & _PF_FORKNOEXEC)


def _uuid(library: Any, device: ctypes.c_int) -> str:
    import ctypes

    raw = (ctypes.c_ubyte * 16)()
    # Version 2 (CUDA 11.4) gives a MIG instance's own UUID, version 1 that of its GPU.
    get_uuid = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
    if get_uuid(ctypes.byref(raw), device) != 0:
        return ""
    digits = bytes(raw).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


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


_at_start: Variables | None = None


def variables_at_start() -> Variables | None:
    """Return what the two variables were before any cell could set them; None: that was not noted.

    A start-up file of IPython, or sitecustomize, can have set them after the process was launched. In a
    forked process they are what they were at the fork.
    """
    return _at_start


def note_variables(cells: Iterable[str] = ()) -> None:
    """Note the two variables, the first time, unless one of the cells that have run names them."""
    global _at_start  # noqa: PLW0603 - a process begins once
    if _at_start is None and not any("CUDA_VISIBLE_DEVICES" in cell for cell in cells):
        _at_start = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER")


def _begin_fork() -> None:
    _driver.is_initialized()


def _begin_child() -> None:
    global _at_start  # noqa: PLW0603
    _at_start = None
    note_variables()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_begin_fork, after_in_child=_begin_child)
