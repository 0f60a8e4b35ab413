"""The variables that a line names: `model`, `state.model`, `data["train"]`."""

from __future__ import annotations

import ast
import difflib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, MutableMapping

__all__ = ["Names"]


class _Slot(NamedTuple):
    """Where a value stands."""

    get: Callable[[], Any]
    put: Callable[[Any], None]


class Names:
    """Variables, attributes and items of a namespace, which can be given new values.

    Parameters
    ----------
    namespace
        The variables.
    hidden
        Names of it that are not the user's.

    """

    def __init__(self, namespace: MutableMapping[str, Any], hidden: Container[str]) -> None:
        self._space, self._hidden = namespace, hidden
        self._slots: dict[str, _Slot] = {}
        self._before: dict[str, Any] = {}
        self._changed: list[str] = []

    def read(self, text: str) -> dict[str, Any]:
        """Return the values of what is named.

        Raises
        ------
        PlacementError
            For what is no variable, or could not be given another value.

        """
        for word in _words(text):
            slot = self._slots[word] = self._slot(word)
            self._before[word] = slot.get()
        return dict(self._before)

    def read_all(self) -> dict[str, Any]:
        """Return all variables that the user made."""
        return self.read(" ".join(self._own()))

    def _own(self) -> list[str]:
        return [name for name in self._space if name not in self._hidden and not name.startswith("_")]

    def put(self, values: Mapping[str, Any]) -> None:
        """Give them values; `undo` gives back those that they had."""
        for name, value in values.items():
            if value is not self._before[name]:
                self._changed.append(name)
                self._slots[name].put(value)

    def undo(self) -> None:
        while self._changed:
            name = self._changed.pop()
            self._slots[name].put(self._before[name])

    def _slot(self, word: str) -> _Slot:
        try:
            node = ast.parse(word, mode="eval").body
        except SyntaxError:
            raise PlacementError(
                f"{word!r} is no variable. Name them as you would in Python, with spaces between: "
                "model state.optimizer data['train']."
            ) from None
        if isinstance(node, ast.Name):
            return self._variable(node.id)
        if not isinstance(node, ast.Attribute | ast.Subscript):
            raise PlacementError(
                f"{word} is no variable, attribute or item, so it can't be given another value."
            )
        owner = self._value(node.value, word)
        if isinstance(owner, tuple | frozenset | str):
            of = ast.unparse(node.value)
            raise PlacementError(
                f"{of} is a {type(owner).__name__}, which can't be changed in part: move {of}."
            )
        if isinstance(node, ast.Attribute):
            self._value(node, word)
            name = node.attr
            return _Slot(lambda: getattr(owner, name), lambda value: setattr(owner, name, value))
        if not hasattr(type(owner), "__setitem__") or hasattr(type(owner), "__array__"):
            of = ast.unparse(node.value)
            raise PlacementError(f"{word} is a part of a {type(owner).__name__}: move {of}.")
        key = self._value(node.slice, word)
        self._value(node, word)
        return _Slot(lambda: owner[key], lambda value: owner.__setitem__(key, value))

    def _variable(self, name: str) -> _Slot:
        if name not in self._space:
            close = difflib.get_close_matches(name, self._own(), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise PlacementError(f"{name} is not a variable here{hint}")
        return _Slot(lambda: self._space[name], lambda value: self._space.__setitem__(name, value))

    def _value(self, node: ast.expr, word: str) -> Any:
        """Evaluate a name, an attribute or an item; calls are refused, as they could do anything."""
        if any(isinstance(one, ast.Call | ast.Await | ast.NamedExpr) for one in ast.walk(node)):
            raise PlacementError(
                f"{word} calls a function, and what it returns has no name: assign it first."
            )
        root = next((one.id for one in ast.walk(node) if isinstance(one, ast.Name)), "")
        if root and root not in self._space:
            self._variable(root)
        try:
            return eval(compile(ast.Expression(node), "<name>", "eval"), dict(self._space))  # noqa: S307 - the user's own
        except Exception as error:  # noqa: BLE001 - whatever the user's object raises
            raise PlacementError(f"{word} raises {type(error).__name__}: {error}") from None


def _words(text: str) -> list[str]:
    """Split at spaces and commas that stand in no brackets and no quotes; each name once."""
    found = re.findall(r"""(?:"[^"]*"|'[^']*'|\[(?:[^\[\]"']|"[^"]*"|'[^']*'|\[[^\]]*\])*\]|[^\s,])+""", text)
    return list(dict.fromkeys(found))
