"""A cell as a script, with its input variables and the variables that it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import LaunchError
from gpu_magic.process.namespace import value_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

__all__ = ["Script", "make_script"]

_RUNNER = str(Path(__file__).with_name("run_script.py"))
_GIVEN, _RETURNED = "given.pickle", "returned{INDEX}.pickle"


@dataclass(frozen=True, slots=True)
class Script:
    """A cell as the script of a command."""

    name: str  # of the file
    code: str
    given: Mapping[str, Any] = field(default_factory=dict)  # input variables
    wanted: tuple[str, ...] = ()  # the names of the variables that rank 0 returns at its end

    def write(self, folder: Path, *, each: bool) -> list[str]:
        """Write the script to a launch's folder. Return the words that run it, for a launcher.

        Tracebacks show the script's lines while the folder exists. With `each`, the command starts once for
        each GPU. It raises LaunchError if the script cannot be written, or a variable cannot be pickled.
        """
        script = folder / self.name
        try:
            script.write_text(self.code, encoding="utf-8")
        except OSError as error:
            raise LaunchError(f"The script cannot be written: {error}.") from None
        if not self.given and not self.wanted:
            return [str(script)]
        from gpu_magic.launch.pickling import dump  # loads cloudpickle

        dump(self.given, folder / _GIVEN)
        returned = folder / (_RETURNED if each else _RETURNED.format(INDEX=""))
        return [_RUNNER, str(script), str(folder / _GIVEN), str(returned), *self.wanted]

    def returned(self, folder: Path, processes: int | None) -> dict[str, Any]:
        """Return the variables that rank 0 has returned, without missing variables.

        `processes` is the number of processes, if the command was started once for each GPU. Each variable is
        then a list, with None for a missing value. It raises LaunchError if the variables cannot be read.
        """
        from gpu_magic.launch.pickling import load

        indices = [""] if processes is None else map(str, range(processes))
        files = [folder / _RETURNED.format(INDEX=index) for index in indices]
        try:
            found = [load(file) if file.exists() else {} for file in files]
        except Exception as error:  # noqa: BLE001 - the values' own code can raise anything
            names = ", ".join(self.wanted)
            raise LaunchError(f"{names} did not come back: {type(error).__name__}: {error}") from None
        if processes is None:
            return found[0]
        there = [name for name in self.wanted if any(name in one for one in found)]
        return {name: [one.get(name) for one in found] for name in there}


def make_script(shell: Any, cell: str, given: str, wanted: str) -> Script:
    """Return a cell as a script. `given` and `wanted` are names of variables, separated by commas.

    It raises LaunchError or PlacementError if the cell is not a Python script, if the cell never sets a
    wanted variable, or if a given variable does not exist.
    """
    given_names, wanted_names = _names(given), _names(wanted)
    _check(cell, given_names, wanted_names)
    variables = {name: value_of(name, shell.user_ns, shell.user_ns_hidden) for name in given_names}
    # The number in the prompt of the running cell. Since IPython 9, `execution_count` is one ahead.
    manager = shell.history_manager
    number = len(manager.input_hist_raw) - 1 if manager else shell.execution_count
    return Script(f"cell_{number}.py", cell, variables, wanted_names)


def _names(typed: str) -> tuple[str, ...]:
    """Return the names of variables in a text, where commas separate them."""
    names = tuple(filter(None, typed.split(",")))
    for name in names:
        if not name.isidentifier():
            raise LaunchError(f"{name} is not a variable. Name variables like this: --in lr,steps")
    return names


def _check(cell: str, given: Container[str], wanted: Iterable[str]) -> None:
    """Raise LaunchError if a cell cannot run as a script, or never sets a wanted variable."""
    try:
        # An empty line replaces the magic's line, so that line numbers are those of the cell.
        code = compile(f"\n{cell}", "cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise LaunchError(f"The cell is not a Python script: {_reason(error, cell)}.") from None
    names = _names_in(code)
    if "import *" in cell or {"exec", "globals", "vars"} & names:
        return  # the cell can set any variable
    for name in wanted:
        if name not in names and name not in given:
            raise LaunchError(f"--out names {name}, which the cell never sets.")


def _names_in(code: CodeType) -> set[str]:
    """Return all names in a code object, also in its functions and classes."""
    within = [_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*within)


def _reason(error: Exception, cell: str) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "it is nested too deeply"
    if not isinstance(error, SyntaxError) or not error.lineno:
        return str(error)
    line = "".join(cell.splitlines()[error.lineno - 2 : error.lineno - 1]).strip()
    if line.startswith(("%", "!")):
        return f"magics and shell commands do not run in it ({line} in line {error.lineno})"
    return f"{error.msg} in line {error.lineno}"
