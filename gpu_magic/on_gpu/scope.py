"""One run of a block on a device, which is set in each framework at the start and restored at the end."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from contextlib import ExitStack, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Self

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import PlacementError, PlacementWarning
from gpu_magic.frameworks import KNOWN, get, imported
from gpu_magic.frameworks.post_import import PostImportHook
from gpu_magic.frameworks.target import CPU, Block, LogicalDevice, blocks_here
from gpu_magic.frameworks.uses import Evidence
from gpu_magic.objects.physical import LazySnapshot, locate, running
from gpu_magic.on_gpu.libraries import elsewhere_text
from gpu_magic.process.drivers import driver
from gpu_magic.process.show import show
from gpu_magic.public import public
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from types import CodeType, TracebackType

    from gpu_magic.frameworks.base import Framework
    from gpu_magic.frameworks.target import Target

__all__ = ["Scope"]

_log = logging.getLogger("gpu_magic.on_gpu")
# The modules of the frameworks that a block has left out in this session, each with a warning.
_left_out: set[str] = set()
# The blocks that run now, in all threads.
_everywhere: list[Scope] = []


class Scope:
    """One run of a block. Enter a scope once, in the thread that runs the block.

    If a framework that the code evidently uses cannot run on the device, the block does not start. The scope
    also sets the device in other imported frameworks (TensorFlow by TensorBoard, JAX by Keras). It neither
    starts them nor asks for their devices. If the block uses such a framework after all, and the framework
    cannot run on the device, an error follows: at its use, or at the end of the block. A framework with
    unknown internals cannot be set. The scope leaves it out with one warning a session, unless the code uses
    it or can use no other.

    Parameters
    ----------
    targets
        The devices, as the user named them.
    only
        The modules of the frameworks to set. None: all.
    or_cpu, mirror
        As in `on_gpu`.
    code
        Returns the code that is going to run.
    namespace
        The variables of this code.

    Attributes
    ----------
    devices
        The devices of the block. The CPU if the device cannot be used and `or_cpu` is set.
    machine
        The machine, read at most once for the block.
    was_elsewhere
        After the block: whether its code used other GPUs too, as far as frameworks tell.
    say
        Shows a text about that. By default, as a warning.

    """

    was_elsewhere = False

    def __init__(
        self,
        targets: tuple[Target, ...],
        *,
        only: Collection[str] | None,
        or_cpu: bool,
        mirror: bool,
        code: Callable[[], Iterable[CodeType]],
        namespace: Mapping[str, Any],
    ) -> None:
        self.devices: tuple[LogicalDevice, ...] = ()
        self._targets, self._only, self._or_cpu, self._mirror = targets, only, or_cpu, mirror
        self.machine = LazySnapshot()
        self._evidence = Evidence(code, namespace)
        # The handled frameworks, by their modules, and the devices of each.
        self._set: dict[str, tuple[Framework, tuple[LogicalDevice, ...]]] = {}
        self._scopes = ExitStack()
        self._waiting: set[str] = set()  # modules of frameworks that get the device at their first use
        self._problem = ""  # of a framework that the block imported, raised later
        self.say: Callable[[str], None] = _warn
        self.token = Block()
        self._before: dict[LogicalDevice, int] = {}
        self._others: set[int] = set()  # the GPUs of other blocks: around, within, and in other threads

    @public
    def __enter__(self) -> Self:
        """Start the block.

        Raises
        ------
        PlacementError
            The block cannot run on the device. Nothing has changed.

        """
        # Not in `__init__`: the hook sets the device in the thread that runs the block.
        self._not_imported = [module for module in KNOWN if module not in sys.modules]
        self._import_hook = PostImportHook(
            self._not_imported, self._when_imported, thread=threading.get_ident()
        )
        frameworks = list(filter(self._is_meant, imported()))
        if problem := self._locate() or self._problem_before(frameworks):
            if not self._or_cpu:
                raise PlacementError(problem)
            show(f"Running on the CPU: {problem}")  # as `or_cpu` promises
            self.devices, self._mirror = (CPU,), False
        self._leave_to_tasks(frameworks)
        failed = {}
        _everywhere.append(self)
        blocks_here.set((*blocks_here.get(), self.token))
        self._context = copy_context()
        try:
            for framework in frameworks:
                try:
                    self._set_in(framework, self.devices)
                except PlacementError as error:
                    failed[framework] = str(error)
            self._leave_out(failed)
            for scope in [scope for scope in _everywhere if scope is not self]:
                scope.note_block_on(self.devices)
                self.note_block_on(scope.devices)
            self._before = self._work()
            self._import_hook.attach()
        except BaseException:
            self._scopes.close()
            self._forget()
            raise
        running.scopes.append(self)
        return self

    @public
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._import_hook.detach()
        used: list[LogicalDevice] = []
        missed: list[Framework] = []
        current = None
        try:
            missed = [] if kind is not None else self._missed()
            used, current = self._elsewhere()
        finally:
            self._leave_for_good(kind, error, trace)
        if elsewhere := elsewhere_text(used, current, self._evidence, self.devices, self.machine):
            self.was_elsewhere = True
            self.say(elsewhere)
        for framework in missed:
            _warn(
                f"{framework.name} was not set to {self._name()} because another thread or an unusual "
                "loader imported it. Import it before the block."
            )
        if kind is None:
            self._raise_problem()

    def _leave_for_good(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the devices. Blocks in tasks and suspended generators can end in any order.

        So leave later blocks first, and enter them again.
        """
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
            self._forget()

    def _leave_to_tasks(self, frameworks: list[Framework]) -> None:
        """Remove the frameworks whose one default device is that of another asyncio task's block.

        Raises
        ------
        PlacementError
            This block uses such a framework on another device.

        """
        others = (one for one in running.scopes if one.token not in blocks_here.get())
        for other in [one for one in others if one.devices != self.devices]:
            for framework in [one for one in frameworks if not one.follows_tasks]:
                if not other._uses(framework.module):  # noqa: SLF001 - of this class
                    continue
                if self._uses(framework.module):
                    raise PlacementError(
                        f"{framework.name} has one default device per thread, and another asyncio task uses "
                        f"it on {listed(map(str, other.devices))}. Run one of them in a thread: await "
                        "asyncio.to_thread(...)"
                    )
                frameworks.remove(framework)

    def _forget(self) -> None:
        """Take the block from those that run, and from those around the code that runs."""
        _everywhere.remove(self)
        blocks_here.set(tuple(block for block in blocks_here.get() if block is not self.token))

    def note_block_on(self, devices: Iterable[LogicalDevice]) -> None:
        """Be told of the devices of a block that runs at the same time."""
        self._others |= {device.index for device in devices if device.kind == "gpu"}

    def _work(self) -> dict[LogicalDevice, int]:
        """Return what frameworks have allocated so far on each GPU: a number that grows. Empty if unknown."""
        found: dict[LogicalDevice, int] = {}
        try:
            for framework, _ in self._set.values():
                for device, count in framework.work().items():
                    found[device] = found.get(device, 0) + count
        except Exception as error:  # noqa: BLE001 - of a framework whose GPU is lost, for example
            _log.debug("What frameworks have allocated is unknown: %s", error)
            return {}
        return found

    def _elsewhere(self) -> tuple[list[LogicalDevice], LogicalDevice | None]:
        """Return the other GPUs that were used meanwhile, and one that was made current."""
        meant = (
            self._others
            | self.token.used_by_others
            | {device.index for device in self.devices if device.kind == "gpu"}
        )
        used = [
            device
            for device, count in self._work().items()
            if count > self._before.get(device, 0)
            and device.index not in meant
            and not self._evidence.has_text(str(device))  # the code itself names it
        ]
        current = None
        if self.devices[0].kind != "cpu" and running.scopes[-1:] == [self]:
            with suppress(Exception):  # as in `_work`
                currents = (framework.current() for framework, _ in self._set.values())
                current = next(filter(None, currents), None)
        return used, None if current is None or current.index in meant else current

    def leave(self) -> None:
        """Restore the state before the block, until `enter_again`. An error is raised at the block's end."""
        try:
            self._scopes.close()
        except PlacementError as error:
            self._problem = str(error)

    def enter_again(self) -> None:
        """Set the device again, after an outer block has ended."""
        for framework, devices in list(self._set.values()):
            try:
                self._context.run(self._set_in, framework, devices)  # as in the task of this block
            except PlacementError as error:
                self._problem = str(error)

    def check(self) -> None:
        """Set the device in frameworks that the block has begun to use.

        Raises
        ------
        PlacementError
            A framework that the block has just imported cannot run on the device.

        """
        for framework in self._missed():
            self._when_imported(framework.module)
        for module in [module for module in self._waiting if self._uses(module)]:
            self._set_used(self._set[module][0])
        self._raise_problem()

    def device(self) -> Any:
        """Return the device object of the framework that the code uses, as an argument for its functions.

        If the code uses several frameworks, the first one decides, PyTorch before all others. If it uses
        none, a framework that allocates no memory for this decides. Else return the device's name.
        """
        frameworks = [framework for framework, _ in self._set.values()]
        named = [framework for framework in frameworks if self._names(framework.module)]
        first = next(iter([*named, *filter(_is_cheap, frameworks)]), None)
        own: Callable[[LogicalDevice], Any] = str if first is None else first.own_device
        found = [own(device) for device in self.devices]
        return found[0] if len(found) == 1 else found

    def names(self) -> list[str]:
        """Return the frameworks that the code evidently uses, with their devices: `PyTorch on cuda:0`."""
        return [
            f"{framework.name} on {listed(map(framework.name_of, devices))}"
            for framework, devices in self._set.values()
            if self._uses(framework.module)
        ]

    # The frameworks, and why they cannot run on the device

    def _is_meant(self, framework: Framework) -> bool:
        """Return whether the block sets the device in a framework. Keras in `only` includes its backend."""
        if self._mirror:
            return framework.module == "tensorflow"
        only = self._only
        if only is None or framework.module in only:
            return True
        return any(module in only for module in _built_on(framework.module))

    def _uses(self, module: str) -> bool:
        """Return whether the code evidently uses a framework, itself or through one built on it."""
        if self._mirror and module == "tensorflow":
            return True
        return self._names(module) or any(map(self._names, _built_on(module)))

    def _names(self, module: str) -> bool:
        """Return whether the code evidently uses a framework itself, or `only` names it."""
        return module in (self._only or ()) or module in self._evidence

    def _name(self) -> str:
        """Return the user's name for the device, with its name in this process: `smi:3 (cuda:1)`."""
        if len(self.devices) < len(self._targets):
            return listed(map(str, self.devices))
        pairs = zip(self._targets, self.devices, strict=True)
        return listed(str(device) if target == device else f"{target} ({device})" for target, device in pairs)

    def _locate(self) -> str:
        """Find the devices in this process. Return why a device is missing, as a sentence. Else empty."""
        try:
            self.devices = tuple(locate(target, self.machine) for target in self._targets)
        except PlacementError as error:
            return str(error)
        names = list(map(str, self.devices))
        twice = [name for name in names if names.count(name) > 1]
        return f"{listed(map(str, self._targets))} name {twice[0]} twice." if twice else ""

    def _problem_before(self, frameworks: Sequence[Framework]) -> str:
        """Return why the block cannot run on the devices, as a sentence. Empty if it can."""
        if self.devices == (CPU,) and not self._mirror:
            return ""  # no framework refuses `cpu`
        used = [framework for framework in frameworks if self._uses(framework.module)]
        found = {framework.module: self._first_problem(framework) for framework in used}
        problems = {module: problem for module, problem in found.items() if problem}
        if self._mirror:
            problems |= self._problems_of_mirror()
        if problems:
            return f"{self._name()} cannot be used: {'; '.join(problems.values())}.{_advice(used, problems)}"
        if used or all(device.kind == "cpu" for device in self.devices):
            return ""
        # The code uses no framework. Ask one that allocates no memory for this, or else the machine.
        can_start = not driver().is_started()
        asked = (one for one in frameworks if not (can_start and one.is_waiting(self.devices[0])))
        if any(not self._first_problem(framework) for framework in asked if _is_cheap(framework)):
            return ""
        return next(filter(None, map(self._problem_here, self.devices)), "")

    def _problem_here(self, device: LogicalDevice) -> str:
        """Return why this process lacks a GPU, as a sentence. Empty if it has the GPU, or if unknown."""
        machine, why = self.machine, ""
        if device.type not in ("", "cuda"):
            why = ": no imported framework has such a device."
        elif machine.problem:
            why = f". {machine.problem}"
        elif machine.visible is not UNKNOWN and device.index >= len(machine.visible):
            why = f": visible here are {machine.mapping}." if machine.visible else ": no GPU is visible here."
        elif machine.snapshot.simulated:
            why = ": the GPUs here are SIMULATED, and nothing runs on them."
        return f"{device} cannot be used{why}" if why else ""

    def _first_problem(self, framework: Framework) -> str:
        """Return why a framework cannot compute on one of the devices, as a clause. Empty if it can."""
        return next(filter(None, map(framework.problem, self.devices)), "")

    def _problems_of_mirror(self) -> dict[str, str]:
        """Return the reasons why `--mirror` is impossible, by module."""
        only = self._only
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
        """Warn about frameworks that cannot be set.

        Raises
        ------
        PlacementError
            The code evidently uses one of them, or no framework is set. The code would run elsewhere.

        """
        if not failed:
            return
        modules = {framework.module for framework in failed}
        used = [one for one in filter(self._is_meant, imported()) if self._uses(one.module)]
        others = any(framework.backend() not in modules for framework, _ in self._set.values())
        has_others = others or any(map(self._uses, KNOWN))
        for framework, why in failed.items():
            if framework in used or not has_others:
                raise PlacementError(f"{why}{_advice(used, modules)}")
        for framework, why in failed.items():
            if framework.module not in _left_out:
                _left_out.add(framework.module)
                _warn(f"{why} It is left out. Code that uses it does not run in a block.")

    # Setting the device

    def _set_in(
        self, framework: Framework, devices: tuple[LogicalDevice, ...], *, is_used: bool = False
    ) -> None:
        """Make the device a framework's default, until the block ends."""
        module, waits = framework.module, False

        def ask() -> bool:
            has_started = not framework.preallocates and driver().is_started()
            return is_used or has_started or self._uses(module)

        try:
            if self._mirror:
                # Late, because only `--mirror` needs TensorFlow here.
                from gpu_magic.frameworks.tensorflow import mirrored

                scope = mirrored(devices)
            else:
                waits = framework.is_waiting(devices[0]) and not ask()
                scope = framework.scope(devices[0], ask)
            self._scopes.enter_context(scope)
        except Exception as error:  # another version, with other internals
            said = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
            why = f"{framework.name} cannot be set to {self._name()}: {said}."
            raise PlacementError(why) from error
        self._set[module] = framework, devices
        (self._waiting.add if waits else self._waiting.discard)(module)

    def _when_imported(self, module: str) -> None:
        """Set the device in a framework, and in its backend, at the end of the framework's import.

        An import that fails at its end cannot be repeated. So `check`, or the end of the block, raises the
        error.
        """
        framework = get(module)
        if module in self._set or not self._is_meant(framework):
            return
        if self._uses(module):
            self._set_used(framework)
            backend = _backend_of(framework)
            # The backend is in use only now. If `only` names Keras, the backend was not known before.
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
        """Set the device in a framework that the block is going to use. Keep an error for later."""
        devices, or_cpu = self.devices, self._or_cpu
        try:
            # Also ask the backend. Skip a framework that itself raises an error.
            asked = filter(None, (framework, _backend_of(framework)))
            silent = (one for one in asked if not all(map(one.raises_itself, devices)))
            problem = next(filter(None, map(self._first_problem, silent)), "")
            if problem and or_cpu:
                show(f"{framework.name} runs on the CPU: {problem}.")  # as `or_cpu` promises
                devices, self._mirror = (CPU,), False
            elif problem:
                self._problem = f"{self._name()} cannot be used: {problem}."
            if problem and self._mirror:
                self._set[framework.module] = framework, devices  # nothing to mirror
            else:
                self._set_in(framework, devices, is_used=True)
        except Exception as error:  # noqa: BLE001 - the import must not fail
            self._problem = str(error)

    def _missed(self) -> list[Framework]:
        """Return the frameworks whose import the hook missed: in another thread, or by an unusual loader."""
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
    """Return the framework that is the backend of a framework: PyTorch for Keras on PyTorch."""
    module = framework.backend()
    return get(module) if module in KNOWN and sys.modules.get(module) is not None else None


def _built_on(module: str) -> list[str]:
    """Return the modules of imported frameworks whose backend is `module`: Keras for PyTorch."""
    return [framework.module for framework in imported() if framework.backend() == module]


def _is_cheap(framework: Framework) -> bool:
    """Return whether a framework can list its devices without allocating memory."""
    return not framework.preallocates and not framework.backend()


def _advice(used: Iterable[Framework], problems: Collection[str]) -> str:
    """Return the option that leaves out frameworks with a problem. Empty if the code uses no other."""
    rest = [one.module for one in used if one.module not in problems and one.backend() not in problems]
    return f" To leave it out, add --only {','.join(rest)}" if rest else ""


def _warn(text: str) -> None:
    warnings.warn_explicit(text, PlacementWarning, "on_gpu", 1, module="gpu_magic")
