"""`%to_gpu` and `%to_cpu`: move variables, and keep what ties them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from gpu_magic.errors import GpuMagicError, PlacementError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import SimpleNamespace

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.moving.move import Move
    from gpu_magic.moving.names import Names

__all__ = ["ToGpuMagics"]


class ToGpuMagics:
    """The magics that move variables."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell: Any = shell

    def to_gpu(self, line: str) -> None:
        """Move variables to a GPU, with all that they hold, or leave all as it is.

        %to_gpu model optimizer batch   to cuda:0, the first of the GPUs that this kernel chose
        %to_gpu model --device 1        to cuda:1; any device that %%on_gpu takes: smi:3, GPU-8f3a, cpu
        %to_gpu state.model data["x"]   attributes and items
        %to_gpu --all                   every variable that can be moved
        %to_cpu model                   and back

        --dry-run          say what would move, how many bytes, and whether it fits; change nothing
        --numpy torch      make NumPy's arrays tensors there (torch, jax or cupy); without it they stay

        Models, optimizers, parameters, lists, dicts and objects stay the same ones, changed in place; tied
        weights stay tied, views stay views, gradients come along. Tensors, arrays and tuples are new: other
        names of theirs keep the old ones, and are listed.
        """
        from gpu_magic.magics.arguments import read

        options = read("%to_gpu", line)
        self._move(options, options.device, options.numpy)

    def to_cpu(self, line: str) -> None:
        """Move variables to the CPU: %to_cpu model optimizer. See %to_gpu?; CuPy's arrays become NumPy's.

        --all, --dry-run   as there
        """
        from gpu_magic.magics.arguments import read

        self._move(read("%to_cpu", line), "cpu", None)

    def _move(self, options: SimpleNamespace, device: str | None, converts: str | None) -> None:
        problem = ""
        try:
            lines = self._lines(options, device, converts)
        except GpuMagicError as error:
            problem = str(error)
        if problem:  # not within the handler: the last error would keep its frames, and all variables in them
            raise UsageError(problem)
        print(*filter(None, lines), sep="\n")

    def _lines(self, options: SimpleNamespace, device: str | None, converts: str | None) -> list[str]:
        """Do what is asked, and return what is to be said of it."""
        from gpu_magic.display.move import left_behind, moved, planned, still_held
        from gpu_magic.magics.progress import Progress
        from gpu_magic.moving.destination import read_destination
        from gpu_magic.moving.move import Move
        from gpu_magic.moving.names import Names

        names = Names(self.shell.user_ns, self.shell.user_ns_hidden)
        move = Move(read_destination(device), converts)
        skipped = self._add(move, names, options)
        move.check()
        if options.dry_run:
            return [*planned(move), *skipped]
        with Progress(move.nbytes) as progress:
            move.carry_out(names, progress.update)
        behind = left_behind(move.left_behind(self._others()))
        told = still_held(move.old_keys(), self._others()) if move.nbytes else ""
        return [*moved(move), *skipped, told, *behind]

    def _add(self, move: Move, names: Names, options: SimpleNamespace) -> list[str]:
        """Take along what is named, or all that can be; return what has to be said of the rest."""
        if options.all and options.request:
            raise UsageError(
                f"--all is every variable, and {options.request} is named besides: leave out one."
            )
        if options.request:
            for name, value in names.read(options.request).items():
                move.add(name, value)
            return []
        if not options.all:
            raise PlacementError("Which variables? %to_gpu model batch names them, --all is every one.")
        skipped = []
        for name, value in names.read_all().items():
            if why := move.add_if_possible(name, value):
                skipped.append(f"{name} stays: {why.removeprefix(f'{name}: ')}")
        return skipped

    def _others(self) -> Iterator[tuple[str, object]]:
        space, hidden = self.shell.user_ns, self.shell.user_ns_hidden
        yield from ((name, value) for name, value in space.items() if name not in hidden and name[0] != "_")
        yield from ((f"Out[{number}]", value) for number, value in space.get("_oh", {}).items())
