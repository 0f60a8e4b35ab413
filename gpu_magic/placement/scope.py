"""One run of a block on one device: every framework is told at its beginning, and told back at its end."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Self

from gpu_magic.errors import PlacementError, PlacementWarning
from gpu_magic.frameworks import get, imported, known
from gpu_magic.frameworks.arrivals import Arrivals
from gpu_magic.selection.target import CPU, Place
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Sequence
    from types import TracebackType

    from gpu_magic.frameworks.base import Framework

__all__ = ["Scope"]


class Scope:
    """Entered once, in the thread that runs the block.

    Where a framework that the code evidently uses can't run there, the block does not begin. Others that
    happen to be imported (TensorFlow by TensorBoard, JAX by Keras) are told as well, and neither asked nor
    started by it; one that is used after all, and can't run there, raises or warns then.

    Parameters
    ----------
    places
        Where to: one, or with `mirror` several.
    mirror
        Mirror over them with TensorFlow, and tell no other framework.
    only
        The modules of the frameworks that are meant; None for all.
    or_cpu
        Whether the CPU will do.
    uses
        The packages that the code evidently uses.
    machine_problem
        Says why the machine has no such device; asked where no framework can tell.
    say
        Shows a line to the user.

    """

    def __init__(
        self,
        places: tuple[Place, ...],
        *,
        mirror: bool,
        only: Collection[str] | None,
        or_cpu: bool,
        uses: Container[str],
        machine_problem: Callable[[Place], str],
        say: Callable[[str], None],
    ) -> None:
        self.places = places
        # What was told, by its module, and of which places.
        self.told: dict[str, tuple[Framework, tuple[Place, ...]]] = {}
        self._mirror, self._or_cpu = mirror, or_cpu
        self._meant = ("tensorflow",) if mirror else known() if only is None else only
        self._evident, self._machine_problem, self._say = uses, machine_problem, say
        self._problem = ""
        self._absent = [module for module in self._meant if module not in sys.modules]
        self._arrivals = Arrivals(self._absent, self._arrived, thread=threading.get_ident())
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        there = [framework for framework in imported() if framework.module in self._meant]
        is_sure = self.places == (CPU,) and not self._mirror  # every framework has one CPU
        if not is_sure and (problem := self._problem_of(there)):
            if not self._or_cpu:
                raise PlacementError(problem)
            self._say(f"Running on the CPU, as {problem}")
            self.places, self._mirror = (CPU,), False
        try:
            for framework in there:
                self._tell(framework, self.places)
            self._arrivals.attach()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._arrivals.detach()
        self._stack.__exit__(kind, error, trace)
        self._look_again()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise where a framework that the block itself has imported can't run there.

        Raises
        ------
        PlacementError
            What it can't.

        """
        if problem := self._problem:
            self._problem = ""
            raise PlacementError(problem)

    def __str__(self) -> str:
        return listed(map(str, self.places))

    def names(self) -> list[str]:
        """Say what ran, or could have, and what it calls the place: `PyTorch on cuda:0`."""
        return [
            f"{framework.name} on {listed(map(framework.name_of, places))}"
            for framework, places in self.told.values()
            if framework.is_started() or self._uses(framework.module)
        ]

    def _uses(self, module: str) -> bool:
        """Tell whether the code evidently uses a framework, itself or through one that stands on it."""
        if self._mirror and module == "tensorflow":
            return True
        through = (one.module for one in imported() if one.backend() == module)
        return module in self._evident or any(one in self._evident for one in through)

    def _problem_of(self, there: Sequence[Framework]) -> str:
        # One that has GPUs can be asked at no cost whether it has this one.
        used = [one for one in there if self._uses(one.module) or one.has_gpu()]
        problems = {one.module: problem for one in used if (problem := _problem(one, self.places))}
        if self._mirror:
            others = [one for one in imported() if one.backend() not in ("", "tensorflow")]
            problems |= {
                one.module: f"--mirror is TensorFlow's, and {one.name} runs on {one.backend()}"
                for one in others
                if one.module in self._evident
            }
        if problems:
            rest = [one.module for one in used if one.module not in problems]
            way = f" --only {','.join(rest)} leaves the others out." if rest else ""
            return f"{self} can't be used: {'; '.join(problems.values())}.{way}"
        if used or all(place.kind == "cpu" for place in self.places):
            return ""
        torch = [one for one in there if one.module == "torch"]  # its devices can be counted at no cost
        if torch and not _problem(torch[0], self.places):
            return ""
        return next(filter(None, map(self._machine_problem, self.places)), "")

    def _tell(self, framework: Framework, places: tuple[Place, ...]) -> None:
        if self._mirror:
            from gpu_magic.frameworks.tensorflow_mirror import mirrored

            self._stack.enter_context(mirrored(places))
        else:
            self._stack.enter_context(framework.scope(places[0]))
        self.told[framework.module] = framework, places

    def _arrived(self, module: str) -> None:
        """Place a framework at the end of its import."""
        framework = get(module)
        if framework is None or module in self.told:
            return
        places = self.places
        try:
            if self._uses(module) and (problem := _problem(framework, places)):
                if self._or_cpu:
                    self._say(f"{framework.name} runs on the CPU: {problem}.")
                    places = (CPU,)
                else:
                    self._problem = f"{self} can't be used: {problem}."
                    if self._mirror:
                        return
            self._tell(framework, places)
        except Exception as error:  # noqa: BLE001 - an import that fails at its end can't be tried again
            self._problem = f"{framework.name} can't be told of {self}: {error}"

    def _look_again(self) -> None:
        """Warn of what was imported where it can't be placed from."""
        for module in self._absent:
            framework = get(module) if sys.modules.get(module) is not None else None
            if framework is not None and module not in self.told:
                warnings.warn(
                    f"{framework.name} was first imported in another thread, or by an unusual loader, and "
                    f"was not told of {self}. Import it before.",
                    PlacementWarning,
                    stacklevel=2,
                )


def _problem(framework: Framework, places: Sequence[Place]) -> str:
    return next(filter(None, map(framework.problem, places)), "")
