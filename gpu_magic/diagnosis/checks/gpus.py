"""GPUs that do not answer, or that CUDA can't use: lost, prohibited, taken, split into nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.checks.visible_devices import choose_meant
from gpu_magic.diagnosis.commands import choose, choose_devices
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.known import nvidia_gpus, on_host, program, system

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.model import Gpu
    from gpu_magic.diagnosis.facts import Facts

__all__ = ["check_gpus"]

_ABOUT = "GPUs"


def check_gpus(facts: Facts) -> Iterator[Finding]:
    for gpu in nvidia_gpus(facts):
        found = _of_gpu(gpu, facts)
        if found is not None and _is_hidden(gpu, facts):  # of the others' it is good to know
            yield Finding("worth knowing", _ABOUT, found.what, "This process does not see it.")
        elif found is not None:
            yield found


def _of_gpu(gpu: Gpu, facts: Facts) -> Finding | None:
    if gpu.problem:
        return _silent(gpu, facts)
    if gpu.is_prohibited:
        what = f"{gpu.label} is in compute mode Prohibited: no process can use CUDA on it."
        return Finding("wrong", _ABOUT, what, "An administrator can change that:", _set_default(gpu))
    if gpu.is_split and not gpu.mig:
        return Finding(
            "wrong",
            _ABOUT,
            f"{gpu.label} is in MIG mode and has no MIG instance: CUDA can't use it.",
            "An administrator makes instances; the whole GPU as one:",
            f"sudo nvidia-smi mig -i {gpu.index} -cgi 0 -C",
        )
    return _taken(gpu, facts) if gpu.is_taken else None


def _is_hidden(gpu: Gpu, facts: Facts) -> bool:
    """Return whether it is known that this process does not see a GPU."""
    seen = UNKNOWN if facts.kernel is UNKNOWN else facts.kernel.seen
    return seen is not UNKNOWN and seen != () and gpu.label not in seen


def _silent(gpu: Gpu, facts: Facts) -> Finding:
    others = tuple(one for one in nvidia_gpus(facts) if not one.problem)
    what = f"{gpu.label} is {gpu.problem}."
    if not others or facts.machine is UNKNOWN:
        return Finding("wrong", _ABOUT, what, on_host(system(facts)), "sudo reboot")
    meaning = (
        "While it is visible, CUDA may not start at all, or count the others differently. A reboot brings a "
        "lost GPU back, or an administrator by nvidia-smi --gpu-reset."
    )
    is_too_late = _is_too_late(facts)
    if facts.kernel is UNKNOWN or facts.kernel.variables.mask is None:
        mend = choose_devices(program(facts), others, facts.machine, is_too_late=is_too_late)
    else:
        mend = choose_meant(facts.kernel, facts.machine, is_too_late=is_too_late)
    return Finding("wrong", _ABOUT, what, f"{meaning} Until then, without it:" if mend else meaning, mend)


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
