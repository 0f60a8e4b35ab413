"""The frameworks' builds: CPU-only, for another vendor's GPUs, for a CUDA or a GPU that does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.commands import RESTARTS, install, restart, uninstall
from gpu_magic.diagnosis.cuda_versions import fit, is_older, lowest_driver, major
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.known import capabilities, driver_cuda, has_gpu, nvidia_gpus, program, system
from gpu_magic.diagnosis.wheels import fitting_build, fitting_sibling, has_code_for
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.diagnosis.facts import Build, Facts, Packages
    from gpu_magic.diagnosis.finding import Severity

__all__ = ["check_builds"]

_BLIND = 'It ends with "no kernel image is available for execution on the device".'
# What it says itself: "CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer."
_COMPILES = (
    "TensorFlow compiles its code for it when it starts, which can take half an hour, or fails. A newer "
    "release of TensorFlow may have it."
)
_OF_JETSON = "https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform"
_INDEX_OF_JETSON = {"R36": "https://pypi.jetson-ai-lab.io/jp6/cu126"}


def check_builds(facts: Facts) -> Iterator[Finding]:
    packages = facts.packages
    if packages is UNKNOWN:
        return
    if facts.machine is not UNKNOWN and facts.machine.simulated:
        yield from _on_simulated(packages, facts)
        return
    has_nvidia, is_amd = has_gpu(facts), _is_amd(facts)
    for build in packages.builds:
        mend = _mend(build, packages, facts)
        # Where another framework is in use, or can use the GPU, this one may be meant to leave it alone.
        others = [other for other in packages.builds if other is not build]
        is_meant = not build.loaded and any(other.loaded or other.is_complete for other in others)
        has_any = has_nvidia or is_amd
        severity: Severity = "wrong" if has_any and not is_meant else "worth knowing"
        if _is_outdated(build):
            yield _not_loaded_yet(build, facts)
        elif build.is_cpu_only:
            yield _cpu_only(build, severity, mend if has_nvidia else "", facts)
        elif has_nvidia and build.cuda == "":
            kind = build.other or "AMD's GPUs (ROCm)"
            what = f"{_named(build)} was built for {kind}, and this machine has NVIDIA's."
            yield Finding("wrong", build.framework, what, _then(facts), mend)
        elif is_amd and not has_nvidia and build.rocm == "" and not build.other:
            what = f"{_named(build)} was built for NVIDIA's GPUs (CUDA), and this machine has AMD's."
            yield Finding(
                "wrong", build.framework, what, "A build for ROCm is needed: https://rocm.docs.amd.com"
            )
        elif (found := _of_cuda(build, mend, facts)) is not None:
            yield found
        yield from _around(build, packages, mend, severity, facts)


def _on_simulated(packages: Packages, facts: Facts) -> Iterator[Finding]:
    """Find what matters also where the GPUs do not exist, which no build has to fit."""
    for build in packages.builds:
        if _is_outdated(build):
            yield _not_loaded_yet(build, facts)
        elif build.is_cpu_only:
            what = f"{_named(build)} is a CPU-only build."
            yield Finding("worth knowing", build.framework, what, "With SIMULATED GPUs that is right.")
        if build.beside:
            yield _beside(build, "", facts)


def _around(
    build: Build, packages: Packages, mend: str, severity: Severity, facts: Facts
) -> Iterator[Finding]:
    """Find what is missing or in the way beside a build."""
    has_nvidia = has_gpu(facts)
    if (
        build.behind
        and has_nvidia
        and (build.is_cpu_only or build.cuda == "" or _of_cuda(build, mend, facts))
    ):
        yield _several(build, facts)
    if build.framework == "PyTorch" and has_nvidia:
        yield from _siblings(build, packages, facts)
    if build.lacks and has_nvidia:  # without a GPU it is not missed
        what = f"{_named(build)} lacks {build.lacks}."
        yield Finding(severity, build.framework, what, _then(facts) if mend else "", mend)
    if build.beside:
        yield _beside(build, mend, facts)


def _several(build: Build, facts: Facts) -> Finding:
    """Say that a build that can't be used is before another one in `sys.path`."""
    what = f"{build.framework} is installed more than once: {build.version} hides {listed(build.behind)}."
    meaning = (
        f"Python takes the first in sys.path, as that of the user or of PYTHONPATH; {build.package}.__file__ "
        "tells where it is. Where pip may remove it:"
    )
    mend = uninstall(program(facts), build.package, build.installer)
    return Finding("worth knowing", build.framework, what, meaning, mend)


def _siblings(build: Build, packages: Packages, facts: Facts) -> Iterator[Finding]:
    for name, version in packages.siblings:
        if mend := fitting_sibling(name, version, build, program(facts)):
            what = f"{name} {version} was not built for PyTorch {build.version}."
            yield Finding("wrong", build.framework, what, f"Its operators fail on GPUs. {_then(facts)}", mend)


def _beside(build: Build, mend: str, facts: Facts) -> Finding:
    """Find distributions that are in each other's way."""
    names = [build.package, *build.beside]
    if build.framework == "JAX":  # its plug-ins have files of their own
        names = [part for part in build.parts if part.endswith("-plugin")]
        what = f"{' and '.join(names)} are both installed."
        meaning = "JAX takes one of them for CUDA, and shows an error for the other. To have one alone:"
        return Finding("worth knowing", build.framework, what, meaning, mend)
    what = f"{' and '.join(names)} are installed over each other."
    meaning = "Which files are whose is not known any more: remove all of them, and install one again."
    remove = uninstall(program(facts), " ".join(names), build.installer)
    return Finding("worth knowing", build.framework, what, meaning, mend or remove)


def _cpu_only(build: Build, severity: Severity, mend: str, facts: Facts) -> Finding:
    asks = {
        "PyTorch": "torch.cuda.is_available() is False with it, on any machine.",
        "JAX": "jax.devices() has the CPU alone with it, on any machine.",
        "TensorFlow": 'tf.config.list_physical_devices("GPU") is empty with it, on any machine.',
    }
    what = f"{_named(build)} is a CPU-only build."
    meaning = f"{asks.get(build.framework, '')} {_then(facts)}" if mend else asks.get(build.framework, "")
    return Finding(severity, build.framework, what, meaning.strip(), mend)


def _of_cuda(build: Build, mend: str, facts: Facts) -> Finding | None:
    """Find a build for a CUDA that the driver does not run, or that has no code for a GPU."""
    driver = driver_cuda(facts)
    if build.cuda is UNKNOWN or not build.cuda or not nvidia_gpus(facts):
        return None
    if driver and fit(build.cuda, driver) == "too new":
        version = facts.machine.driver_version if facts.machine is not UNKNOWN else UNKNOWN
        has = "the driver" if version is UNKNOWN else f"the driver ({version})"
        what = f"{_named(build)} was built for CUDA {build.cuda}, and {has} runs CUDA up to {driver}."
        least = lowest_driver(build.cuda)
        needs = f"CUDA {major(build.cuda)} needs the driver {least} or newer. " if least else ""
        where = system(facts)
        newer = "a newer driver, in Windows" if where is not None and where.is_wsl else "a newer driver"
        else_ = (
            f"With this driver: {_then(facts)}"
            if mend
            else f"No build of it for this driver is known: it needs {newer}."
        )
        return Finding("wrong", build.framework, what, f"{needs}{else_}", mend)
    blind = [
        gpu
        for gpu in nvidia_gpus(facts)
        if gpu.speed is not UNKNOWN and not has_code_for(build, gpu.speed.capability)
    ]
    if not blind:
        return None
    first = blind[0]
    capability = first.speed.capability if first.speed is not UNKNOWN else (0, 0)
    what = (
        f"{_named(build)} was built for CUDA {build.cuda}, which has no code for {first.label} "
        f"({first.name}, compute capability {'.'.join(map(str, capability))})."
    )
    if build.framework == "TensorFlow" and is_older(build.cuda, capability):
        return Finding("worth knowing", build.framework, what, _COMPILES, mend)
    return Finding(
        "wrong" if len(blind) == len(nvidia_gpus(facts)) else "worth knowing",
        build.framework,
        what,
        f"{_BLIND} {_then(facts) if mend else ''}".strip(),
        mend,
    )


def _is_outdated(build: Build) -> bool:
    """Return whether another version is imported than is installed, as after an installation."""
    if build.framework == "PyTorch":  # its own version has the CUDA version, too
        return bool(build.loaded) and build.loaded != build.version
    return bool(build.loaded) and build.loaded.partition("+")[0] != build.version.partition("+")[0]


def _not_loaded_yet(build: Build, facts: Facts) -> Finding:
    what = f"{build.framework} {build.loaded} is imported here, and {build.version} is installed since."
    where = program(facts)
    return Finding("wrong", build.framework, what, "What is imported stays until:", restart(where))


def _mend(build: Build, packages: Packages, facts: Facts) -> str:
    where = system(facts)
    if where is not None and where.jetson and build.framework == "PyTorch":
        index = _INDEX_OF_JETSON.get(where.jetson)
        return (
            install(program(facts), f"--force-reinstall torch --index-url {index}") if index else _OF_JETSON
        )
    return fitting_build(build, packages, driver_cuda(facts), capabilities(facts), program(facts))


def _then(facts: Facts) -> str:
    return f"Install this build, and {RESTARTS[program(facts)]}:"


def _named(build: Build) -> str:
    return f"{build.framework} {build.version}"


def _is_amd(facts: Facts) -> bool:
    return facts.machine is not UNKNOWN and "amd" in facts.machine.vendors
