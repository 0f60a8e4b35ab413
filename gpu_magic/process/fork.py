"""Looks once before every fork, since the child can't tell any more whether its parent had started CUDA.

It is imported with the package, so that the question is asked from then on; a module of its own, so that
`%reload_ext` does not ask it twice.
"""

from __future__ import annotations

import os

__all__: list[str] = []


def _before_fork() -> None:
    from gpu_magic.process.driver import probe

    probe()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
