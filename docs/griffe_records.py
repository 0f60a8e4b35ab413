"""Tells mkdocstrings what NamedTuple makes: a class that is called with its fields."""

from __future__ import annotations

from typing import Any

import griffe

__all__ = ["Records"]


class Records(griffe.Extension):
    """An extension of griffe, which reads sources without importing them."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Give a class the `__init__` that is made from its fields."""
        if not any(str(base) == "NamedTuple" for base in cls.bases):
            return
        fields = [one for one in cls.attributes.values() if one.annotation and "property" not in one.labels]
        kind = griffe.ParameterKind.positional_or_keyword
        parameters = [griffe.Parameter("self", kind=kind)]
        parameters += [
            griffe.Parameter(one.name, annotation=one.annotation, kind=kind, default=one.value)
            for one in fields
        ]
        cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*parameters)))
        for field in fields:  # the docstring's list of parameters says what they are
            cls.members.pop(field.name, None)
