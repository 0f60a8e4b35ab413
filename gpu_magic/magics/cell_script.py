"""Turns a cell into the script of a command, with the variables that go to it and those that come back."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

from gpu_magic.errors import LaunchError
from gpu_magic.launching.script import Script
from gpu_magic.process.namespace import value_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["make_script"]


def make_script(shell: InteractiveShell, cell: str, given: str, wanted: str) -> Script:
    """Return a cell as a script.

    Parameters
    ----------
    shell
        The shell that it is typed into.
    cell
        What is typed below the magic.
    given, wanted
        The names of variables that it begins with, and of those that come back, with commas between them.

    Raises
    ------
    LaunchError, PlacementError
        It is no script, it never sets what is wanted, or there is no variable that is to be given.

    """
    given_names, wanted_names = _names(given), _names(wanted)
    _check(cell, given_names, wanted_names)
    variables = {name: value_of(name, shell.user_ns, shell.user_ns_hidden) for name in given_names}
    return Script(f"cell_{_number_of(shell)}.py", cell, variables, wanted_names)


def _names(typed: str) -> tuple[str, ...]:
    """Return the variables that are named, with commas between them."""
    names = tuple(filter(None, typed.split(",")))
    for name in names:
        if not name.isidentifier():
            raise LaunchError(f"{name} is not a variable; variables are named like this: --in lr,steps.")
    return names


def _check(cell: str, given: Container[str], wanted: Iterable[str]) -> None:
    """Check that a cell can be run as a script, and can have the variables that are wanted of it."""
    try:
        # With a line in place of the magic's, so that lines are counted as in the cell.
        code = compile(f"\n{cell}", "cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise LaunchError(f"The cell is not a script of Python's: {_reason(error, cell)}.") from None
    names = _names_in(code)
    if "import *" in cell or {"exec", "globals", "vars"} & names:
        return  # it can set any
    for name in wanted:
        if name not in names and name not in given:
            raise LaunchError(f"--out names {name}, which the cell never sets.")


def _names_in(code: CodeType) -> set[str]:
    """Return all names in some code, those in its functions and classes included."""
    within = [_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*within)


def _reason(error: Exception, cell: str) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "it has too many levels"
    if not isinstance(error, SyntaxError) or not error.lineno:
        return str(error)
    line = "".join(cell.splitlines()[error.lineno - 2 : error.lineno - 1]).strip()
    if line.startswith(("%", "!")):
        return f"it has no magics and no shell, as {line} in line {error.lineno}"
    return f"{error.msg} in line {error.lineno}"


def _number_of(shell: InteractiveShell) -> int:
    """Return the number in the prompt of the cell that runs; since IPython 9 the shell counts ahead."""
    manager = shell.history_manager
    return len(manager.input_hist_raw) - 1 if manager else shell.execution_count
