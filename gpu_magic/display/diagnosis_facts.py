"""What was read of a process's GPU set-up, as the rows of a compact table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.cuda_versions import fit
from gpu_magic.diagnosis.known import driver_cuda, nvidia_gpus
from gpu_magic.selection.visible import names_of
from gpu_magic.text import bytes_text, counted, listed, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.devices.model import Gpu
    from gpu_magic.devices.unknown import Unknown
    from gpu_magic.diagnosis.facts import Build, Facts, FrontEnd, Kernel, Packages, System

__all__ = ["FactRow", "fact_rows"]

_LONGEST = 200  # characters of a variable's value


class FactRow(NamedTuple):
    """A row: what it is about, what is known of it, and whether a check says that it is fine."""

    name: str
    text: str
    is_judged: bool = False


def fact_rows(facts: Facts) -> Iterator[FactRow]:
    """Yield a row for each thing that was looked at; what could not be read is left out."""
    if facts.machine is not UNKNOWN:
        yield FactRow("driver", _driver(facts.machine, facts.system), not facts.machine.problem)
        if facts.machine.gpus:
            yield FactRow("GPUs", _gpus(facts.machine), is_judged=True)
    if facts.packages is not UNKNOWN:
        for build in facts.packages.builds:
            is_compared = build.cuda is not UNKNOWN and bool(build.cuda and driver_cuda(facts))
            yield FactRow(build.framework, _build(build, facts), is_compared and bool(nvidia_gpus(facts)))
    if facts.kernel is not UNKNOWN:
        yield from _kernel(facts.kernel, facts.machine)
    if facts.packages is not UNKNOWN:
        yield FactRow("NVML's binding", _binding(facts.packages), is_judged=True)
    if facts.system is not UNKNOWN:
        yield from _system(facts.system)
    if facts.front_end is not UNKNOWN and facts.packages is not UNKNOWN:
        yield FactRow("panel", _panel(facts.front_end, facts.packages))


def _driver(machine: Inventory, system: object) -> str:
    if machine.problem:
        return "no GPU can be read"
    mark = f"SIMULATED ({machine.simulated}), " if machine.simulated else ""
    parts = [] if machine.driver_version is UNKNOWN else [machine.driver_version]
    parts += [] if machine.cuda_version is UNKNOWN else [f"CUDA up to {machine.cuda_version}"]
    module = getattr(system, "module", "")
    if not parts and module:
        parts = [f"kernel module {module}, no NVML"]
    return mark + (", ".join(parts) or "AMD's" * ("amd" in machine.vendors) or "versions not known")


def _gpus(machine: Inventory) -> str:
    kinds = Counter(map(_kind, machine.gpus))
    return ", ".join(f"{number} of {kind}" if number > 1 else kind for kind, number in kinds.items())


def _kind(gpu: Gpu) -> str:
    name = "unknown" if gpu.name is UNKNOWN else gpu.name
    more = [] if gpu.memory_total is UNKNOWN else [bytes_text(gpu.memory_total)]
    if gpu.compute_mode is not UNKNOWN and gpu.compute_mode != "Default":
        more.append(f"compute mode {gpu.compute_mode}")
    if gpu.is_split:
        more.append(f"MIG, {counted(len(gpu.mig), 'instance')}")
    shown = ", ".join(more)
    return f"{name} ({shown})" if more else name


def _build(build: Build, facts: Facts) -> str:
    if build.is_cpu_only:
        return f"{build.version}, CPU only"
    if build.other:
        return f"{build.version}, built for {build.other}"
    if build.cuda == "":
        version = "" if build.rocm is UNKNOWN else f" {build.rocm}"
        return f"{build.version}, built for ROCm{version}"
    if build.cuda is UNKNOWN:
        return f"{build.version}, for a CUDA version that its files do not tell"
    driver, built = driver_cuda(facts), f"{build.version}, built for CUDA {build.cuda}"
    if driver and fit(build.cuda, driver) == "minor":
        return (
            f"{built}, newer than the driver's {driver}, by CUDA's minor version compatibility "
            "(code that is compiled from PTX on the spot fails)"
        )
    return built


def _kernel(kernel: Kernel, machine: Inventory | Unknown) -> Iterator[FactRow]:
    for name in names_of(kernel.guard.vendor):
        value = kernel.variables.named((name,))[name]
        is_first = name == names_of(kernel.guard.vendor)[0]
        if value is not None or is_first:
            shown = "not set" if value is None else shortened(value, _LONGEST) or "empty"
            sees = "" if kernel.seen is UNKNOWN else f": {listed(kernel.seen, 'no GPU')}"
            yield FactRow(name, f"{shown}{sees * is_first}")
    sentence = kernel.guard.sentence
    if machine is not UNKNOWN and not machine.gpus:
        sentence = sentence.removesuffix(": the choice can still change")  # there is none
    yield FactRow(kernel.guard.runtime, sentence)


def _binding(packages: Packages) -> str:
    return f"nvidia-ml-py {packages.version('nvidia-ml-py') or '(version not known)'}"


def _system(system: System) -> Iterator[FactRow]:
    kinds = [
        f"a container ({system.container})" if system.container else "",
        "WSL" if system.is_wsl else "",
        f"Jetson ({system.jetson})" if system.jetson else "",
        {"colab": "Colab", "kaggle": "Kaggle"}.get(system.service, ""),
    ]
    if any(kinds):
        yield FactRow("system", ", ".join(filter(None, kinds)))
    if system.capabilities is not None:
        yield FactRow("NVIDIA_DRIVER_CAPABILITIES", shortened(system.capabilities, _LONGEST) or "empty")
    if system.devices:
        gpus = sum(file.path[-1].isdigit() for file in system.devices)
        others = [file.path for file in system.devices if not file.path[-1].isdigit()]
        yield FactRow("device files", listed([*others, f"those of {counted(gpus, 'GPU')}"]), is_judged=True)
    if system.has_mps or system.mps_folder is not None:
        yield FactRow("MPS", "runs" if system.has_mps else "does not run")


def _panel(front: FrontEnd, packages: Packages) -> str:
    here = f"anywidget {packages.version('anywidget') or 'not installed'} here"
    if front.has_answered:
        return f"{here}, and pages answer"
    there = f", {front.anywidget or 'none'} at the Jupyter server" if front.is_known else ""
    return here + there
