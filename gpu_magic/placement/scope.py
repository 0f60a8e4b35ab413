"""One run of a block on a device, which is set in each framework at its beginning and restored at its end."""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, Self

from gpu_magic.errors import PlacementError, PlacementWarning
from gpu_magic.frameworks import get, imported, known
from gpu_magic.frameworks.post_import import PostImportHook
from gpu_magic.placement.physical import problem_of
from gpu_magic.selection.target import CPU, LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.placement.physical import LazySnapshot

__all__ = ["Scope", "innermost"]


class _RunningBlocks(threading.local):
    """The devices of the blocks that are running in this thread, the innermost last."""

    def __init__(self) -> None:
        self.devices: list[tuple[LogicalDevice, ...]] = []


_running = _RunningBlocks()


def innermost() -> LogicalDevice | None:
    """Return the device of the block that this thread runs; None outside of blocks, and in one on several."""
    devices = _running.devices[-1] if _running.devices else ()
    return devices[0] if len(devices) == 1 else None


class Scope:
    """Entered once, in the thread that runs the block.

    Where a framework that the code evidently uses can't run on the device, the block does not begin. In other
    frameworks that happen to be imported (TensorFlow by TensorBoard, JAX by Keras) the device is set as well;
    they are neither asked for their devices nor started. One that is used after all, and can't run there,
    raises: where it is used, or at the end of the block.

    Parameters
    ----------
    devices
        The device, or with `mirror` several.
    name
        Returns what the user called it.
    mirror
        Mirror over the devices with TensorFlow, and set them in no other framework.
    only
        The modules of the frameworks to set it in; None for all.
    or_cpu
        Whether to run on the CPU where the device can't be used.
    packages
        The packages that the code evidently uses.
    machine
        The machine, read once for this run.

    """

    def __init__(
        self,
        devices: tuple[LogicalDevice, ...],
        *,
        name: Callable[[], str],
        mirror: bool,
        only: Collection[str] | None,
        or_cpu: bool,
        packages: Container[str],
        machine: LazySnapshot,
    ) -> None:
        self.devices = devices
        self._get_name, self._machine = name, machine
        self._mirror, self._only, self._or_cpu = mirror, only, or_cpu
        self._packages = packages
        # The frameworks that have been dealt with, by their modules, and the devices set in each.
        self._set: dict[str, tuple[Framework, tuple[LogicalDevice, ...]]] = {}
        self._scopes: list[AbstractContextManager[Any]] = []
        self._problem = ""  # of a framework that was imported by the block, to be raised when it can be
        self._not_imported = [module for module in known() if module not in sys.modules]
        self._import_hook = PostImportHook(
            self._not_imported, self._when_imported, thread=threading.get_ident()
        )

    def __enter__(self) -> Self:
        frameworks = [framework for framework in imported() if self._is_meant(framework)]
        is_sure = self.devices == (CPU,) and not self._mirror  # every framework has one CPU
        if not is_sure and (problem := self._why_not(frameworks)):
            if not self._or_cpu:
                raise PlacementError(problem)
            print(f"Running on the CPU, as {problem}")  # noqa: T201 - what `or_cpu` promises
            self.devices, self._mirror = (CPU,), False
        try:
            for framework in frameworks:
                self._set_in(framework, self.devices)
            self._import_hook.attach()
        except BaseException:
            self._restore(None, None, None)
            raise
        _running.devices.append(self.devices)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._import_hook.detach()
        if self.devices in _running.devices:  # blocks of tasks can end in any order
            _running.devices.remove(self.devices)
        missed = [] if kind is not None else self._missed()
        self._restore(kind, error, trace)
        for framework in missed:
            warnings.warn_explicit(
                f"{framework.name} was first imported in another thread, or by an unusual loader, and was "
                f"not set to {self._name}. Import it first.",
                PlacementWarning,
                "on_gpu",
                1,
                module="gpu_magic",
            )
        if kind is None:
            self._raise_problem()

    def check(self) -> None:
        """Raise where a framework that the block has just imported can't run on the device.

        Raises
        ------
        PlacementError
            Which framework can't, and why.

        """
        for framework in self._missed():
            self._when_imported(framework.module)
        self._raise_problem()

    def names(self) -> list[str]:
        """Return which frameworks the code evidently uses, on which device: `PyTorch on cuda:0`."""
        return [
            f"{framework.name} on {listed(map(framework.name_of, devices))}"
            for framework, devices in self._set.values()
            if self._uses(framework.module)
        ]

    @property
    def _name(self) -> str:
        return self._get_name()

    def _set_in(self, framework: Framework, devices: tuple[LogicalDevice, ...]) -> None:
        """Make the device a framework's default, until `_restore`."""
        try:
            if self._mirror:
                # It loads all that is there for TensorFlow, which nothing else here needs.
                from gpu_magic.frameworks.tensorflow.mirror import mirrored

                scope = mirrored(devices)
            else:
                scope = framework.scope(devices[0], functools.partial(self._uses, framework.module))
            scope.__enter__()
        except Exception as error:  # another version of it, with other insides
            why = f"{framework.name} can't be set to {self._name}: {type(error).__name__}: {error}."
            raise PlacementError(why) from error
        self._scopes.append(scope)
        self._set[framework.module] = framework, devices

    def _restore(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore what was before in all frameworks, the last one first, whatever one of them raises."""
        problem: BaseException | None = None
        while self._scopes:
            try:
                self._scopes.pop().__exit__(kind, error, trace)
            except BaseException as raised:  # noqa: BLE001 - it is raised below, when all are restored
                problem = problem or raised
        if problem is not None:
            raise problem

    # Which frameworks.

    def _is_meant(self, framework: Framework) -> bool:
        """Return whether the device is to be set in a framework: see `only` and `mirror`."""
        if self._mirror:
            return framework.module == "tensorflow"
        if self._only is None or framework.module in self._only:
            return True
        # Keras alone is Keras and what it computes with.
        return any(other.module in self._only for other in _built_on(framework.module))

    def _uses(self, module: str) -> bool:
        """Return whether the code evidently uses a framework, itself or through one that is built on it."""
        if self._mirror and module == "tensorflow":
            return True
        return module in self._packages or any(other.module in self._packages for other in _built_on(module))

    # Why the block can't begin.

    def _why_not(self, frameworks: Sequence[Framework]) -> str:
        """Return why the block can't run on the device, as a sentence; empty where it can."""
        used = [framework for framework in frameworks if self._uses(framework.module)]
        problems = {
            framework.module: problem
            for framework in used
            if (problem := _first_problem(framework, self.devices))
        }
        if self._mirror:
            problems |= self._problems_of_mirror()
        if problems:
            advice = _advice(used, problems)
            return f"{self._name} can't be used: {'; '.join(problems.values())}.{advice}"
        if used or all(device.kind == "cpu" for device in self.devices):
            return ""
        return self._why_not_here(frameworks)

    def _why_not_here(self, frameworks: Sequence[Framework]) -> str:
        """Return why the devices can't be used by code that evidently uses no framework.

        A framework that can be asked at no cost knows whether they can; else the machine is asked.
        """
        for framework in frameworks:
            is_cheap = not framework.preallocates and not framework.backend()
            if is_cheap and not _first_problem(framework, self.devices):
                return ""
        problems = (problem_of(device, self._machine) for device in self.devices)
        return next(filter(None, problems), "")

    def _problems_of_mirror(self) -> dict[str, str]:
        """Return why the devices can't be mirrored over, by the modules that are used without TensorFlow."""
        wrong = {
            framework.module: (
                f"--mirror is TensorFlow's, and {framework.name} runs on {framework.backend()}"
            )
            for framework in imported()
            if framework.backend() not in ("", "tensorflow") and framework.module in self._packages
        }
        may_use = "tensorflow" in sys.modules or "tensorflow" in self._packages or "keras" in self._packages
        if not may_use or (self._only is not None and "tensorflow" not in self._only):
            wrong["tensorflow"] = "--mirror is TensorFlow's, and this does not use it"
        return wrong

    # Frameworks that the block imports.

    def _when_imported(self, module: str) -> None:
        """Set the device in a framework at the end of its import.

        An import that fails at its end can't be tried again, so what is wrong is raised later: by `check`,
        or at the end of the block.
        """
        framework = get(module)
        if framework is None or module in self._set or not self._is_meant(framework):
            return
        devices = self.devices
        try:
            problem = self._problem_at_import(framework)
            if problem and self._or_cpu:
                print(f"{framework.name} runs on the CPU: {problem}.")  # noqa: T201 - what `or_cpu` promises
                devices = (CPU,)
            elif problem:
                self._problem = f"{self._name} can't be used: {problem}."
            if problem and self._mirror and not self._or_cpu:
                self._set[module] = framework, devices  # there is nothing to mirror over
            else:
                self._set_in(framework, devices)
        except Exception as error:  # noqa: BLE001 - see above
            self._problem = str(error)

    def _problem_at_import(self, framework: Framework) -> str:
        """Return why a framework that was just imported can't compute on the devices, as a clause.

        The one that it computes with is asked as well: it is in use only now. Those that raise by themselves
        in that case are left to it.
        """
        if not self._uses(framework.module):
            return ""
        backend = get(framework.backend()) if framework.backend() in self._set else None
        for asked in (framework, backend):
            if asked is not None and not all(map(asked.raises_itself, self.devices)):
                problem = _first_problem(asked, self.devices)
                if problem:
                    return problem
        return ""

    def _missed(self) -> list[Framework]:
        """Return the frameworks whose import was not noticed: in another thread, or by an unusual loader."""
        new = [module for module in self._not_imported if module in sys.modules and module not in self._set]
        if not new:
            return []
        return [
            framework for framework in imported() if framework.module in new and self._is_meant(framework)
        ]

    def _raise_problem(self) -> None:
        if problem := self._problem:
            self._problem = ""
            raise PlacementError(problem)


def _first_problem(framework: Framework, devices: Sequence[LogicalDevice]) -> str:
    """Return why a framework can't compute on one of the devices, as a clause; empty where it can on all."""
    return next(filter(None, map(framework.problem, devices)), "")


def _built_on(module: str) -> list[Framework]:
    """Return the imported frameworks that compute with another one: Keras with PyTorch."""
    return [framework for framework in imported() if framework.backend() == module]


def _advice(used: Sequence[Framework], problems: Mapping[str, str]) -> str:
    """Return how to run the code in those of the frameworks that can use the device."""
    rest = [
        framework.module
        for framework in used
        if not {framework.module, framework.backend()} & problems.keys()
    ]
    return f" --only {','.join(rest)} leaves the others out." if rest else ""
