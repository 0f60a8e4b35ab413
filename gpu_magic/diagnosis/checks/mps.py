"""MPS, NVIDIA's service by which processes share a GPU: named and not there, or with a share of it only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.diagnosis.commands import command
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.known import program, system
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.diagnosis.facts import Facts

__all__ = ["check_mps"]

_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def check_mps(facts: Facts) -> Iterator[Finding]:
    where = system(facts)
    if where is None:
        return
    if where.mps_folder is not None and not where.has_mps:
        about = "CUDA_MPS_PIPE_DIRECTORY names a folder in which MPS does not run"
        yield Finding(
            "worth knowing",
            "MPS",
            f"{about}: {shortened(where.mps_folder, 60)}.",
            "CUDA works without MPS, unless the GPU is in an exclusive compute mode. To start it there:",
            command(program(facts), "nvidia-cuda-mps-control -d"),
            public=f"{about}.",
        )
    if where.mps_share and where.mps_share.strip() not in ("100", "100.0"):
        yield Finding(
            "worth knowing",
            "MPS",
            f"{_SHARE}={shortened(where.mps_share, 20)}: CUDA uses that share of each GPU's multiprocessors.",
            "To have all of them, before CUDA is started:",
            f"unset {_SHARE}"
            if program(facts) == "shell"
            else f'import os; os.environ.pop("{_SHARE}", None)',
        )
