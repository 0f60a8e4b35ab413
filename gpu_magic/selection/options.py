"""How to choose, whichever GPUs: the options of `%gpus`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["By", "Options", "Order"]

By = Literal["index", "uuid"]
Order = Literal["pci", "fastest"]


@dataclass(frozen=True, slots=True)
class Options:
    """How to choose, whichever GPUs; written as the options of `%gpus`.

    Parameters
    ----------
    by
        Write numbers or UUIDs; None follows the inherited mask.
    order
        CUDA_DEVICE_ORDER: by PCI bus, or the fastest first.
    force
        Allow GPUs outside the inherited mask.
    growth, memory_limit
        What frameworks are told of memory: see `selection.memory`.

    """

    by: By | None = None
    order: Order = "pci"
    force: bool = False
    growth: bool = False
    memory_limit: str | int | None = None

    def __str__(self) -> str:
        given = {
            f" --by {self.by}": self.by,
            f" --order {self.order}": self.order != "pci",
            " --force": self.force,
            " --growth": self.growth,
            f" --memory-limit {self.memory_limit}": self.memory_limit,
        }
        return "".join(option for option, is_given in given.items() if is_given)
