"""Which CUDA a driver runs, and which GPUs a CUDA version has code for: pure functions of versions.

Sources:

- NVIDIA, "CUDA Compatibility": a driver runs what was built for an older CUDA ("backward compatibility").
  From CUDA 11 on it also runs what was built for a newer minor release of its own major version ("minor
  version compatibility"), "with limited feature-set": what needs a newer driver returns an error, and PTX
  of a newer toolkit can't be compiled by the driver (CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222). Before CUDA
  11 each minor release needed a driver of its own.
- CUDA Toolkit Release Notes, "CUDA Driver": the minimum driver for minor version compatibility on Linux:
  11.x 450.80.02, 12.x 525.60.13, 13.x 580.65.06.
- CUDA Features Archive, 13.0: "supports all NVIDIA architectures from Turing through Grace Blackwell",
  which are compute capability 7.5 and up; 12.8 is the first with code for Blackwell (10.0, 12.0), 11.8 for
  Ada and Hopper (8.9, 9.0), 11.1 for 8.6, 11.0 for 8.0. Code for 8.0 runs on 8.6 and 8.9, of one major
  capability (CUDA programming guide, "Binary compatibility").

`nvmlSystemGetCudaDriverVersion` tells the version of the libcuda.so that is found, so that with NVIDIA's
package for forward compatibility (cuda-compat) it is that package's.
"""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["Fit", "fit", "is_older", "lowest_driver", "major", "of_driver", "parse", "runs_on"]

Fit = Literal["older", "same", "minor", "too new"]

# The lowest driver for each major version.
_LOWEST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
_FIRST_WITH_MINOR_COMPATIBILITY = 11
# From which CUDA on there is code for a major compute capability.
_FIRST_CUDA = {8: (11, 0), 9: (11, 8), 10: (12, 8), 11: (13, 0), 12: (12, 8)}
# The lowest compute capability from a CUDA version on.
_LOWEST_CAPABILITY = {11: (3, 5), 12: (5, 0), 13: (7, 5)}


def parse(version: str) -> tuple[int, int]:
    """Return a CUDA version's two numbers; the second is 0 where it has none: (12, 8), (12, 0).

    Raises
    ------
    ValueError
        It is no version.

    """
    found = re.match(r"(\d+)(?:\.(\d+))?", version)
    if found is None:
        raise ValueError(f"{version!r} is no version of CUDA")
    return int(found[1]), int(found[2] or 0)


def major(version: str) -> int:
    """Return a CUDA version's first number."""
    return parse(version)[0]


def fit(built_for: str, driver: str) -> Fit:
    """Return how what was built for a CUDA version fits the one that a driver has.

    Returns
    -------
    Fit
        "minor": it runs by minor version compatibility, with its limits. "too new": it does not.

    """
    built, has = parse(built_for), parse(driver)
    if built[0] == has[0] and ("." not in built_for or built == has):
        return "same"
    if built < has:
        return "older"
    return "minor" if built[0] == has[0] >= _FIRST_WITH_MINOR_COMPATIBILITY else "too new"


def lowest_driver(cuda: str) -> str:
    """Return the lowest driver that runs a CUDA version; empty where it is not in the table."""
    return _LOWEST_DRIVER.get(major(cuda), "")


def of_driver(version: str) -> str:
    """Return the major version of CUDA that a driver runs, by the driver's own: "12"; empty for none."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    lowest = {cuda: [int(number) for number in first.split(".")] for cuda, first in _LOWEST_DRIVER.items()}
    return str(max((cuda for cuda, first in lowest.items() if numbers >= first), default=""))


def runs_on(cuda: str, capability: tuple[int, int]) -> bool:
    """Return whether a CUDA version can have code for a GPU; True where that is not known.

    Of a version without its second number, "12", the newest is taken.
    """
    built = parse(cuda) if "." in cuda else (major(cuda), 99)
    is_enough = capability >= _LOWEST_CAPABILITY.get(built[0], (0, 0))
    return is_enough and not is_older(cuda, capability)


def is_older(cuda: str, capability: tuple[int, int]) -> bool:
    """Return whether a CUDA version is older than a GPU, so that no code for that GPU is in it."""
    built = parse(cuda) if "." in cuda else (major(cuda), 99)
    return built < _FIRST_CUDA.get(capability[0], (0, 0))
