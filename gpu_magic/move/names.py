"""The variables, attributes and items that a line names: `model`, `state.model`, `data["train"]`."""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.objects.parts import class_of
from gpu_magic.process.namespace import parse_expression, raised_text, value_of, variables_of
from gpu_magic.selection.target import parse_targets
from gpu_magic.text import code_words, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, MutableMapping

__all__ = ["Names"]


class Names:
    """Variables, attributes and items in a namespace, which can be given new values.

    Parameters
    ----------
    namespace
        The variables.
    hidden
        The names among them that the user has not made.

    """

    def __init__(self, namespace: MutableMapping[str, Any], hidden: Container[str]) -> None:
        self._namespace, self._hidden = namespace, hidden
        self._stores: dict[str, Callable[[Any], None]] = {}
        self._before: dict[str, Any] = {}
        self._changed: list[str] = []

    def read(self, text: str) -> dict[str, Any]:
        """Return the values of what is named.

        Raises
        ------
        PlacementError
            Something named does not exist, or could not be given another value.

        """
        for word in _words(text):
            self._before[word], self._stores[word] = self._read(word)
        return dict(self._before)

    def read_all(self) -> dict[str, Any]:
        """Return all variables that the user made."""
        for name in variables_of(self._namespace, self._hidden):
            self._before[name], self._stores[name] = self._variable(name)
        return dict(self._before)

    def variables_and_outputs(self) -> Iterator[tuple[str, Any]]:
        """Return all variables that the user made, and the outputs that IPython keeps (`Out[3]`)."""
        yield from variables_of(self._namespace, self._hidden).items()
        yield from ((f"Out[{number}]", value) for number, value in self._namespace.get("_oh", {}).items())

    def put(self, values: Mapping[str, Any]) -> None:
        """Give names that were read new values."""
        for name, value in values.items():
            if value is not self._before[name]:
                self._changed.append(name)  # before: what sets it can change something, and then raise
                self._stores[name](value)

    def undo(self) -> None:
        """Take back `put`."""
        while self._changed:
            name = self._changed.pop()
            with contextlib.suppress(Exception):  # the others are put back all the same
                self._stores[name](self._before[name])

    def _read(self, word: str) -> tuple[Any, Callable[[Any], None]]:
        """Return what a word names, and what stores another value there."""
        if word not in self._namespace:
            _refuse_devices(word)
        node = parse_expression(word)
        if node is None:
            raise PlacementError(
                f"{word!r} is not a variable. Name them as you would in Python, with spaces between: "
                "model state.optimizer data['train']."
            )
        if isinstance(node, ast.Name):
            return self._variable(node.id)
        if not isinstance(node, ast.Attribute | ast.Subscript):
            raise PlacementError(
                f"{word} is not a variable, attribute or item, and what is moved needs a name. Assign "
                "it first, or use gpu_magic.to_gpu(...)."
            )
        owner = self._value(node.value, word)
        owner_text, cls = ast.unparse(node.value), type(owner)
        kind = with_article(cls.__name__)
        if issubclass(cls, tuple | frozenset | str) or class_of(cls).is_frozen:
            raise PlacementError(
                f"{owner_text} is {kind}, which can't be changed in part: move {owner_text}."
            )
        is_item = isinstance(node, ast.Subscript)
        if hasattr(cls, "__array__") or (is_item and not hasattr(cls, "__setitem__")):
            raise PlacementError(f"{word} is a part of {kind}: move {owner_text}.")
        value = self._value(node, word)
        if isinstance(node, ast.Attribute):
            name = node.attr
            return value, lambda new: setattr(owner, name, new)
        key = self._value(node.slice, word)
        return value, lambda new: owner.__setitem__(key, new)

    def _variable(self, name: str) -> tuple[Any, Callable[[Any], None]]:
        value = value_of(name, self._namespace, self._hidden)
        namespace = self._namespace  # not through self: that would be a cycle, and keep the old values
        return value, lambda new: namespace.__setitem__(name, new)

    def _value(self, node: ast.expr, word: str) -> Any:
        """Return the value of a name, an attribute or an item. Calls are refused: they could do anything."""
        if any(isinstance(inner, ast.Call | ast.Await | ast.NamedExpr) for inner in ast.walk(node)):
            raise PlacementError(
                f"{word} calls a function, and what it returns has no name: assign it first."
            )
        root = next((inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)), "")
        if root:
            value_of(root, self._namespace, self._hidden)
        try:
            return eval(compile(ast.Expression(node), "<name>", "eval"), dict(self._namespace))  # noqa: S307 - the user's own
        except Exception as error:  # noqa: BLE001 - whatever the user's object raises
            raise PlacementError(f"{word} {raised_text(error)}") from None


def _refuse_devices(word: str) -> None:
    """Raise PlacementError for a device among the names, and say where it belongs."""
    if word in ("all", "*"):
        raise PlacementError("Every variable is --all: %to_gpu --all.")
    if word not in ("to", "on"):  # people write these before a device
        try:
            parse_targets(word)
        except PlacementError:
            return
    device = "1" if word in ("to", "on") else word
    raise PlacementError(f"{word} is not a variable here. Give the device with --device {device}.")


def _words(text: str) -> list[str]:
    """Return each name of a text once."""
    text = text.strip().rstrip(";")
    words = code_words(text, commas=True)
    if text[:1] + text[-1:] in ("()", "[]", "''", '""'):  # as one would write them in Python
        inner = code_words(text[1:-1], commas=True)
        if all(map(parse_expression, inner)):  # `[a, b][0]` begins and ends so, too
            words = inner
    return list(dict.fromkeys(words))
