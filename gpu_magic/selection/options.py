"""The options of a choice: how CUDA_VISIBLE_DEVICES is written, and how frameworks take memory."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Literal

__all__ = ["By", "Options", "Order", "split_request"]

By = Literal["index", "uuid"]
Order = Literal["pci", "fastest"]

_MEMORY = re.compile(r"(.*?)( --growth)?(?: --memory-limit ([\w.]{1,20}(?: \w{1,5})?))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a choice. `str` returns them as they are typed after `%gpus`.

    Parameters
    ----------
    by
        Write CUDA_VISIBLE_DEVICES by number or by UUID; None does as the inherited value does.
    order
        CUDA_DEVICE_ORDER: by PCI bus, or the fastest GPU first; None does as the inherited value does.
    force
        Allow GPUs outside the inherited CUDA_VISIBLE_DEVICES.
    growth, memory_limit
        How frameworks may take memory: see `selection.memory`.

    """

    by: By | None = None
    order: Order | None = None
    force: bool = False
    growth: bool = False
    memory_limit: str | int | None = None

    def __str__(self) -> str:
        given = {
            f" --by {self.by}": self.by,
            f" --order {self.order}": self.order,
            " --force": self.force,
            " --growth": self.growth,
            f" --memory-limit {self.memory_limit}": self.memory_limit,
        }
        return "".join(option for option, is_given in given.items() if is_given)

    @property
    def given(self) -> list[str]:
        """The names of those that were given."""
        return [name.replace("_", " ") for name, value in asdict(self).items() if value]


def split_request(typed: str) -> tuple[str, Options]:
    """Return the GPUs of what is typed after `%gpus`, and the options after them, as `str` writes those.

    Only the options for memory are read. All else is left with the GPUs, where it names none.
    """
    match = _MEMORY.fullmatch(typed)
    assert match  # noqa: S101 - it matches any text
    devices, growth, limit = match.groups()
    return devices, Options(growth=growth is not None, memory_limit=limit)
