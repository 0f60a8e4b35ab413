"""`%gpu_fit`: how much memory a step takes, and whether that fits, before it is run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from gpu_magic.api.fitting import fit_values
from gpu_magic.errors import GpuMagicError
from gpu_magic.fitting.expressions import value, values
from gpu_magic.magics.arguments import read
from gpu_magic.magics.expansion import text_named

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.display.fit import Fit

__all__ = ["GpuFitMagic"]


class GpuFitMagic:
    """The magic that predicts the memory of a step."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell: Any = shell

    def gpu_fit(self, line: str) -> None:
        """Say how much GPU memory a step takes at its most, and on which GPUs that fits, without running it.

        %gpu_fit model optimizer batch   a step of training: forward, loss, backward, optimizer; their types
                                         say which is which; a batch is a tensor, a tuple (inputs, targets),
                                         a dict, or a DataLoader, of which it is the first one
        %gpu_fit train_step(batch)       a call of a function of yours; it is followed on copies without data,
                                         and what it prints is not shown
        %gpu_fit model batch --eval      the forward alone

        --loss EXPR        loss(outputs, targets), a function or a module; without it the output's .loss, else
                           the output, if it is one number, else its sum
        --amp              in mixed precision: float16, or the --dtype
        --dtype bfloat16   of the model and the batch
        --batch 64         as if the batch had this size

        Nothing is changed and no GPU is started. A GPU where CUDA has not been started here needs about half
        a GiB more, which is counted. "batch up to" is the largest batch that fits; with "at least" a larger
        one may, but it would take too long to know, or be over 16 million. What numbers decide (an `if` on
        loss.item(), nonzero()) can't be followed, and the line is named. Of JAX it takes a call, once JAX has
        started; of Keras, TensorFlow and CuPy none.
        """
        shown = self._predicted(line)
        if isinstance(shown, str):  # raised here, as the last error keeps its frames and what is in them
            raise UsageError(shown)
        display(shown)

    def _predicted(self, line: str) -> Fit | str:
        options = read("%gpu_fit", line, partial(text_named, self.shell))
        namespace, hidden = self.shell.user_ns, self.shell.user_ns_hidden
        try:
            given = values(options.request, namespace, hidden)
            loss = None if options.loss is None else value(options.loss, namespace, hidden, may_call=True)
            return fit_values(
                given,
                loss=loss,
                eval=options.eval,
                amp=options.amp,
                dtype=options.dtype,
                batch_size=options.batch,
            )
        except GpuMagicError as error:
            return str(error)
