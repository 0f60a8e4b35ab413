"""`%to_gpu` and `%to_cpu`: move variables, and keep what ties them together."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.move.move import move_variables
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
        """Move variables to a GPU, with all that they hold, or leave all as it is.

        %to_gpu model optimizer batch   to cuda:0, the first of the GPUs that this kernel chose
        %to_gpu model --device 1        to cuda:1; any device that %%on_gpu takes: smi:3, GPU-8f3a, cpu
        %to_gpu state.model data["x"]   attributes and items
        %to_gpu --all                   every variable that can be moved
        %to_cpu model                   and back

        --dry-run          say what would move, how many bytes, and whether it fits; change nothing
        --numpy torch      make NumPy's arrays tensors there (torch, jax or cupy); without it they stay
        --or-cpu           where the GPU can't be used, move to the CPU and say so

        Models, optimizers, parameters, lists, dicts and objects stay the same ones, changed in place; tied
        weights stay tied, views stay views, gradients come along. Tensors, arrays and tuples are new: other
        names of theirs keep the old ones, and are listed.
        """
        options = read("%to_gpu", line, partial(text_named, self.shell))
        self._move(options, device=options.device, numpy=options.numpy, or_cpu=options.or_cpu)

    def to_cpu(self, line: str) -> None:
        """Move variables to the CPU. See %to_gpu?; CuPy's arrays become NumPy's.

        %to_cpu model optimizer   move these
        --all, --dry-run          as there
        """
        self._move(read("%to_cpu", line, partial(text_named, self.shell)), device="cpu", magic="%to_cpu")

    def _move(self, options: SimpleNamespace, **more: Any) -> None:
        space, hidden = self.shell.user_ns, self.shell.user_ns_hidden
        more |= {"all_of_them": options.all, "dry_run": options.dry_run}
        print(*move_variables(space, hidden, options.request, **more), sep="\n")
