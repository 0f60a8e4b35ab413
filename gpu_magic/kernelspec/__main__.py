"""`python -m gpu_magic.kernelspec --gpus auto -f FILE`: an IPython kernel that starts with GPUs.

It is ipykernel's own application, so signals, restarts and the debugger work as in any IPython kernel. It
chooses GPUs when it loads its extensions: after the connection file is known, before startup files and cells.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from pathlib import Path

if __name__ == "__main__":
    # As in ipykernel_launcher: the kernel must not import a user's `random.py`. ipykernel adds it later.
    if sys.path[0] == "" or Path(sys.path[0]) == Path.cwd():
        del sys.path[0]

    from gpu_magic.errors import GpuMagicError
    from gpu_magic.interrupts import in_background
    from gpu_magic.process.session import current

    reader = current().reader

    def start_driver() -> None:
        with contextlib.suppress(GpuMagicError), in_background():  # `begin` reports the error
            reader.inventory()

    # A driver takes up to a tenth of a second to start. Meanwhile, import ipykernel.
    threading.Thread(target=start_driver, daemon=True).start()

    from ipykernel import kernelapp

    from gpu_magic.kernelspec.begin import begin

    parser = argparse.ArgumentParser(
        prog="python -m gpu_magic.kernelspec", add_help=False, allow_abbrev=False
    )
    parser.add_argument("--gpus", default="auto")
    parser.add_argument("--plain", action="store_true")
    asked, others = parser.parse_known_args()

    class IPKernelApp(kernelapp.IPKernelApp):  # the name in configuration files and in the log
        """An IPython kernel that starts with GPUs."""

        def init_extensions(self) -> None:
            super().init_extensions()  # type: ignore[no-untyped-call]
            begin(self.shell, asked.gpus, is_plain=asked.plain)

    IPKernelApp.launch_instance(others)
