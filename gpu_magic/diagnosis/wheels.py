"""The builds of PyTorch, JAX, TensorFlow and CuPy that fit a driver, and the command that installs one.

Which CUDA PyTorch publishes each release for, and the compute capabilities in each: its RELEASE.md and
"Previous versions"; for 2.8 pytorch #157517, for 2.12 #182849, for 2.13 #187075, for 2.14 #190355. Since
2.8 the builds for CUDA 12.8 and later begin at 7.5, and those for 12.6 have no Blackwell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.commands import conda_install, install, uninstall
from gpu_magic.diagnosis.cuda_versions import fit, major, parse, runs_on

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpu_magic.devices.unknown import Unknown
    from gpu_magic.diagnosis.facts import Build, Packages, Program

__all__ = ["fitting_build", "fitting_sibling", "has_code_for", "pytorch_cuda"]

_INDEX = "https://download.pytorch.org/whl"
# By the second number of PyTorch 2.x; the last is taken for later ones.
_PYTORCH: dict[int, tuple[str, ...]] = {
    0: ("11.7", "11.8"),
    1: ("11.8", "12.1"),
    2: ("11.8", "12.1"),
    3: ("11.8", "12.1"),
    4: ("11.8", "12.1", "12.4"),
    5: ("11.8", "12.1", "12.4"),
    6: ("11.8", "12.4", "12.6"),
    7: ("11.8", "12.6", "12.8"),
    8: ("12.6", "12.8", "12.9"),
    9: ("12.6", "12.8", "13.0"),
    10: ("12.6", "12.8", "13.0"),
    11: ("12.6", "12.8", "13.0"),
    12: ("12.6", "13.0", "13.2"),
    13: ("12.6", "13.0", "13.2"),
    14: ("12.6", "13.0", "13.2"),
}
_NEW_ARCHITECTURES = 8  # PyTorch 2.8
_MAJORS = (13, 12)
_CUDA_OF_TENSORFLOW = 12  # of 2.15 to 2.21


def has_code_for(build: Build, capability: tuple[int, int]) -> bool:
    """Return whether a build can have code for a GPU; True where that is not known."""
    if build.cuda is UNKNOWN or not build.cuda:
        return True
    if build.framework == "PyTorch" and _second_number(build.version) >= _NEW_ARCHITECTURES:
        return _pytorch_runs_on(build.cuda, capability)
    return runs_on(build.cuda, capability)


def pytorch_cuda(version: str, driver: str, capabilities: Collection[tuple[int, int]]) -> str:
    """Return the CUDA version of the build of a PyTorch release to install; empty where none fits.

    It is the newest one that the driver knows, else the oldest that runs by minor version compatibility.

    Parameters
    ----------
    version
        PyTorch's: "2.13.0+cpu".
    driver
        The CUDA version of the driver.
    capabilities
        The compute capabilities of the GPUs.

    """
    if not version.startswith("2."):
        return ""
    published = _PYTORCH[min(_second_number(version), max(_PYTORCH))]
    fitting = {
        cuda: how
        for cuda in published
        if (how := fit(cuda, driver)) != "too new"
        and all(_pytorch_runs_on(cuda, capability) for capability in capabilities)
    }
    known = [cuda for cuda, how in fitting.items() if how != "minor"]
    return known[-1] if known else next(iter(fitting), "")


def _pytorch_runs_on(cuda: str, capability: tuple[int, int]) -> bool:
    if parse(cuda) >= (12, 8) and capability < (7, 5):
        return False
    return runs_on(cuda, capability)


def fitting_build(
    build: Build,
    packages: Packages,
    driver: str | Unknown,
    capabilities: Collection[tuple[int, int]],
    program: Program,
) -> str:
    """Return what installs a build that can use this machine's GPUs; empty where none is known.

    Parameters
    ----------
    build
        The framework as it is installed; its release is kept.
    packages
        What is installed beside it.
    driver
        The CUDA version of the driver; UNKNOWN or empty where it is not known.
    capabilities
        The compute capabilities of the GPUs.
    program
        Where it is typed.

    """
    if driver is UNKNOWN or not driver:
        return ""
    fitting = _fitting_majors(driver, capabilities)
    if not fitting and build.framework != "PyTorch":
        return ""
    if build.framework == "PyTorch":
        return _install_pytorch(build, packages, driver, capabilities, program)
    if build.framework == "TensorFlow":
        return _install_tensorflow(build, program) if _CUDA_OF_TENSORFLOW in fitting else ""
    if build.framework == "JAX":
        return _install_jax(build, fitting, program)
    name = f"cupy-cuda{_preferred(build, fitting)[0]}x"
    return _replace(build, program, name, name)


def _fitting_majors(driver: str, capabilities: Collection[tuple[int, int]]) -> list[int]:
    """Return the major versions of CUDA that a driver runs and that have code for all GPUs, the newest first.

    They are those that JAX, TensorFlow and CuPy have builds for.
    """
    return [
        cuda
        for cuda in _MAJORS
        if cuda <= major(driver) and all(runs_on(str(cuda), capability) for capability in capabilities)
    ]


def _install_tensorflow(build: Build, program: Program) -> str:
    if build.cuda is not UNKNOWN and build.cuda and not build.lacks and not build.beside:
        return ""  # it would be the same build again
    if build.extras and "and-cuda" not in build.extras:
        return ""  # before 2.14
    if build.installer == "conda":
        return conda_install(program, f'"tensorflow-gpu" "cuda-version={_CUDA_OF_TENSORFLOW}"')
    name = "tf-nightly" if build.package.startswith("tf-nightly") else "tensorflow"
    return _replace(build, program, f'"{name}[and-cuda]=={_release(build)}"', name)


def _install_jax(build: Build, fitting: list[int], program: Program) -> str:
    # The plug-in that is there comes first: another one would leave it where it is.
    offered = [
        cuda for cuda in _preferred(build, fitting) if not build.extras or f"cuda{cuda}" in build.extras
    ]
    if not offered:
        return ""
    name = f"jax-cuda{offered[0]}-plugin"
    others = [part for part in build.parts if not part.startswith(f"jax-cuda{offered[0]}-")]
    remove = [uninstall(program, " ".join(others), build.installer)] * bool(others)
    if build.beside and not build.lacks and name in build.parts:
        return "\n".join(remove)  # what is left is complete
    add = install(program, f'"jax[cuda{offered[0]}]=={_release(build)}"', build.installer)
    return "\n".join([*remove, add])


def _preferred(build: Build, fitting: list[int]) -> list[int]:
    """Return the major versions that fit with the one first that is there."""
    has = None if build.cuda is UNKNOWN or not build.cuda else major(build.cuda)
    return sorted(fitting, key=lambda cuda: cuda != has)


def _replace(build: Build, program: Program, what: str, name: str) -> str:
    """Return how a build is installed in place of all that have the same files."""
    add = install(program, what, build.installer)
    if set(build.parts) <= {name}:
        return add
    return f"{uninstall(program, ' '.join(build.parts), build.installer)}\n{add}"


def _release(build: Build) -> str:
    return build.version.partition("+")[0]


def _install_pytorch(
    build: Build, packages: Packages, driver: str, capabilities: Collection[tuple[int, int]], program: Program
) -> str:
    cuda = pytorch_cuda(build.version, driver, capabilities)
    if build.installer == "conda":
        fitting = _fitting_majors(driver, capabilities)
        return conda_install(program, f'"pytorch-gpu" "cuda-version={fitting[0]}"') if fitting else ""
    if not cuda:
        return ""
    label = f"cu{cuda.replace('.', '')}"
    # The local version is named: pip takes 2.13.0+cpu for a 2.13.0 that is there already.
    names = [("torch", build.version), *packages.siblings]
    if _is_published(build.version):
        words = " ".join(_with_label(name, version, label) for name, version in names)
    else:
        words = " ".join(["--force-reinstall", *(name for name, _ in names)])
    return install(program, f"{words} --index-url {_INDEX}/{label}", build.installer)


def fitting_sibling(name: str, version: str, build: Build, program: Program) -> str:
    """Return what installs a companion of PyTorch's for the build that is there; empty where it fits.

    One for the CPU lacks the operators of GPUs ("Could not run 'torchvision::nms' with arguments from the
    'CUDA' backend"); for another major version of CUDA torchvision raises an error (`_check_cuda_version`).
    """
    label, its = build.version.partition("+")[2], version.partition("+")[2]
    kinds = [re.fullmatch(r"cu(\d+)\d|cpu", one) for one in (label, its)]
    if not all(kinds) or len({one[1] for one in kinds if one}) == 1 or label == "cpu":
        return ""
    return install(
        program, f"{_with_label(name, version, label)} --index-url {_INDEX}/{label}", build.installer
    )


def _is_published(version: str) -> bool:
    """Return whether PyTorch publishes it: no nightly, and not NVIDIA's own."""
    return re.fullmatch(r"\d+(\.\d+)+(\+.*)?", version) is not None


def _with_label(name: str, version: str, label: str) -> str:
    return f"{name}=={version.partition('+')[0]}+{label}" if _is_published(version) else name


def _second_number(version: str) -> int:
    return parse(version)[1] if version.startswith("2.") else 0
