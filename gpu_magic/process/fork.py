"""Asks the driver before every fork: the child can't find out whether its parent had initialized CUDA.

It is imported with the package, so that it asks from then on. It is a module of its own, so that
`%reload_ext` does not register it twice.
"""

from __future__ import annotations

import os

__all__: list[str] = []


def _before_fork() -> None:
    from gpu_magic.process.driver import probe  # which imports ctypes: `import gpu_magic` does not

    probe()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
