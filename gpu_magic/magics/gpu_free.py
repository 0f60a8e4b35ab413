"""`%gpu_free`: give memory back."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["GpuFreeMagic"]

_LAST = ("last_type", "last_value", "last_traceback", "last_exc")
_UNDERSCORES = ("_", "__", "___")


class GpuFreeMagic:
    """The magic that gives memory back."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell: Any = shell

    def gpu_free(self, line: str) -> None:
        """Give GPU memory back that only the notebook's own history keeps, and what frameworks keep unused.

        %gpu_free             drop the last error's traceback and the outputs (Out, _) that hold GPU memory,
                              collect garbage, empty each framework's cache; say what each GPU had in use
                              before and after, and which variables hold the rest
        %gpu_free --dry-run   say what it would drop, and drop nothing
        """
        from gpu_magic.magics.arguments import read
        from gpu_magic.moving.free import free, held, holders, nameless
        from gpu_magic.placement.holdings import holdings_of
        from gpu_magic.text import size_text

        options = read("%gpu_free", line)
        if options.request:
            raise UsageError("%gpu_free takes no names, and means all GPUs: del x drops a variable.")
        own = [(name, value) for name, value in self.shell.user_ns.items() if self._is_own(name)]
        stays = holdings_of(value for _, value in own)  # what is also a variable's is not given back by it
        outputs = {name: size for name, value in self._outputs() if (size := held(value, stays))}
        traceback = held([list(self._variables(frame)) for frame in self._frames()], stays)
        dropped = [f"{name} ({size_text(size)})" for name, size in outputs.items()]
        if traceback:
            dropped.insert(0, f"the last error's traceback ({size_text(traceback)})")
        said = ", ".join(dropped)
        if options.dry_run:
            print(f"Would drop {said}." if said else "No output and no traceback holds GPU memory.")
            if told := holders(own):
                print(told)
            return

        def drop() -> None:
            if traceback:
                self._drop_traceback()
            for name in outputs:
                self._drop_output(name)

        freed = free(drop)
        rest = nameless([value for _, value in own])
        more = (
            f"{size_text(rest)} more where no variable was seen to lead: the graph of a loss, a saved "
            "exception, another library."
        )
        lines = [f"Dropped {said}." if said else "", repr(freed), holders(own), more if rest else ""]
        print(*filter(None, lines), sep="\n")

    def _is_own(self, name: str) -> bool:
        return name not in self.shell.user_ns_hidden

    def _outputs(self) -> Iterator[tuple[str, object]]:
        space = self.shell.user_ns
        yield from ((f"Out[{number}]", value) for number, value in space.get("_oh", {}).items())
        known = [id(value) for value in space.get("_oh", {}).values()]
        yield from (
            (name, space[name]) for name in _UNDERSCORES if name in space and id(space[name]) not in known
        )

    def _drop_output(self, name: str) -> None:
        """Forget an output everywhere IPython keeps it."""
        space, hook = self.shell.user_ns, self.shell.displayhook
        value = space[name] if name in _UNDERSCORES else space["_oh"].pop(int(name[4:-1]))
        for names in (space, self.shell.user_ns_hidden):  # the second has values, too: _4
            for key in [
                key for key, one in names.items() if one is value and re.fullmatch(r"_{1,3}|_\d+", key)
            ]:
                if key in _UNDERSCORES:
                    names[key] = ""
                else:
                    del names[key]
        for key in _UNDERSCORES:
            if getattr(hook, key, "") is value:
                setattr(hook, key, "")
        self._forget_result(value)

    def _forget_result(self, value: object) -> None:
        last = self.shell.last_execution_result
        if last is not None and last.result is value:
            last.result = None

    def _frames(self) -> Iterator[FrameType]:
        """Return the frames of the last error, and of those that it came from."""
        open_, seen = [getattr(sys, "last_value", None)], set()
        while open_:
            error = open_.pop()
            if error is None or id(error) in seen:
                continue
            seen.add(id(error))
            step = error.__traceback__
            while step is not None:
                yield step.tb_frame
                step = step.tb_next
            open_ += [error.__cause__, error.__context__]

    def _variables(self, frame: FrameType) -> Iterator[object]:
        space = self.shell.user_ns
        is_cell = frame.f_globals is space and frame.f_code.co_name == "<module>"
        return iter(()) if is_cell else iter(dict(frame.f_locals).values())

    def _drop_traceback(self) -> None:
        """Forget the last error everywhere Python and IPython keep it; %debug and %tb have none any more."""
        for name in _LAST:
            if hasattr(sys, name):
                delattr(sys, name)
        last = self.shell.last_execution_result
        if last is not None:
            last.error_in_exec = last.error_before_exec = None
        self.shell.InteractiveTB.tb = None
        self.shell.InteractiveTB.pdb = None
