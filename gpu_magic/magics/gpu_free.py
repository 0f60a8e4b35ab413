"""`%gpu_free`: give memory back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

import gpu_magic
from gpu_magic.engines.current import current_cluster
from gpu_magic.errors import GpuMagicError
from gpu_magic.magics.arguments import read

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["GpuFreeMagic"]


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
        %gpu_free --cluster   free memory in each engine of the cluster
        """
        options = read("%gpu_free", line)
        if options.request:
            raise UsageError("%gpu_free takes no names: it frees memory on all GPUs; del x drops a variable.")
        try:
            cluster = current_cluster() if options.cluster else None
            print(gpu_magic.gpu_free(dry_run=options.dry_run, cluster=cluster))
        except GpuMagicError as error:
            raise UsageError(str(error)) from None
