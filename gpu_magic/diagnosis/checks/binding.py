"""NVIDIA's binding for NVML, nvidia-ml-py, and the package pynvml that gets in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.commands import RESTARTS, install, uninstall
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.known import program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.diagnosis.facts import Facts, Packages, Program

__all__ = ["check_binding"]

_ABOUT = "NVML's binding"


def check_binding(facts: Facts) -> Iterator[Finding]:
    packages, where = facts.packages, program(facts)
    if packages is UNKNOWN:
        return
    other = packages.version("pynvml")
    then = f"Then {RESTARTS[where]}."
    if other and packages.binding_problem:
        what = f"The package pynvml {other} hides NVIDIA's own, nvidia-ml-py: no GPU can be read."
        yield Finding("wrong", _ABOUT, what, then, _remove(where, packages))
    elif packages.binding_problem:
        what = "The module pynvml here is too old, or not NVIDIA's: no GPU can be read."
        yield Finding("wrong", _ABOUT, what, then, install(where, "--force-reinstall --upgrade nvidia-ml-py"))
    elif other:
        what = f"The package pynvml {other} is installed beside NVIDIA's own, nvidia-ml-py."
        meaning = "It is deprecated, warns at each import, and has nothing that is needed."
        yield Finding("worth knowing", _ABOUT, what, meaning, _remove(where, packages))


def _remove(where: Program, packages: Packages) -> str:
    """Return how pynvml is removed, and nvidia-ml-py kept."""
    remove = uninstall(where, "pynvml")
    if not packages.overwrites_binding:
        return remove
    # Up to 8.0 it has a file of the same name as nvidia-ml-py's, which goes with it.
    return f"{remove}\n{install(where, '--force-reinstall nvidia-ml-py')}"
