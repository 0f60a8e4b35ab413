"""GPUs that are waited for, and chosen when they are free."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpu_magic.api.choosing import told
from gpu_magic.gpus.auto import check_filters
from gpu_magic.gpus.options import Options, check_wait_options, read_seconds
from gpu_magic.gpus.request import normalize_wait
from gpu_magic.gpus.wait import Waiting
from gpu_magic.process.session import current
from gpu_magic.public import public, public_coroutine

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from typing import Unpack

    from gpu_magic.devices.model import Gpu, MigInstance
    from gpu_magic.gpus.choice import Choice
    from gpu_magic.gpus.options import WaitOptions

__all__ = ["wait_for"]


@public
def wait_for(
    wanted: int | str | Gpu | MigInstance | Iterable[str | int | Gpu | MigInstance] = 1,
    *,
    within: str | float | None = None,
    **options: Unpack[WaitOptions],
) -> Coroutine[Any, Any, Choice]:
    """Wait until GPUs are free, and choose them; other cells and callbacks run meanwhile.

    >>> waiting = asyncio.create_task(gpu_magic.wait_for(2, min_free="20GB"))

    Parameters
    ----------
    wanted
        How many; or which, as for `choose`: `"1,3"`, or `[1, 3]`, waits until nobody else uses or has claimed
        GPUs 1 and 3.
    within
        How long, "30m" or in seconds; None: without an end.
    options
        Which, and how they are chosen: `min_free`, `model`, `by`, `order`, `force`, `growth` and
        `memory_limit`, as for `choose`. Of a number of GPUs, without `min_free`, it waits for
        ones that nobody uses.

    Returns
    -------
    Choice
        To be awaited: what `cuda:0`, `cuda:1`, … are now.

    Raises
    ------
    ChoiceError
        At the call, for what can't be waited for. When it is awaited: the time is over, or these GPUs can't
        be chosen, however long one waits. Nothing was changed.

    Warns
    -----
    CudaInitializedWarning
        CUDA has been initialized with other GPUs; nothing was changed.

    """
    check_wait_options(options)
    read = Options(**options)
    check_filters(read)
    seconds = None if within is None else read_seconds(within, "within")
    return _awaited(Waiting(current(), normalize_wait(wanted), read, seconds))


@public_coroutine
async def _awaited(waiting: Waiting) -> Choice:
    choice = await waiting.wait_async()
    return told(choice, strict=False, caller=sys._getframe())  # noqa: SLF001
