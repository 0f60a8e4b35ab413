"""What cells and blocks of code have cost: time, and what they have used of GPUs."""

from __future__ import annotations

from gpu_magic.display.usage_history import History
from gpu_magic.public import public
from gpu_magic.usage.block import GpuTime
from gpu_magic.usage.recorder import recorder

__all__ = ["gpu_time", "history"]


@public
def gpu_time(label: str = "") -> GpuTime:
    """Measure a block: wall and CPU time, and how busy each GPU was, its peak of memory, and its energy.

    >>> with gpu_magic.gpu_time() as measured:
    ...     train(model)
    >>> measured.usage.gpus[0].peak
    10307921510

    The frameworks' own peaks are counted anew from the block's beginning, as by
    `torch.cuda.reset_peak_memory_stats()`, so that the peak is exact.

    Parameters
    ----------
    label
        What it is called in `history()`.

    Returns
    -------
    GpuTime
        A context manager, which can be used again. After the block `usage` is what it has cost, which is also
        the latest of `history()`.

    """
    return GpuTime(label)


@public
def history() -> History:
    """Return what cells and blocks of this process have cost, the latest last: a thousand at most.

    Returns
    -------
    History
        A list of `CellUsage`, with `to_pandas()`. It shows itself as a table.

    """
    return History(recorder().kept)
