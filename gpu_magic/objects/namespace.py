"""The variables of a notebook, and expressions over them."""

from __future__ import annotations

import ast
import difflib
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

__all__ = ["evaluated", "is_installed", "parse_expression", "raised_text", "value_of", "variables_of"]

# Where Python and installed packages are.
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_DEEPEST = 100  # levels of an expression. Python cannot parse ten times as many


def variables_of(namespace: Mapping[str, Any], hidden: Container[str]) -> dict[str, Any]:
    """Return the user's variables, without hidden (IPython's) and private ones (`_x`)."""
    return {
        name: value for name, value in namespace.items() if name not in hidden and not name.startswith("_")
    }


def value_of(name: str, namespace: Mapping[str, Any], hidden: Container[str]) -> Any:
    """Return the value of a variable. Raise PlacementError if it does not exist."""
    if name in namespace:
        return namespace[name]
    raise PlacementError(
        f"{name} is not a variable here{_meant(name, variables_of(namespace, hidden)) or '.'}"
    )


def parse_expression(text: str) -> ast.expr | None:
    """Parse an expression. Return None if it is not one, or if it has too many levels."""
    try:
        found = ast.parse(text.strip(), mode="eval").body
    # Half of a surrogate pair raises ValueError. Too many levels raise one of the others.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    level: list[ast.AST] = [found]
    for _ in range(_DEEPEST):
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
    return None if level else found


def is_installed(path: str) -> bool:
    """Return whether a file belongs to Python or to an installed package, not to the user."""
    is_in_packages = {"site-packages", "dist-packages"} & set(Path(path).parts)
    return bool(is_in_packages) or path.startswith(_LIBRARIES)


def evaluated(shell: Any, expression: str) -> object:
    """Return the value of an expression in an IPython shell. Raise PlacementError if it has none."""
    try:
        return shell.ev(expression)
    except SyntaxError:
        why = "is not an expression. Separate several by spaces or commas"
    except NameError as error:
        why = f"{error}" if expression != error.name else "is not a variable here"
        if meant := _meant(error.name or "", variables_of(shell.user_ns, shell.user_ns_hidden)):
            why = f"{why.removesuffix('.').partition(' Did you mean')[0]}{meant}"
    except Exception as error:  # noqa: BLE001 - whatever the user's expression raises
        why = raised_text(error)
    raise PlacementError(f"{expression} {why}{'' if why.endswith('?') else '.'} %where lists all.")


def raised_text(error: BaseException) -> str:
    """Return `raises KeyError: 'z'`. For a missing attribute, also the nearest name that exists."""
    text, names = f"raises {type(error).__name__}: {error}", list[str]()
    if isinstance(error, AttributeError) and error.name and error.obj is not None:
        try:
            names = [name for name in dir(error.obj) if isinstance(name, str) and not name.startswith("_")]
        except Exception:  # noqa: BLE001 - an object's `__dir__` can raise anything
            return text
        text += _meant(error.name, names)
    return text


def _meant(name: str, there: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, there, n=1)
    return f". Did you mean {close[0]}?" if close else ""
