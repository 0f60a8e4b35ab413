"""One run of a block on a device, which is set in each framework at its beginning and restored at its end."""

from __future__ import annotations

import sys
import threading
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from gpu_magic.errors import PlacementError, PlacementWarning
from gpu_magic.frameworks import get, imported, known
from gpu_magic.frameworks.post_import import PostImportHook
from gpu_magic.frameworks.target import CPU, LogicalDevice
from gpu_magic.frameworks.uses import Evidence
from gpu_magic.process.physical import LazySnapshot, locate, running
from gpu_magic.public import public
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from types import CodeType, TracebackType

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.target import Target

__all__ = ["Scope", "Wish"]

# The modules of the frameworks that were left out of a block in this session, each with a warning.
_left_out: set[str] = set()


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for a block, as `on_gpu` describes it."""

    targets: tuple[Target, ...]
    only: Collection[str] | None
    or_cpu: bool
    mirror: bool
    code: Callable[[], Iterable[CodeType]]  # that is to run, and where its names are looked up
    namespace: Mapping[str, Any]


class Scope:
    """Entered once, in the thread that runs the block.

    If a framework that the code evidently uses can't run on the device, the block does not start. In other
    frameworks that happen to be imported (TensorFlow by TensorBoard, JAX by Keras) the device is set as well;
    they are neither asked for their devices nor started. If such a framework is used after all, and can't run
    there, it raises: when it is used, or at the end of the block. A framework that can't be set, as its
    insides are not those that we know, is left out with one warning a session, unless the code uses it or
    could use no other.

    Parameters
    ----------
    wish
        What was asked for.

    Attributes
    ----------
    devices
        Where the block runs: the CPU if the device can't be used and `or_cpu` was given.
    machine
        The machine, read at most once for the block.

    """

    def __init__(self, wish: Wish) -> None:
        self.devices: tuple[LogicalDevice, ...] = ()
        self._wish, self._mirror = wish, wish.mirror
        self.machine = LazySnapshot()
        self._evidence = Evidence(wish.code, wish.namespace)
        # The frameworks that have been dealt with, by their modules, and the devices set in each.
        self._set: dict[str, tuple[Framework, tuple[LogicalDevice, ...]]] = {}
        self._scopes = ExitStack()
        self._waiting: set[str] = set()  # the modules of those that get the device when they are used
        self._problem = ""  # of a framework that was imported by the block, to be raised when it can be
        self._not_imported = [module for module in known() if module not in sys.modules]
        self._import_hook = PostImportHook(
            self._not_imported, self._when_imported, thread=threading.get_ident()
        )

    @public
    def __enter__(self) -> Self:
        """Start the block.

        Raises
        ------
        PlacementError
            It can't run on the device; nothing has changed.

        """
        frameworks = list(filter(self._is_meant, imported()))
        if problem := self._locate() or self._problem_before(frameworks):
            if not self._wish.or_cpu:
                raise PlacementError(problem)
            print(f"Running on the CPU: {problem}")  # noqa: T201 - what `or_cpu` promises
            self.devices, self._mirror = (CPU,), False
        failed = {}
        try:
            for framework in frameworks:
                try:
                    self._set_in(framework, self.devices)
                except PlacementError as error:
                    failed[framework] = str(error)
            self._leave_out(failed)
            self._import_hook.attach()
        except BaseException:
            self._scopes.close()
            raise
        running.scopes.append(self)
        return self

    @public
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._import_hook.detach()
        missed = [] if kind is not None else self._missed()
        # Blocks of tasks and of suspended generators can end in any order: those that began later begin anew.
        is_here = self in running.scopes
        later = running.scopes[running.scopes.index(self) + 1 :] if is_here else []
        if is_here:
            running.scopes.remove(self)
        for scope in reversed(later):
            scope.leave()
        try:
            self._scopes.__exit__(kind, error, trace)
        finally:
            for scope in later:
                scope.enter_again()
        for framework in missed:
            _warn(
                f"{framework.name} was not set to {self._name()} because another thread or an unusual "
                "loader imported it. Import it before the block."
            )
        if kind is None:
            self._raise_problem()

    def leave(self) -> None:
        """Restore what was set before the block, until `enter_again`; what is wrong is raised at its end."""
        try:
            self._scopes.close()
        except PlacementError as error:
            self._problem = str(error)

    def enter_again(self) -> None:
        """Set the device again, once a block has ended in which this one had begun."""
        for framework, devices in list(self._set.values()):
            try:
                self._set_in(framework, devices)
            except PlacementError as error:
                self._problem = str(error)

    def check(self) -> None:
        """Set the device in what has come into use, and raise if a framework can't run on it.

        Raises
        ------
        PlacementError
            Which framework that the block has just imported can't, and why.

        """
        for framework in self._missed():
            self._when_imported(framework.module)
        for module in [module for module in self._waiting if self._uses(module)]:
            self._set_used(self._set[module][0])
        self._raise_problem()

    def device(self) -> Any:
        """Return the device as the framework calls it that the code uses, to be handed to its functions.

        If the code uses several, it is the first one's: PyTorch's before the others'. If it uses none, one is
        asked that can be asked at no cost; else it is the device's name.
        """
        frameworks = [framework for framework, _ in self._set.values()]
        named = [framework for framework in frameworks if self._names(framework.module)]
        first = next(iter([*named, *filter(_is_cheap, frameworks)]), None)
        own: Callable[[LogicalDevice], Any] = str if first is None else first.own_device
        found = [own(device) for device in self.devices]
        return found[0] if len(found) == 1 else found

    def names(self) -> list[str]:
        """Return which frameworks the code evidently uses, on which device: `PyTorch on cuda:0`."""
        return [
            f"{framework.name} on {listed(map(framework.name_of, devices))}"
            for framework, devices in self._set.values()
            if self._uses(framework.module)
        ]

    # Which frameworks, and why they can't run there.

    def _is_meant(self, framework: Framework) -> bool:
        """Return whether the device is to be set in a framework. Keras alone is Keras and its backend."""
        if self._mirror:
            return framework.module == "tensorflow"
        only = self._wish.only
        if only is None or framework.module in only:
            return True
        return any(module in only for module in _built_on(framework.module))

    def _uses(self, module: str) -> bool:
        """Return whether the code evidently uses a framework, itself or through one that is built on it."""
        if self._mirror and module == "tensorflow":
            return True
        return self._names(module) or any(map(self._names, _built_on(module)))

    def _names(self, module: str) -> bool:
        """Return whether the code evidently uses a framework itself, or `only` names it."""
        return module in (self._wish.only or ()) or module in self._evidence

    def _name(self) -> str:
        """Return what the user called the device, and what this process calls it: `smi:3 (cuda:1)`."""
        if len(self.devices) < len(self._wish.targets):
            return listed(map(str, self.devices))
        pairs = zip(self._wish.targets, self.devices, strict=True)
        return listed(str(device) if target == device else f"{target} ({device})" for target, device in pairs)

    def _locate(self) -> str:
        """Find the devices in this process; return why there is no such, as a sentence."""
        try:
            self.devices = tuple(locate(target, self.machine) for target in self._wish.targets)
        except PlacementError as error:
            return str(error)
        return ""

    def _problem_before(self, frameworks: Sequence[Framework]) -> str:
        """Return why the block can't run on the devices, as a sentence; empty if it can."""
        if self.devices == (CPU,) and not self._mirror:
            return ""  # every framework has one CPU
        used = [framework for framework in frameworks if self._uses(framework.module)]
        found = {framework.module: self._first_problem(framework) for framework in used}
        problems = {module: problem for module, problem in found.items() if problem}
        if self._mirror:
            problems |= self._problems_of_mirror()
        if problems:
            return f"{self._name()} cannot be used: {'; '.join(problems.values())}.{_advice(used, problems)}"
        if used or all(device.kind == "cpu" for device in self.devices):
            return ""
        # No framework is used: one that can be asked at no cost knows the devices; else the machine is asked.
        if any(not self._first_problem(framework) for framework in frameworks if _is_cheap(framework)):
            return ""
        return next(filter(None, map(self._problem_here, self.devices)), "")

    def _problem_here(self, device: LogicalDevice) -> str:
        """Return why this process has no such GPU, as a sentence; empty if it has, or can't know."""
        machine, why = self.machine, ""
        if device.type not in ("", "cuda"):
            why = ": no imported framework has such a device."
        elif machine.problem:
            why = f". {machine.problem}"
        elif machine.visible is not None and device.index >= len(machine.visible):
            why = f": visible here are {machine.mapping}."
        elif machine.snapshot.simulated:
            why = ": the GPUs here are SIMULATED, and nothing runs on them."
        return f"{device} cannot be used{why}" if why else ""

    def _first_problem(self, framework: Framework) -> str:
        """Return why a framework can't compute on one of the devices, as a clause; empty if it can."""
        return next(filter(None, map(framework.problem, self.devices)), "")

    def _problems_of_mirror(self) -> dict[str, str]:
        """Return why the devices can't be mirrored over, by the modules that are used without TensorFlow."""
        only = self._wish.only
        wrong = {
            framework.module: f"--mirror is TensorFlow's, but {framework.name} runs on {framework.backend()}"
            for framework in imported()
            if framework.backend() not in ("", "tensorflow") and framework.module in self._evidence
        }
        if not (
            "tensorflow" in sys.modules or any(map(self._evidence.__contains__, ("tensorflow", "keras")))
        ):
            wrong["tensorflow"] = (
                "--mirror is for code that uses TensorFlow, and this code does not. Name one device instead"
            )
        elif only is not None and "tensorflow" not in only:
            wrong["tensorflow"] = f"--mirror is for TensorFlow, which --only {','.join(only)} leaves out"
        return wrong

    def _leave_out(self, failed: Mapping[Framework, str]) -> None:
        """Warn of frameworks that can't be set.

        Raises
        ------
        PlacementError
            The code evidently uses one, or nothing that could be set: it would run elsewhere.

        """
        if not failed:
            return
        modules = {framework.module for framework in failed}
        used = [one for one in filter(self._is_meant, imported()) if self._uses(one.module)]
        others = any(framework.backend() not in modules for framework, _ in self._set.values())
        has_others = others or any(map(self._uses, known()))
        for framework, why in failed.items():
            if framework in used or not has_others:
                raise PlacementError(f"{why}{_advice(used, modules)}")
        for framework, why in failed.items():
            if framework.module not in _left_out:
                _left_out.add(framework.module)
                _warn(f"{why} It is left out. Code that uses it does not run in a block.")

    # Setting it.

    def _set_in(
        self, framework: Framework, devices: tuple[LogicalDevice, ...], *, is_used: bool = False
    ) -> None:
        """Make the device a framework's default, until the block ends."""
        module, waits = framework.module, False

        def ask() -> bool:
            return is_used or self._uses(module)

        try:
            if self._mirror:
                # It loads all that is there for TensorFlow, which nothing else here needs.
                from gpu_magic.frameworks.tensorflow import mirrored

                scope = mirrored(devices)
            else:
                waits = framework.is_waiting(devices[0]) and not ask()
                scope = framework.scope(devices[0], ask)
            self._scopes.enter_context(scope)
        except Exception as error:  # another version of it, with other insides
            said = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
            why = f"{framework.name} cannot be set to {self._name()}: {said}."
            raise PlacementError(why) from error
        self._set[module] = framework, devices
        (self._waiting.add if waits else self._waiting.discard)(module)

    def _when_imported(self, module: str) -> None:
        """Set the device in a framework at the end of its import, and in the one that it computes with.

        An import that fails at its end can't be tried again, so what is wrong is raised later: by `check`,
        or at the end of the block.
        """
        framework = get(module)
        if framework is None or module in self._set or not self._is_meant(framework):
            return
        if self._uses(module):
            self._set_used(framework)
            backend = _backend_of(framework)
            # It is in use only now; and if Keras alone is meant, it was not known to be meant.
            if backend is not None and (backend.module in self._waiting or backend.module not in self._set):
                self._set_used(backend)
            return
        try:
            try:
                self._set_in(framework, self.devices)
            except PlacementError as error:
                self._leave_out({framework: str(error)})
        except PlacementError as error:
            self._problem = str(error)

    def _set_used(self, framework: Framework) -> None:
        """Set the device in a framework that the block is going to use, as far as it has it."""
        devices, or_cpu = self.devices, self._wish.or_cpu
        try:
            # The one that it computes with is asked as well. One that raises by itself is left to it.
            asked = filter(None, (framework, _backend_of(framework)))
            silent = (one for one in asked if not all(map(one.raises_itself, devices)))
            problem = next(filter(None, map(self._first_problem, silent)), "")
            if problem and or_cpu:
                print(f"{framework.name} runs on the CPU: {problem}.")  # noqa: T201 - what `or_cpu` promises
                devices, self._mirror = (CPU,), False
            elif problem:
                self._problem = f"{self._name()} cannot be used: {problem}."
            if problem and self._mirror:
                self._set[framework.module] = framework, devices  # there is nothing to mirror over
            else:
                self._set_in(framework, devices, is_used=True)
        except Exception as error:  # noqa: BLE001 - the import must not fail
            self._problem = str(error)

    def _missed(self) -> list[Framework]:
        """Return the frameworks whose import was not noticed: in another thread, or by an unusual loader."""
        dealt_with = self._set.keys() | _left_out
        new = [module for module in self._not_imported if module in sys.modules and module not in dealt_with]
        if not new:
            return []
        return [one for one in imported() if one.module in new and self._is_meant(one)]

    def _raise_problem(self) -> None:
        if problem := self._problem:
            self._problem = ""
            raise PlacementError(problem)


def _backend_of(framework: Framework) -> Framework | None:
    """Return the framework that another one computes with: PyTorch, for Keras on it."""
    module = framework.backend()
    return get(module) if module in known() and sys.modules.get(module) is not None else None


def _built_on(module: str) -> list[str]:
    """Return the modules of imported frameworks that compute with another one: Keras with PyTorch."""
    return [framework.module for framework in imported() if framework.backend() == module]


def _is_cheap(framework: Framework) -> bool:
    """Return whether a framework can be asked for its devices at no cost."""
    return not framework.preallocates and not framework.backend()


def _advice(used: Iterable[Framework], problems: Collection[str]) -> str:
    """Return how to run the code in those of the frameworks that can use the device."""
    rest = [one.module for one in used if one.module not in problems and one.backend() not in problems]
    return f" To leave it out, add --only {','.join(rest)}" if rest else ""


def _warn(text: str) -> None:
    warnings.warn_explicit(text, PlacementWarning, "on_gpu", 1, module="gpu_magic")
