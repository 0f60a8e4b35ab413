"""What this process is: whether CUDA was initialized in it, and which Jupyter kernel it is.

The CUDA driver library is looked up with RTLD_NOLOAD: it is neither loaded nor initialized here, and where
nothing has loaded it, nothing has initialized CUDA. Where it is loaded, `cuDeviceGetCount` returns
CUDA_ERROR_NOT_INITIALIZED (3) until cuInit was called, and never after (CUDA driver API, "Initialization").
`cuDriverGetVersion` is not a test: it answers before, too.

In a child forked after cuInit the answer is 3 again, and CUDA can't be used there. So the process in which
CUDA was seen to be initialized is remembered, and the driver is asked before every fork (see also triton
#10443). For that, `import gpu_magic` loads this module; it imports ctypes only once something has
loaded the driver, as that takes longer than all else.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ctypes

__all__ = [
    "connection_file",
    "devices",
    "is_forked",
    "is_initialized",
    "is_loaded",
    "saved_choice_file",
]

_NOT_INITIALIZED = 3


class _Driver:
    """The driver library, once something has loaded it. It is never unloaded again."""

    def __init__(self) -> None:
        self.library: ctypes.CDLL | None = None
        self.initialized_in: int | None = None  # the process in which CUDA was seen to be initialized

    def find(self) -> ctypes.CDLL | None:
        if self.library is None and sys.platform != "win32":
            from _ctypes import dlopen

            try:
                # CDLL would do the same, and take three times as long to find nothing.
                handle = dlopen("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_LAZY)
            except OSError:
                return None
            import ctypes

            self.library = ctypes.CDLL("libcuda.so.1", handle=handle)
        return self.library


_driver = _Driver()


def is_loaded() -> bool:
    """Return whether the driver library was seen to be loaded when CUDA was last asked for."""
    return _driver.library is not None


def is_initialized() -> bool:
    """Return whether CUDA was initialized, in this process or in one that it was forked from.

    It takes about 20 µs until the driver library is loaded, and 1 µs from then on.
    """
    if _driver.initialized_in is not None:
        return True
    library = _driver.find()
    if library is None:
        return False
    import ctypes

    count = ctypes.c_int()
    if library.cuDeviceGetCount(ctypes.byref(count)) == _NOT_INITIALIZED:
        return False
    _driver.initialized_in = os.getpid()
    return True


def is_forked() -> bool:
    """Return whether CUDA was initialized in a process that this one was forked from, and can't be used."""
    return _driver.initialized_in not in (None, os.getpid())


def devices() -> tuple[str, ...]:
    """Return what CUDA was initialized with in this process.

    Returns
    -------
    tuple[str, ...]
        For `cuda:0`, `cuda:1`, … the 16 bytes of the UUID as text: `8f3a1c52-…`. The driver gives it without
        the "GPU-" or "MIG-" of NVML; the text is empty where it does not answer. There are none where CUDA is
        not initialized, or was initialized without any device.

    """
    if not is_initialized() or is_forked():
        return ()
    import ctypes

    library: Any = _driver.library
    count = ctypes.c_int()
    if library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()  # CUDA_VISIBLE_DEVICES named no device
    found = []
    for ordinal in range(count.value):
        device = ctypes.c_int()
        if library.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
            break
        found.append(_uuid(library, device))
    return tuple(found)


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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=is_initialized)
