"""The variables, attributes and items that a line names: `model`, `state.model`, `data["train"]`."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.target import is_target
from gpu_magic.objects.parts import class_of
from gpu_magic.process.namespace import parse_expression, raised_text, value_of
from gpu_magic.text import code_words, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Container, MutableMapping

__all__ = ["Place", "read_places"]


@dataclass(frozen=True, slots=True)
class Place:
    """A value that has a name, and what stores another one there."""

    value: Any
    store: Callable[[Any], object]


def read_places(text: str, namespace: MutableMapping[str, Any], hidden: Container[str]) -> dict[str, Place]:
    """Return what is named in a line; raise PlacementError if something is not there or can't be replaced."""
    words = dict.fromkeys(code_words(text.strip().rstrip(";"), commas=True))
    return {word: _read(word, namespace, hidden) for word in words}


def _read(word: str, namespace: MutableMapping[str, Any], hidden: Container[str]) -> Place:
    def value(part: ast.expr) -> Any:
        try:
            return eval(compile(ast.Expression(part), "<name>", "eval"), dict(namespace))  # noqa: S307 - the user's own
        except Exception as error:  # noqa: BLE001 - whatever the user's object raises
            raise PlacementError(f"{word} {raised_text(error)}") from None

    if word not in namespace and is_target(word):
        raise PlacementError(f"{word} is not a variable here. %to_gpu takes a device as --device {word}.")
    node = parse_expression(word)
    if isinstance(node, ast.Name):
        return Place(value_of(node.id, namespace, hidden), partial(namespace.__setitem__, node.id))
    calls = ast.Call | ast.Await | ast.NamedExpr  # they could do anything
    if not isinstance(node, ast.Attribute | ast.Subscript) or any(
        isinstance(one, calls) for one in ast.walk(node)
    ):
        raise PlacementError(
            f"{word!r} is not a variable, attribute or item. Name them as in Python, with spaces between: "
            "model state.optimizer data['train']."
        )
    for root in ast.walk(node):
        if isinstance(root, ast.Name):
            value_of(root.id, namespace, hidden)
    owner = value(node.value)
    cls, is_item = type(owner), isinstance(node, ast.Subscript)
    is_whole = (
        issubclass(cls, tuple | frozenset | str) or class_of(cls).is_frozen or hasattr(cls, "__array__")
    )
    if is_whole or (is_item and not hasattr(cls, "__setitem__")):
        raise PlacementError(
            f"{word} is a part of {with_article(cls.__name__)}: move {ast.unparse(node.value)}."
        )
    if isinstance(node, ast.Attribute):
        return Place(value(node), partial(setattr, owner, node.attr))
    return Place(value(node), partial(owner.__setitem__, value(node.slice)))
