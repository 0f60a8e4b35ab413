"""A block that is to run on a device: which frameworks that concerns, and why it can't begin."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_magic.frameworks import get, imported, known
from gpu_magic.placement.physical import problem_of
from gpu_magic.selection.target import CPU
from gpu_magic.spelling import in_python, option, spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Sequence

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.placement.physical import LazySnapshot
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["Block", "backend_of"]


@dataclass(frozen=True)
class Block:
    """What was asked for a block.

    Parameters
    ----------
    devices
        The device, or with `mirror` several.
    get_name
        Returns what the user called it.
    mirror
        Mirror over the devices with TensorFlow, and set them in no other framework.
    only
        The modules of the frameworks to set it in; None for all. Those that are named count as used.
    or_cpu
        Whether to run on the CPU where the device can't be used.
    packages
        The packages that the code evidently uses.
    machine
        The machine, read once for this block.
    is_in_python
        Whether options are written as in Python: as they were where the block was asked for.

    """

    devices: tuple[LogicalDevice, ...]
    get_name: Callable[[], str]
    mirror: bool
    only: Collection[str] | None
    or_cpu: bool
    packages: Container[str]
    machine: LazySnapshot
    is_in_python: bool = field(default_factory=in_python.get)

    @property
    def name(self) -> str:
        """What the user called the device."""
        return self.get_name()

    # Which frameworks.

    def is_meant(self, framework: Framework) -> bool:
        """Return whether the device is to be set in a framework: see `only` and `mirror`."""
        if self.mirror:
            return framework.module == "tensorflow"
        if self.only is None or framework.module in self.only:
            return True
        # Keras alone is Keras and what it computes with.
        return any(other.module in self.only for other in _built_on(framework.module))

    def uses(self, module: str) -> bool:
        """Return whether the code evidently uses a framework, itself or through one that is built on it."""
        if self.mirror and module == "tensorflow":
            return True
        return self.names(module) or any(self.names(other.module) for other in _built_on(module))

    def names(self, module: str) -> bool:
        """Return whether the code evidently uses a framework itself, or `only` names it."""
        return module in (self.only or ()) or module in self.packages

    # Why the block can't begin.

    def problem(self, frameworks: Sequence[Framework]) -> str:
        """Return why the block can't run on the device, as a sentence; empty where it can."""
        if self.devices == (CPU,) and not self.mirror:
            return ""  # every framework has one CPU
        with spelled(is_in_python=self.is_in_python):
            return self._problem(frameworks)

    def _problem(self, frameworks: Sequence[Framework]) -> str:
        used = [framework for framework in frameworks if self.uses(framework.module)]
        problems = {
            framework.module: problem for framework in used if (problem := self._first_problem(framework))
        }
        if self.mirror:
            problems |= self._problems_of_mirror()
        if problems:
            advice = self.advice(used, problems)
            return f"{self.name} can't be used: {'; '.join(problems.values())}.{advice}"
        if used or all(device.kind == "cpu" for device in self.devices):
            return ""
        return self._problem_here(frameworks)

    def problem_at_import(self, framework: Framework) -> str:
        """Return why a framework that was just imported can't compute on the devices, as a clause.

        The one that it computes with is asked as well: it is in use only now. Those that raise by themselves
        in that case are left to it.
        """
        for asked in (framework, backend_of(framework)):
            if asked is not None and not all(map(asked.raises_itself, self.devices)):
                problem = self._first_problem(asked)
                if problem:
                    return problem
        return ""

    def _first_problem(self, framework: Framework) -> str:
        """Return why a framework can't compute on one of the devices, as a clause; empty where it can."""
        return next(filter(None, map(framework.problem, self.devices)), "")

    def _problem_here(self, frameworks: Sequence[Framework]) -> str:
        """Return why the devices can't be used by code that evidently uses no framework.

        A framework that can be asked at no cost knows whether they can; else the machine is asked.
        """
        for framework in frameworks:
            is_cheap = not framework.preallocates and not framework.backend()
            if is_cheap and not self._first_problem(framework):
                return ""
        problems = (problem_of(device, self.machine) for device in self.devices)
        return next(filter(None, problems), "")

    def _problems_of_mirror(self) -> dict[str, str]:
        """Return why the devices can't be mirrored over, by the modules that are used without TensorFlow."""
        mirror = option("mirror", True)
        wrong = {
            framework.module: f"{mirror} is TensorFlow's, and {framework.name} runs on {framework.backend()}"
            for framework in imported()
            if framework.backend() not in ("", "tensorflow") and framework.module in self.packages
        }
        may_use = "tensorflow" in sys.modules or "tensorflow" in self.packages or "keras" in self.packages
        if not may_use:
            wrong["tensorflow"] = (
                f"{mirror} is for code that uses TensorFlow (or Keras on it), and this does not, so name one "
                "device without it"
            )
        elif self.only is not None and "tensorflow" not in self.only:
            only = option("only", ",".join(self.only))
            wrong["tensorflow"] = f"{mirror} is for TensorFlow, which {only} leaves out"
        return wrong

    def advice(self, used: Sequence[Framework], problems: Container[str]) -> str:
        """Return how to run the code in those of the frameworks that can use the device."""
        rest = [
            framework.module
            for framework in used
            if framework.module not in problems and framework.backend() not in problems
        ]
        return f" {option('only', ','.join(rest))} leaves the others out." if rest else ""


def backend_of(framework: Framework) -> Framework | None:
    """Return the framework that another one computes with: PyTorch, for Keras on it."""
    module = framework.backend()
    return get(module) if module in known() and sys.modules.get(module) is not None else None


def _built_on(module: str) -> list[Framework]:
    """Return the imported frameworks that compute with another one: Keras with PyTorch."""
    return [framework for framework in imported() if framework.backend() == module]
