"""The builds of PyTorch, JAX, TensorFlow and CuPy that fit a driver, and the command that installs one.

Which CUDA PyTorch publishes each release for, and the compute capabilities in each: its RELEASE.md and
"Previous versions"; for 2.8 pytorch #157517, for 2.12 #182849, for 2.13 #187075, for 2.14 #190355. Since
2.8 the builds for CUDA 12.8 and later begin at 7.5, and those for 12.6 have no Blackwell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.commands import install
from gpu_magic.diagnosis.cuda_versions import fit, major, parse, runs_on

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpu_magic.devices.unknown import Unknown
    from gpu_magic.diagnosis.facts import Build, Packages, Program

__all__ = ["fitting_build", "has_code_for", "pytorch_cuda"]

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
    """Return the command that installs a build that can use this machine's GPUs; empty where none is known.

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
    release = build.version.partition("+")[0]
    if build.framework == "PyTorch":
        return _install_pytorch(build, packages, driver, capabilities, program)
    if build.framework == "TensorFlow":
        fits = major(driver) >= 12  # noqa: PLR2004 - TensorFlow 2.15 to 2.21 are built for CUDA 12
        words = f'"tensorflow[and-cuda]=={release}"'
        return install(program, words, build.installer) if fits else ""
    newest = min(major(driver), 13)
    if newest < 12:  # noqa: PLR2004
        return ""
    what = f'"jax[cuda{newest}]=={release}"' if build.framework == "JAX" else f"cupy-cuda{newest}x"
    return install(program, what, build.installer)


def _install_pytorch(
    build: Build, packages: Packages, driver: str, capabilities: Collection[tuple[int, int]], program: Program
) -> str:
    cuda = pytorch_cuda(build.version, driver, capabilities)
    if build.installer == "conda":
        return f'conda install -c conda-forge "pytorch-gpu" "cuda-version={major(driver)}"'
    if not cuda:
        return ""
    label = f"cu{cuda.replace('.', '')}"
    # The local version is named: pip takes 2.13.0+cpu for a 2.13.0 that is there already.
    names = [("torch", build.version), *packages.siblings]
    words = " ".join(f"{name}=={version.partition('+')[0]}+{label}" for name, version in names)
    if not re.fullmatch(
        r"\d+(\.\d+)+(\+.*)?", build.version
    ):  # a nightly, or NVIDIA's own, is not published there
        words = " ".join(["--force-reinstall", *(name for name, _ in names)])
    return install(program, f"{words} --index-url {_INDEX}/{label}", build.installer)


def _second_number(version: str) -> int:
    return parse(version)[1] if version.startswith("2.") else 0
