"""The variables that a line names: `model`, `state.model`, `data["train"]`."""

from __future__ import annotations

import ast
import difflib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.errors import PlacementError
from gpu_magic.placement.components import is_frozen
from gpu_magic.selection.target import parse_targets

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
                self._slots[name].put(value)
                self._changed.append(name)

    def undo(self) -> None:
        while self._changed:
            name = self._changed.pop()
            self._slots[name].put(self._before[name])

    def _slot(self, word: str) -> _Slot:
        if word not in self._space:
            _refuse_devices(word)
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
                f"{word} is no variable, attribute or item: what is moved needs a name that it keeps. Assign "
                "it first, or use gpu_magic.to_gpu(...)."
            )
        owner = self._value(node.value, word)
        of, kind = ast.unparse(node.value), type(owner)
        if isinstance(owner, tuple | frozenset | str) or is_frozen(kind):
            raise PlacementError(f"{of} is a {kind.__name__}, which can't be changed in part: move {of}.")
        is_item = isinstance(node, ast.Subscript)
        if hasattr(kind, "__array__") or (is_item and not hasattr(kind, "__setitem__")):
            raise PlacementError(f"{word} is a part of a {kind.__name__}: move {of}.")
        self._value(node, word)
        if isinstance(node, ast.Attribute):
            name = node.attr
            return _Slot(lambda: getattr(owner, name), lambda value: setattr(owner, name, value))
        key = self._value(node.slice, word)
        return _Slot(lambda: owner[key], lambda value: owner.__setitem__(key, value))

    def _variable(self, name: str) -> _Slot:
        if name not in self._space:
            close = difflib.get_close_matches(name, self._own(), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise PlacementError(f"{name} is not a variable here{hint}")
        space = self._space  # not through self: that would be a cycle, and keep the old values
        return _Slot(lambda: space[name], lambda value: space.__setitem__(name, value))

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


def _refuse_devices(word: str) -> None:
    """Tell where a device belongs, to whoever has put it among the names."""
    if word in ("all", "*"):
        raise PlacementError("Every variable is --all: %to_gpu --all.")
    if word in ("to", "on"):
        raise PlacementError(f"{word} is not a variable here. The device stands behind --device: --device 1.")
    try:
        parse_targets(word)
    except PlacementError:
        return
    raise PlacementError(f"{word} is not a variable here. A device stands behind --device: --device {word}.")


def _words(text: str) -> list[str]:
    """Split at spaces and commas that stand in no brackets and no quotes; each name once."""
    text = text.strip().rstrip(";")
    if text[:1] + text[-1:] in ("()", "[]", "''", '""'):  # as one would write them in Python
        text = text[1:-1]
    found = re.findall(r"""(?:"[^"]*"|'[^']*'|\[(?:[^\[\]"']|"[^"]*"|'[^']*'|\[[^\]]*\])*\]|[^\s,])+""", text)
    return list(dict.fromkeys(found))
