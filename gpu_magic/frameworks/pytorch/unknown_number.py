"""A number that a predicted step does not know: `loss.item()`, where the loss has no data."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from gpu_magic.frameworks.prediction import NotFollowed

__all__ = ["UnknownNumber"]


class UnknownNumber(float):
    """The number that a tensor without data holds: to compute with and to print, and not to decide by."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return super().__new__(cls, "nan")

    def _decide(self, *others: object) -> NoReturn:
        del others
        raise NotFollowed("it decides by a number that a tensor holds")

    __bool__ = __index__ = __int__ = __lt__ = __le__ = __gt__ = __ge__ = _decide
    __eq__ = __ne__ = __round__ = __trunc__ = __floor__ = __ceil__ = _decide
    __hash__ = float.__hash__

    def _same(self, *others: Any) -> UnknownNumber:
        del others
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __neg__ = __abs__ = _same
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pos__ = _same
