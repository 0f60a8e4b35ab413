"""GPUs that do not answer, or that CUDA can't use: lost, prohibited, taken, split into nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.commands import choose
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.known import nvidia_gpus, program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.model import Gpu
    from gpu_magic.diagnosis.facts import Facts

__all__ = ["check_gpus"]

_ABOUT = "GPUs"


def check_gpus(facts: Facts) -> Iterator[Finding]:
    gpus = nvidia_gpus(facts)
    for gpu in gpus:
        if gpu.problem:
            yield _silent(gpu, facts)
        elif gpu.is_prohibited:
            what = f"{gpu.label} is in compute mode Prohibited: no process can use CUDA on it."
            yield Finding("wrong", _ABOUT, what, "An administrator can change that:", _set_default(gpu))
        elif gpu.is_split and not gpu.mig:
            yield Finding(
                "wrong",
                _ABOUT,
                f"{gpu.label} is in MIG mode and has no MIG instance: CUDA can't use it.",
                "An administrator makes instances; the whole GPU as one:",
                f"sudo nvidia-smi mig -i {gpu.index} -cgi 0 -C",
            )
        elif gpu.is_taken:
            yield _taken(gpu, facts)


def _silent(gpu: Gpu, facts: Facts) -> Finding:
    others = [one.number_text for one in nvidia_gpus(facts) if not one.problem]
    meaning = (
        "While it is visible, CUDA may not start at all, or count the others differently. A reboot brings a "
        "lost GPU back, or an administrator by nvidia-smi --gpu-reset. Until then, without it:"
    )
    if not others:
        return Finding("wrong", _ABOUT, f"{gpu.label} is {gpu.problem}.", mend="sudo reboot")
    return Finding(
        "wrong",
        _ABOUT,
        f"{gpu.label} is {gpu.problem}.",
        meaning,
        choose(program(facts), ",".join(others), is_too_late=_is_too_late(facts)),
    )


def _taken(gpu: Gpu, facts: Facts) -> Finding:
    """Say that a GPU lets one process in, and which mode makes it so."""
    is_alone = len(nvidia_gpus(facts)) == 1
    mode = f"{gpu.label} is in compute mode {gpu.compute_mode}"
    what = f"{mode}, and another process has it: CUDA can't use it now."
    mend = _set_default(gpu) if is_alone else choose(program(facts), "auto", is_too_late=_is_too_late(facts))
    return Finding("wrong" if is_alone else "worth knowing", _ABOUT, what, mend=mend)


def _set_default(gpu: Gpu) -> str:
    return f"sudo nvidia-smi -i {gpu.index} -c DEFAULT"


def _is_too_late(facts: Facts) -> bool:
    return facts.kernel is not UNKNOWN and not facts.kernel.guard.can_change
