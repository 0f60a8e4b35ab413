"""The options of a choice: which GPUs `auto` takes, what names them, and how frameworks take memory."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, TypedDict

from gpu_magic.errors import ChoiceError
from gpu_magic.spelling import either, option

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["By", "Options", "Order", "WaitOptions", "check_wait_options", "split_request"]

By = Literal["index", "uuid"]
Order = Literal["pci", "fastest"]

_MEMORY = re.compile(r"(.*?)( --growth)?(?: --memory-limit ([\w.]{1,20}(?: \w{1,5})?))?", re.DOTALL)
# Those that go with `auto`; the first one with GPUs that are named, too.
_FILTERS = ("only_free", "min_free", "model")


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
    only_free
        Take GPUs that are named where nobody else uses or has claimed them. `auto` takes GPUs that nobody
        uses, and fails where there are not enough.
    min_free
        It takes GPUs with so much free memory: "20GB", or a number of bytes.
    model
        And with these words in their names: "A100".
    no_claim
        Do not claim the GPUs.

    """

    by: By | None = None
    order: Order | None = None
    force: bool = False
    growth: bool = False
    memory_limit: str | int | None = None
    only_free: bool = False
    min_free: str | int | None = None
    model: str | None = None
    no_claim: bool = False

    def __str__(self) -> str:
        return self._typed(tuple(field.name for field in fields(self)))

    @property
    def given(self) -> list[str]:
        """Those that were given, without their values: `--memory-limit`."""
        return [f"--{field.name.replace('_', '-')}" for field in fields(self) if self._is_given(field.name)]

    @property
    def filters(self) -> str:
        """Those that say which GPUs `auto` takes, as they are typed; empty where none is given."""
        return self._typed(_FILTERS)

    @property
    def written_filters(self) -> str:
        """These as whoever reads them can write them: see `spelling`."""
        given = [option(name, getattr(self, name)) for name in _FILTERS if self._is_given(name)]
        return either(" ", ", ").join(given)

    @property
    def of_named(self) -> Options:
        """Those of them that go with GPUs that are named."""
        return replace(self, min_free=None, model=None)

    def _is_given(self, name: str) -> bool:
        value = getattr(self, name)
        return value is not None and value is not False

    def _typed(self, names: tuple[str, ...]) -> str:
        typed = ""
        for name in filter(self._is_given, names):
            value = getattr(self, name)
            typed += f" --{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        return typed


class WaitOptions(TypedDict, total=False):
    """The options of a choice that is waited for, as in `Options`."""

    by: By | None
    order: Order | None
    force: bool
    growth: bool
    memory_limit: str | int | None
    min_free: str | int | None
    model: str | None
    no_claim: bool


def check_wait_options(given: Iterable[str]) -> None:
    """Check that all names of options are those of `WaitOptions`.

    Raises
    ------
    ChoiceError
        One is not.

    """
    for name in given:
        if name not in WaitOptions.__annotations__:
            close = difflib.get_close_matches(name, WaitOptions.__annotations__, n=1)
            meant = f"did you mean {close[0]}?" if close else 'within="30m" says how long it waits.'
            raise ChoiceError(f"wait_for takes no {name}: {meant}")


def split_request(typed: str) -> tuple[str, Options]:
    """Return the GPUs of what is typed after `%gpus`, and the options after them, as `str` writes those.

    Only the options for memory are read. All else is left with the GPUs, where it names none.
    """
    match = _MEMORY.fullmatch(typed)
    assert match  # noqa: S101 - it matches any text
    devices, growth, limit = match.groups()
    return devices, Options(growth=growth is not None, memory_limit=limit)
