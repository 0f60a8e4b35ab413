"""Models that are wrapped for several GPUs, and what can be followed in their place."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["why_not_wrapped"]

# Where each wrapper is, where that is imported, its name, and what to do instead.
_INSTEAD = (
    (
        "torch.nn.parallel.data_parallel",
        "DataParallel",
        "splits each batch over its GPUs; use the model in it, model.module, with the batch of one GPU",
    ),
    (
        "torch.nn.parallel.distributed",
        "DistributedDataParallel",
        "talks to other processes; use the model in it, model.module, and add a copy of its gradients",
    ),
    (
        "torch.distributed.fsdp.fully_sharded_data_parallel",
        "FullyShardedDataParallel",
        "talks to other processes; use the model as it was before it was wrapped",
    ),
    (
        "torch.distributed.fsdp",
        "FSDPModule",
        "talks to other processes; use the model as it was before fully_shard",
    ),
)


def why_not_wrapped(module: object) -> str:
    """Return why a module that is wrapped for several GPUs can't be followed, as a clause; empty for others.

    DistributedDataParallel keeps a copy of the gradients in its buckets, unless it has
    `gradient_as_bucket_view`: https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
    """
    for place, name, instead in _INSTEAD:
        kind: Any = getattr(sys.modules.get(place), name, None)
        if kind is not None and isinstance(module, kind):
            shown = name if name != "FSDPModule" else "a model after fully_shard"
            what = f"{shown} {instead}"
            if getattr(module, "gradient_as_bucket_view", False):
                what = what.removesuffix(", and add a copy of its gradients")
            return what
    return ""
