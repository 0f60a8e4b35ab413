"""`%where`: on which devices variables live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from gpu_magic.api import devices_by_name
from gpu_magic.display.memory import unfinished_text, where_lines
from gpu_magic.moving.names import variables_of
from gpu_magic.placement.budget import Budget

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["WhereMagic"]


class WhereMagic:
    """The magic that finds variables."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell: Any = shell

    def where(self, line: str) -> None:
        """Say on which devices variables live, and how many bytes they take there.

        %where             every variable of this notebook that holds arrays
        %where x model     these; models, optimizers and containers are looked into
        %where batch["x"]  an expression, without spaces

        What shares memory (views, tied weights) is counted once.
        """
        words = line.partition("#")[0].split()
        budget = Budget()
        if words:
            found = devices_by_name({word: self._value(word) for word in words})
        else:
            variables = variables_of(self.shell.user_ns, self.shell.user_ns_hidden)
            found = {name: devices for name, devices in devices_by_name(variables, budget).items() if devices}
        nothing = "No variable here holds arrays of a framework that is imported."
        print(*(where_lines(found) or [nothing]), sep="\n")
        if budget.unfinished:
            print(unfinished_text(budget.unfinished))

    def _value(self, expression: str) -> object:
        """Return the value of an expression.

        Raises
        ------
        UsageError
            It is not one, or raises.

        """
        try:
            return self.shell.ev(expression)
        except SyntaxError:
            why = "is not an expression; separate several with spaces, and use none inside"
        except NameError as error:
            why = f"{error}" if expression != error.name else "is not a variable here"
        except Exception as error:  # noqa: BLE001 - whatever the user's expression raises
            why = f"raises {type(error).__name__}: {error}"
        raise UsageError(f"{expression} {why}. %where alone lists all.")
