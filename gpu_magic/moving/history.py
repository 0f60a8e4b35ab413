"""What an IPython shell keeps alive besides the user's variables: outputs, and the last error's traceback."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["History"]

# Where Python keeps the last error (`last_exc` since Python 3.12).
_LAST_ERROR = ("last_type", "last_value", "last_traceback", "last_exc")
# The last three outputs.
_UNDERSCORES = ("_", "__", "___")


class History:
    """The outputs and the last error of an IPython shell, which can be dropped.

    Parameters
    ----------
    shell
        The `InteractiveShell`.

    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._namespace: dict[str, Any] = shell.user_ns

    def variables(self) -> dict[str, object]:
        """Return the user's variables, private ones (`_x`) as well: what they hold is not the history's."""
        hidden = self._shell.user_ns_hidden
        return {name: value for name, value in self._namespace.items() if name not in hidden}

    def outputs(self) -> Iterator[tuple[str, object]]:
        """Return the outputs by their names, `Out[3]` or `_`, each once."""
        numbered = self._namespace.get("_oh", {})
        yield from ((f"Out[{number}]", value) for number, value in numbered.items())
        known = {id(value) for value in numbered.values()}
        for name in _UNDERSCORES:
            if name in self._namespace and id(self._namespace[name]) not in known:
                known.add(id(self._namespace[name]))
                yield name, self._namespace[name]

    def drop_output(self, name: str) -> None:
        """Delete an output everywhere IPython keeps it.

        Parameters
        ----------
        name
            As `outputs` gives it.

        """
        shell, hook = self._shell, self._shell.displayhook
        value = self._namespace[name] if name in _UNDERSCORES else self._namespace["_oh"].pop(int(name[4:-1]))
        for names in (self._namespace, shell.user_ns_hidden):  # the second has values as well: that of _4
            same = [
                key for key, other in names.items() if other is value and re.fullmatch(r"_{1,3}|_\d+", key)
            ]
            for key in same:
                if key in _UNDERSCORES:
                    names[key] = ""
                else:
                    del names[key]
        for key in _UNDERSCORES:
            if getattr(hook, key, "") is value:
                setattr(hook, key, "")
        last = shell.last_execution_result
        if last is not None and last.result is value:
            last.result = None

    def last_error(self) -> BaseException | None:
        """Return the last error, which the functions in its traceback keep their local variables for."""
        return getattr(sys, "last_value", None)

    def drop_traceback(self) -> None:
        """Delete the last error everywhere Python and IPython keep it; %debug and %tb have none any more."""
        for name in _LAST_ERROR:
            if hasattr(sys, name):
                delattr(sys, name)
        last = self._shell.last_execution_result
        if last is not None:
            last.error_in_exec = last.error_before_exec = None
        self._shell.InteractiveTB.tb = None
        self._shell.InteractiveTB.pdb = None
