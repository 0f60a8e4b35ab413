"""One run of a block on one device: every framework is told at its beginning, and told back at its end."""

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
    from collections.abc import Callable, Collection, Container, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from gpu_magic.frameworks.base import Framework

__all__ = ["Scope", "innermost"]


class _Here(threading.local):
    """The places of the blocks that this thread is in, the innermost last."""

    def __init__(self) -> None:
        self.places: list[tuple[LogicalDevice, ...]] = []


_here = _Here()


def innermost() -> LogicalDevice | None:
    """Return the device of the block that this thread is in; None outside of one, or in one over several."""
    places = _here.places[-1] if _here.places else ()
    return places[0] if len(places) == 1 else None


class Scope:
    """Entered once, in the thread that runs the block.

    Where a framework that the code evidently uses can't run there, the block does not begin. Others that
    happen to be imported (TensorFlow by TensorBoard, JAX by Keras) are told as well, and neither asked nor
    started by it; one that is used after all, and can't run there, raises: where it is used, or at the end.

    Parameters
    ----------
    places
        Where to: one, or with `mirror` several.
    name
        Tells what the user called it.
    mirror
        Mirror over them with TensorFlow, and tell no other framework.
    only
        The modules of the frameworks that are meant; None for all.
    or_cpu
        Whether the CPU will do.
    uses
        The packages that the code evidently uses.

    """

    def __init__(
        self,
        places: tuple[LogicalDevice, ...],
        *,
        name: Callable[[], str],
        mirror: bool,
        only: Collection[str] | None,
        or_cpu: bool,
        uses: Container[str],
    ) -> None:
        self.places, self._called = places, name
        self._mirror, self._only, self._or_cpu = mirror, only, or_cpu
        self._evident = uses
        # What was told, by its module, and of which places.
        self._told: dict[str, tuple[Framework, tuple[LogicalDevice, ...]]] = {}
        self._problem = ""
        self._absent = [module for module in known() if module not in sys.modules]
        self._arrivals = PostImportHook(self._absent, self._arrived, thread=threading.get_ident())
        self._entered: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> Self:
        there = [framework for framework in imported() if self._means(framework)]
        is_sure = self.places == (CPU,) and not self._mirror  # every framework has one CPU
        if not is_sure and (problem := self._problem_of(there)):
            if not self._or_cpu:
                raise PlacementError(problem)
            print(f"Running on the CPU, as {problem}")  # noqa: T201 - what `or_cpu` promises
            self.places, self._mirror = (CPU,), False
        try:
            for framework in there:
                self._tell(framework, self.places)
            self._arrivals.attach()
        except BaseException:
            self._leave(None, None, None)
            raise
        _here.places.append(self.places)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._arrivals.detach()
        if self.places in _here.places:  # blocks of tasks can end in any order
            _here.places.remove(self.places)
        untold = [] if kind is not None else self._untold()
        self._leave(kind, error, trace)
        for framework in untold:
            warnings.warn_explicit(
                f"{framework.name} was first imported in another thread, or by an unusual loader, and was "
                f"not told of {self._name}. Import it before.",
                PlacementWarning,
                "on_gpu",
                1,
                module="gpu_magic",
            )
        if kind is None:
            self._raise()

    def check(self) -> None:
        """Stop the block where a framework that it has just imported can't run there.

        Raises
        ------
        PlacementError
            What can't.

        """
        for framework in self._untold():  # imported in another thread, or by an unusual loader
            self._arrived(framework.module)
        self._raise()

    @property
    def _name(self) -> str:
        return self._called()

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tell all of them back, the last one first, whatever one of them raises."""
        problem: BaseException | None = None
        while self._entered:
            try:
                self._entered.pop().__exit__(kind, error, trace)
            except BaseException as raised:  # noqa: BLE001 - it is raised below, when all are told
                problem = problem or raised
        if problem is not None:
            raise problem

    def _raise(self) -> None:
        if problem := self._problem:
            self._problem = ""
            raise PlacementError(problem)

    def names(self) -> list[str]:
        """Say what the code evidently uses, and what that calls the place: `PyTorch on cuda:0`."""
        return [
            f"{framework.name} on {listed(map(framework.name_of, places))}"
            for framework, places in self._told.values()
            if self._uses(framework.module)
        ]

    def _means(self, framework: Framework) -> bool:
        if self._mirror:
            return framework.module == "tensorflow"
        if self._only is None or framework.module in self._only:
            return True
        # Keras alone is Keras and what it computes with.
        return any(one.backend() == framework.module for one in imported() if one.module in self._only)

    def _uses(self, module: str) -> bool:
        """Tell whether the code evidently uses a framework, itself or through one that stands on it."""
        if self._mirror and module == "tensorflow":
            return True
        through = (one.module for one in imported() if one.backend() == module)
        return module in self._evident or any(one in self._evident for one in through)

    def _problem_of(self, there: Sequence[Framework]) -> str:
        used = [one for one in there if self._uses(one.module)]
        problems = {one.module: problem for one in used if (problem := _problem(one, self.places))}
        if self._mirror:
            problems |= self._not_tensorflow()
        if problems:
            rest = [one.module for one in used if not {one.module, one.backend()} & problems.keys()]
            way = f" --only {','.join(rest)} leaves the others out." if rest else ""
            return f"{self._name} can't be used: {'; '.join(problems.values())}.{way}"
        if used or all(place.kind == "cpu" for place in self.places):
            return ""
        # Nothing is named: a framework that can be asked at no cost knows, or else the machine.
        free = [one for one in there if not one.preallocates and not one.backend()]
        if any(not _problem(one, self.places) for one in free):
            return ""
        return next(filter(None, map(problem_of, self.places)), "")

    def _not_tensorflow(self) -> dict[str, str]:
        others = [one for one in imported() if one.backend() not in ("", "tensorflow")]
        wrong = {
            one.module: f"--mirror is TensorFlow's, and {one.name} runs on {one.backend()}"
            for one in others
            if one.module in self._evident
        }
        may_use = "tensorflow" in sys.modules or "tensorflow" in self._evident or "keras" in self._evident
        if not may_use or (self._only is not None and "tensorflow" not in self._only):
            wrong["tensorflow"] = "--mirror is TensorFlow's, and this does not use it"
        return wrong

    def _tell(self, framework: Framework, places: tuple[LogicalDevice, ...]) -> None:
        try:
            if self._mirror:
                from gpu_magic.frameworks.tensorflow.mirror import mirrored

                scope = mirrored(places)
            else:
                scope = framework.scope(places[0], functools.partial(self._uses, framework.module))
            scope.__enter__()
        except Exception as error:  # another version of it, with other insides
            why = f"{framework.name} can't be told of {self._name}: {type(error).__name__}: {error}."
            raise PlacementError(why) from error
        self._entered.append(scope)
        self._told[framework.module] = framework, places

    def _arrived(self, module: str) -> None:
        """Place a framework at the end of its import."""
        framework = get(module)
        if framework is None or module in self._told or not self._means(framework):
            return
        places = self.places
        try:
            if problem := self._problem_of_new(framework):
                if not self._or_cpu:
                    self._problem = f"{self._name} can't be used: {problem}."
                    if self._mirror:
                        self._told[module] = framework, places
                        return
                else:
                    print(f"{framework.name} runs on the CPU: {problem}.")  # noqa: T201
                    places = (CPU,)
            self._tell(framework, places)
        except Exception as error:  # noqa: BLE001 - an import that fails at its end can't be tried again
            self._problem = str(error)

    def _problem_of_new(self, framework: Framework) -> str:
        """Ask one that was just imported, and what it stands on, which is in use only now."""
        if not self._uses(framework.module):
            return ""
        standing_on = get(framework.backend()) if framework.backend() in self._told else None
        for one in (framework, standing_on):
            asked = one is not None and not all(map(one.raises_itself, self.places))
            if one is not None and asked and (problem := _problem(one, self.places)):
                return problem
        return ""

    def _untold(self) -> list[Framework]:
        new = [module for module in self._absent if module in sys.modules and module not in self._told]
        return [one for one in imported() if one.module in new and self._means(one)] if new else []


def _problem(framework: Framework, places: Sequence[LogicalDevice]) -> str:
    return next(filter(None, map(framework.problem, places)), "")
