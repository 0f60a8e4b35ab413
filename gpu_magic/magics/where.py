"""`%where`: on which devices variables live."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

import gpu_magic
from gpu_magic.api.placing import where
from gpu_magic.engines.current import current_cluster
from gpu_magic.errors import GpuMagicError
from gpu_magic.magics.arguments import read
from gpu_magic.magics.expansion import text_named
from gpu_magic.text import code_words

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["WhereMagic"]


class WhereMagic:
    """The magic that finds variables."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell: Any = shell

    def where(self, line: str) -> None:
        """Say on which devices variables live, and how many bytes they take there.

        %where             every variable of this notebook that holds arrays
        %where x model     these; models, optimizers and containers are looked into
        %where batch["x"]  an expression; spaces divide, but for those in brackets
        %where --cluster   the variables of each engine of the cluster

        What shares memory (views, tied weights) is counted once.
        """
        options = read("%where", line, partial(text_named, self.shell))
        words = code_words(options.request, commas=True)
        try:
            if options.cluster:
                print(gpu_magic.devices_of(*words, cluster=current_cluster()))
            else:
                print(where(words))
        except GpuMagicError as error:
            raise UsageError(str(error)) from None
