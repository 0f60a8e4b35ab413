"""`%where`: on which devices variables live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

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
        import gpu_magic

        space, hidden = self.shell.user_ns, self.shell.user_ns_hidden
        words = line.partition("#")[0].split()
        if words:
            found = {word: gpu_magic.devices_of(self._value(word)) for word in words}
        else:
            own = {name: value for name, value in space.items() if name not in hidden and name[0] != "_"}
            found = {name: gpu_magic.devices_of(value) for name, value in own.items()}
            found = {name: devices for name, devices in found.items() if devices}
        width = max(map(len, found), default=0)
        for name, devices in found.items():
            for place, shown in enumerate(devices.lines or ["no arrays"]):
                print(f"{'' if place else name:{width}}  {shown}")
        if not found:
            print("No variable here holds arrays of a framework that is imported.")

    def _value(self, expression: str) -> object:
        try:
            return self.shell.ev(expression)
        except SyntaxError:
            why = "is no expression; several are separated by spaces, and have none inside"
        except NameError as error:
            why = f"{error}" if expression != error.name else "is not a variable here"
        except Exception as error:  # noqa: BLE001 - whatever the user's expression raises
            why = f"raises {type(error).__name__}: {error}"
        raise UsageError(f"{expression} {why}. %where alone lists all.")
