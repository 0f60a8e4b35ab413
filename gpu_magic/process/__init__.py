"""What this process has: whether CUDA was initialized in it, its environment, and what was chosen for it.

The CUDA driver is asked, and neither loaded nor initialized. It is asked before every fork, too, since the
child can't find out whether its parent had initialized CUDA. That begins when the package is imported.
"""

from __future__ import annotations

import os

__all__: list[str] = []


def _ask_before_fork() -> None:
    from gpu_magic.process.driver import is_initialized  # which imports ctypes: `import gpu_magic` does not

    is_initialized()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_ask_before_fork)
