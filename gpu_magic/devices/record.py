"""Frozen dataclasses that are cheap to define, for the types that the first snapshot needs.

`dataclass(frozen=True, slots=True)` compiles six methods for each class (Python 3.11). For ten classes that
takes as long as importing pynvml. Here the methods are written once, for all classes; the rest is
`dataclass`, so `replace`, `fields` and `asdict` work as on any dataclass.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field
from typing import Any, TypeVar, dataclass_transform

__all__ = ["record"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass with slots. Methods that the class defines itself are kept.

    Defaults are shared by all instances, so they have to be immutable; a `default_factory` is not called.
    """
    for name, method in _METHODS.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    # A slot's own setter is not subject to __setattr__, and faster than object.__setattr__.
    made._setters = tuple(getattr(made, name).__set__ for name in made.__dataclass_fields__)  # noqa: SLF001
    return made  # type: ignore[no-any-return]


def _init(self: Any, *values: Any, **named: Any) -> None:
    setters = self._setters
    if named or len(values) != len(setters):
        values = _complete(type(self), values, named)
    for set_value, value in zip(setters, values, strict=True):
        set_value(self, value)


def _complete(cls: Any, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Return a value for each field, in order, with the defaults of those that were not given.

    Raises
    ------
    TypeError
        As a function with these parameters would.

    """
    fields = cls.__dataclass_fields__
    if len(values) > len(fields):
        raise TypeError(f"{cls.__name__}() takes {len(fields)} arguments but {len(values)} were given")
    given = dict(zip(fields, values, strict=False))
    for name in named:
        if name in given:
            raise TypeError(f"{cls.__name__}() got multiple values for argument {name!r}")
        if name not in fields:
            raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {name!r}")
    given |= named
    for name, its_field in fields.items():
        if given.setdefault(name, its_field.default) is MISSING:
            raise TypeError(f"{cls.__name__}() missing required argument {name!r}")
    return tuple(given[name] for name in fields)


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__dataclass_fields__)


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse_change(self: Any, name: str, *_: Any) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r} of {type(self).__name__}")


def _reduce(self: Any) -> tuple[type, tuple[Any, ...]]:
    return type(self), _values(self)


_METHODS = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse_change,
    "__delattr__": _refuse_change,
    "__reduce__": _reduce,  # for copy and pickle, which would set attributes
}
