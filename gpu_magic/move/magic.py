"""`%to_gpu` and `%to_cpu`: move variables to a GPU or the CPU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.move.move import move_variables
from gpu_magic.process.show import show
from gpu_magic.shell.arguments import read, text_named

if TYPE_CHECKING:
    from types import SimpleNamespace

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["MoveMagics"]


class MoveMagics:
    """The magics that move variables."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell: Any = shell

    def to_gpu(self, line: str) -> None:
        """Move variables, with all that they hold, to a GPU. If that fails, nothing moves.

            %to_gpu model optimizer batch   to cuda:0, the first of this kernel's GPUs
            %to_gpu state.model data["x"]   attributes and items
            %to_cpu model                   back to the CPU

        {options}

        Models, optimizers, parameters, lists, dicts and objects change in place. Tensors, arrays and
        tuples are new objects. Tied weights stay tied. Views stay views. Gradients also move. `%to_gpu` lists
        other variables that keep the old objects.
        """
        options = read("%to_gpu", line, partial(text_named, self.shell))
        self._move(options, device=options.device, numpy=options.numpy, or_cpu=options.or_cpu)

    def to_cpu(self, line: str) -> None:
        """Move variables to the CPU. CuPy arrays become NumPy arrays. `%to_gpu?` shows more.

            %to_cpu model optimizer   move these variables

        {options}
        """
        self._move(read("%to_cpu", line, partial(text_named, self.shell)), device="cpu", magic="%to_cpu")

    def _move(self, options: SimpleNamespace, **more: Any) -> None:
        space, hidden = self.shell.user_ns, self.shell.user_ns_hidden
        more |= {"all_of_them": options.all, "dry_run": options.dry_run}
        show(*move_variables(space, hidden, options.request, **more))
