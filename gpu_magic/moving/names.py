"""The variables, attributes and items that a line names: `model`, `state.model`, `data["train"]`."""

from __future__ import annotations

import ast
import contextlib
import difflib
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.errors import PlacementError
from gpu_magic.placement.components import is_frozen
from gpu_magic.selection.target import parse_targets
from gpu_magic.text import code_words, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, MutableMapping

__all__ = [
    "Names",
    "evaluated",
    "parse_expression",
    "raised_text",
    "value_of",
    "variables_of",
]

_DEEPEST = 100  # levels of an expression: Python can't follow ten times as many


def variables_of(namespace: Mapping[str, Any], hidden: Container[str]) -> dict[str, Any]:
    """Return the variables that the user made, without private ones (`_x`).

    Parameters
    ----------
    namespace
        The variables of a shell.
    hidden
        The names among them that the user has not made.

    """
    return {
        name: value for name, value in namespace.items() if name not in hidden and not name.startswith("_")
    }


def value_of(name: str, namespace: Mapping[str, Any], hidden: Container[str]) -> Any:
    """Return the value of a variable; see `variables_of`.

    Raises
    ------
    PlacementError
        There is none of this name.

    """
    if name in namespace:
        return namespace[name]
    close = difflib.get_close_matches(name, variables_of(namespace, hidden), n=1)
    hint = f"; did you mean {close[0]}?" if close else "."
    raise PlacementError(f"{name} is not a variable here{hint}")


def parse_expression(text: str) -> ast.expr | None:
    """Return an expression; None where it is not one, or has more levels than anybody writes."""
    try:
        found = ast.parse(text.strip(), mode="eval").body
    # Half of a surrogate pair is a ValueError, and what is too deep one of the others.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    level: list[ast.AST] = [found]
    for _ in range(_DEEPEST):
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
        if not level:
            return found
    return None


def evaluated(shell: Any, expression: str) -> object:
    """Return the value of an expression in an IPython shell.

    Raises
    ------
    PlacementError
        It is not one, or raises.

    """
    try:
        return shell.ev(expression)
    except SyntaxError:
        why = "is not an expression; several are separated by spaces or commas"
    except NameError as error:
        why = f"{error}" if expression != error.name else "is not a variable here"
        there = variables_of(shell.user_ns, shell.user_ns_hidden)
        if error.name and (close := difflib.get_close_matches(error.name, there, n=1)):
            why = f"{why.removesuffix('.').partition(' Did you mean')[0]}; did you mean {close[0]}?"
    except Exception as error:  # noqa: BLE001 - whatever the user's expression raises
        why = raised_text(error)
    end = "" if why.endswith("?") else "."
    raise PlacementError(f"{expression} {why}{end} %where alone lists all.")


def raised_text(error: BaseException) -> str:
    """Return `raises KeyError: 'z'`; of an attribute that is not there, with the nearest one that is."""
    text = f"raises {type(error).__name__}: {error}"
    if not isinstance(error, AttributeError) or not error.name or error.obj is None:
        return text
    try:
        names = [name for name in dir(error.obj) if isinstance(name, str) and not name.startswith("_")]
    except Exception:  # noqa: BLE001 - an object can answer with anything
        return text
    close = difflib.get_close_matches(error.name, names, n=1)
    return f"{text}; did you mean {close[0]}?" if close else text


class _Slot(NamedTuple):
    """How to read and write one value: a variable, an attribute or an item."""

    get: Callable[[], Any]
    put: Callable[[Any], None]


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
        self._slots: dict[str, _Slot] = {}
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
            slot = self._slots[word] = self._slot(word)
            self._before[word] = slot.get()
        return dict(self._before)

    def read_all(self) -> dict[str, Any]:
        """Return all variables that the user made."""
        for name, value in variables_of(self._namespace, self._hidden).items():
            self._slots[name], self._before[name] = self._variable(name), value
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
                self._slots[name].put(value)

    def undo(self) -> None:
        """Take back `put`."""
        while self._changed:
            name = self._changed.pop()
            with contextlib.suppress(Exception):  # the others are put back all the same
                self._slots[name].put(self._before[name])

    def _slot(self, word: str) -> _Slot:
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
        if issubclass(cls, tuple | frozenset | str) or is_frozen(cls):
            raise PlacementError(
                f"{owner_text} is {kind}, which can't be changed in part: move {owner_text}."
            )
        is_item = isinstance(node, ast.Subscript)
        if hasattr(cls, "__array__") or (is_item and not hasattr(cls, "__setitem__")):
            raise PlacementError(f"{word} is a part of {kind}: move {owner_text}.")
        self._value(node, word)
        if isinstance(node, ast.Attribute):
            name = node.attr
            return _Slot(lambda: getattr(owner, name), lambda value: setattr(owner, name, value))
        key = self._value(node.slice, word)
        return _Slot(lambda: owner[key], lambda value: owner.__setitem__(key, value))

    def _variable(self, name: str) -> _Slot:
        value_of(name, self._namespace, self._hidden)
        namespace = self._namespace  # not through self: that would be a cycle, and keep the old values
        return _Slot(lambda: namespace[name], lambda value: namespace.__setitem__(name, value))

    def _value(self, node: ast.expr, word: str) -> Any:
        """Return the value of a name, an attribute or an item. Calls are refused: they could do anything."""
        if any(isinstance(inner, ast.Call | ast.Await | ast.NamedExpr) for inner in ast.walk(node)):
            raise PlacementError(
                f"{word} calls a function, and what it returns has no name: assign it first."
            )
        root = next((inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)), "")
        if root and root not in self._namespace:
            self._variable(root)
        try:
            return eval(compile(ast.Expression(node), "<name>", "eval"), dict(self._namespace))  # noqa: S307 - the user's own
        except Exception as error:  # noqa: BLE001 - whatever the user's object raises
            raise PlacementError(f"{word} {raised_text(error)}") from None


def _refuse_devices(word: str) -> None:
    """Raise for a device among the names, and say where it belongs.

    Raises
    ------
    PlacementError
        The word names a device, or is one that people write before a device.

    """
    if word in ("all", "*"):
        raise PlacementError("Every variable is --all: %to_gpu --all.")
    if word in ("to", "on"):
        raise PlacementError(f"{word} is not a variable here. Give the device with --device 1.")
    try:
        parse_targets(word)
    except PlacementError:
        return
    raise PlacementError(f"{word} is not a variable here. Give the device with --device {word}.")


def _words(text: str) -> list[str]:
    """Return each name of a text once."""
    text = text.strip().rstrip(";")
    words = code_words(text, commas=True)
    if text[:1] + text[-1:] in ("()", "[]", "''", '""'):  # as one would write them in Python
        inner = code_words(text[1:-1], commas=True)
        if all(map(parse_expression, inner)):  # `[a, b][0]` begins and ends so, too
            words = inner
    return list(dict.fromkeys(words))
