"""One run of a block on a device, which is set in each framework at its beginning and restored at its end."""

from __future__ import annotations

import sys
import threading
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from gpu_magic.errors import PlacementError, PlacementWarning
from gpu_magic.frameworks import get, imported, known
from gpu_magic.frameworks.post_import import PostImportHook
from gpu_magic.placement.block import backend_of
from gpu_magic.public import public
from gpu_magic.selection.target import CPU, LogicalDevice
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.placement.block import Block

__all__ = ["Scope", "innermost"]


class _RunningBlocks(threading.local):
    """The blocks that are running in this thread, the innermost last."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []


_running = _RunningBlocks()

# The modules of the frameworks that were left out of a block in this session, each with a warning.
_left_out: set[str] = set()


def innermost() -> LogicalDevice | None:
    """Return the device of the block that this thread runs; None outside of blocks, and in one on several."""
    devices = _running.scopes[-1].devices if _running.scopes else ()
    return devices[0] if len(devices) == 1 else None


class Scope:
    """Entered once, in the thread that runs the block.

    Where a framework that the code evidently uses can't run on the device, the block does not begin. In other
    frameworks that happen to be imported (TensorFlow by TensorBoard, JAX by Keras) the device is set as well;
    they are neither asked for their devices nor started. One that is used after all, and can't run there,
    raises: where it is used, or at the end of the block. One that can't be set, as its insides are not those
    that we know, is left out with one warning a session, unless the code uses it or could use no other.

    Parameters
    ----------
    block
        What was asked for.

    """

    def __init__(self, block: Block) -> None:
        self._block = block
        # The frameworks that have been dealt with, by their modules, and the devices set in each.
        self._set: dict[str, tuple[Framework, tuple[LogicalDevice, ...]]] = {}
        self._scopes: list[AbstractContextManager[Any]] = []
        self._waiting: set[str] = set()  # the modules of those that get the device when they are used
        self._problem = ""  # of a framework that was imported by the block, to be raised when it can be
        self._not_imported = [module for module in known() if module not in sys.modules]
        self._import_hook = PostImportHook(
            self._not_imported, self._when_imported, thread=threading.get_ident()
        )

    @property
    def devices(self) -> tuple[LogicalDevice, ...]:
        """Where the block runs: the CPU where the device can't be used, and that was allowed."""
        return self._block.devices

    @public
    def __enter__(self) -> Self:
        frameworks = [framework for framework in imported() if self._block.is_meant(framework)]
        if problem := self._block.problem(frameworks):
            if not self._block.or_cpu:
                raise PlacementError(problem)
            print(f"Running on the CPU, as {problem}")  # noqa: T201 - what `or_cpu` promises
            self._block = replace(self._block, devices=(CPU,), mirror=False)
        failed = {}
        try:
            for framework in frameworks:
                try:
                    self._set_in(framework, self.devices)
                except PlacementError as error:
                    failed[framework] = str(error)
            self._check_failed(failed)
            self._import_hook.attach()
        except BaseException:
            self._restore(None, None, None)
            raise
        _running.scopes.append(self)
        return self

    def _check_failed(self, failed: Mapping[Framework, str]) -> None:
        """Warn of frameworks that can't be set.

        Raises
        ------
        PlacementError
            The code evidently uses one, or nothing that could be set: it would run elsewhere.

        """
        modules = {framework.module for framework in failed}
        meant = filter(self._block.is_meant, imported())
        used = [framework for framework in meant if self._block.uses(framework.module)]
        others = (framework for framework, _ in self._set.values() if framework.backend() not in modules)
        for framework, why in failed.items():
            if framework in used or not (any(map(self._block.uses, known())) or any(others)):
                raise PlacementError(f"{why}{self._block.advice(used, modules)}")
        for framework, why in failed.items():
            if framework.module not in _left_out:
                _left_out.add(framework.module)
                _warn(f"{why} It is left out; code that uses it does not run in a block.")

    @public
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._import_hook.detach()
        if self in _running.scopes:  # blocks of tasks can end in any order
            _running.scopes.remove(self)
        missed = [] if kind is not None else self._missed()
        self._restore(kind, error, trace)
        for framework in missed:
            _warn(
                f"{framework.name} was first imported in another thread, or by an unusual loader, and was "
                f"not set to {self._block.name}. Import it first."
            )
        if kind is None:
            self._raise_problem()

    def check(self) -> None:
        """Set the device in what has come into use, and raise where a framework can't run on it.

        Raises
        ------
        PlacementError
            Which framework that the block has just imported can't, and why.

        """
        for framework in self._missed():
            self._when_imported(framework.module)
        for module in [module for module in self._waiting if self._block.uses(module)]:
            self._set_when_used(self._set[module][0])
        self._raise_problem()

    def device(self) -> Any:
        """Return the device as the framework calls it that the code uses, to be handed to its functions.

        Where the code uses several, it is the first one's: PyTorch's before the others'. Where it uses none,
        one is asked that can be asked at no cost; else it is the device's name.
        """
        frameworks = [framework for framework, _ in self._set.values()]
        named = [framework for framework in frameworks if self._block.names(framework.module)]
        cheap = [one for one in frameworks if not one.preallocates and not one.backend()]
        own: Callable[[LogicalDevice], Any] = (named or cheap)[0].own_device if named or cheap else str
        found = [own(device) for device in self.devices]
        return found[0] if len(found) == 1 else found

    def names(self) -> list[str]:
        """Return which frameworks the code evidently uses, on which device: `PyTorch on cuda:0`."""
        return [
            f"{framework.name} on {listed(map(framework.name_of, devices))}"
            for framework, devices in self._set.values()
            if self._block.uses(framework.module)
        ]

    def _set_in(
        self, framework: Framework, devices: tuple[LogicalDevice, ...], *, is_used: bool = False
    ) -> None:
        """Make the device a framework's default, until `_restore`."""
        module, waits = framework.module, False
        try:
            if self._block.mirror:
                # It loads all that is there for TensorFlow, which nothing else here needs.
                from gpu_magic.frameworks.tensorflow.mirror import mirrored

                scope = mirrored(devices)
            else:

                def ask() -> bool:
                    return is_used or self._block.uses(module)

                waits = framework.is_waiting(devices[0]) and not ask()
                scope = framework.scope(devices[0], ask)
            scope.__enter__()
        except Exception as error:  # another version of it, with other insides
            name = self._block.name
            why = f"{framework.name} can't be set to {name}: {type(error).__name__}: {error}."
            raise PlacementError(why) from error
        self._scopes.append(scope)
        self._set[module] = framework, devices
        (self._waiting.add if waits else self._waiting.discard)(module)

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

    # Frameworks that the block imports, or brings into use.

    def _when_imported(self, module: str) -> None:
        """Set the device in a framework at the end of its import, and in the one that it computes with."""
        framework = get(module)
        if framework is None or module in self._set or not self._block.is_meant(framework):
            return
        if not self._block.uses(module):
            self._set_or_note(framework)
            return
        self._set_when_used(framework)
        backend = backend_of(framework)
        # It is in use only now; and where Keras alone is meant, it was not known to be meant.
        if backend is not None and (backend.module in self._waiting or backend.module not in self._set):
            self._set_when_used(backend)

    def _set_when_used(self, framework: Framework) -> None:
        """Set the device in a framework that the block is going to use, as far as it has it."""
        devices, block = self.devices, self._block
        try:
            problem = block.problem_at_import(framework)
            if problem and block.or_cpu:
                print(f"{framework.name} runs on the CPU: {problem}.")  # noqa: T201 - what `or_cpu` promises
                devices = (CPU,)
            elif problem:
                self._problem = f"{block.name} can't be used: {problem}."
            if problem and block.mirror and not block.or_cpu:
                self._set[framework.module] = framework, devices  # there is nothing to mirror over
            else:
                self._set_in(framework, devices, is_used=True)
        except Exception as error:  # noqa: BLE001 - see `_set_or_note`
            self._problem = str(error)

    def _set_or_note(self, framework: Framework) -> None:
        """Set the device in a framework that is imported and not used.

        An import that fails at its end can't be tried again, so what is wrong is raised later: by `check`,
        or at the end of the block.
        """
        try:
            self._set_in(framework, self.devices)
        except PlacementError as error:
            try:
                self._check_failed({framework: str(error)})
            except PlacementError as problem:
                self._problem = str(problem)
        except Exception as error:  # noqa: BLE001 - see above
            self._problem = str(error)

    def _missed(self) -> list[Framework]:
        """Return the frameworks whose import was not noticed: in another thread, or by an unusual loader."""
        dealt_with = self._set.keys() | _left_out
        new = [module for module in self._not_imported if module in sys.modules and module not in dealt_with]
        if not new:
            return []
        return [
            framework
            for framework in imported()
            if framework.module in new and self._block.is_meant(framework)
        ]

    def _raise_problem(self) -> None:
        if problem := self._problem:
            self._problem = ""
            raise PlacementError(problem)


def _warn(text: str) -> None:
    warnings.warn_explicit(text, PlacementWarning, "on_gpu", 1, module="gpu_magic")
