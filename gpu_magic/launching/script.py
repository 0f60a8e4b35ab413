"""A cell as a script, and the variables that it is given and that come back from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import LaunchError
from gpu_magic.launching.handover import check_installed, dump, load

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Script"]

_RUNNER = str(Path(__file__).with_name("run_script.py"))
_GIVEN, _RETURNED = "given.pickle", "returned{INDEX}.pickle"


@dataclass(frozen=True, slots=True)
class Script:
    """A script that is written for a command.

    Parameters
    ----------
    name
        Of its file.
    code
        What is in there.
    given
        Variables that it begins with.
    wanted
        The names of those that rank 0 hands back at its end.

    """

    name: str
    code: str
    given: Mapping[str, Any] = field(default_factory=dict)
    wanted: tuple[str, ...] = ()

    def write(self, folder: Path, *, each: bool) -> list[str]:
        """Write it into a folder; return the words that name it to a launcher, the first of them a path.

        Tracebacks show its lines for as long as the folder is there.

        Parameters
        ----------
        folder
            Of the launch.
        each
            Whether it is started once for each GPU.

        Raises
        ------
        LaunchError
            It can't be written, or a variable can't be handed over.

        """
        script = folder / self.name
        try:
            script.write_text(self.code, encoding="utf-8")
        except OSError as error:
            raise LaunchError(f"The script can't be written: {error}.") from None
        if not self.given and not self.wanted:
            return [str(script)]
        check_installed()
        dump(self.given, folder / _GIVEN)
        returned = folder / (_RETURNED if each else _RETURNED.format(INDEX=""))
        return [_RUNNER, str(script), str(folder / _GIVEN), str(returned), *self.wanted]

    def returned(self, folder: Path, processes: int | None) -> dict[str, Any]:
        """Return the variables that rank 0 has handed back; those that it did not have are left out.

        Parameters
        ----------
        folder
            Of the launch.
        processes
            Where it was started once for each GPU, how many there were: then each variable is a list, with
            None for what did not come back.

        Raises
        ------
        LaunchError
            They can't be read here.

        """
        indices = [""] if processes is None else map(str, range(processes))
        files = [folder / _RETURNED.format(INDEX=index) for index in indices]
        try:
            found = [load(file) if file.exists() else {} for file in files]
        except Exception as error:  # noqa: BLE001 - whatever the values' own code raises
            names = ", ".join(self.wanted)
            raise LaunchError(f"{names} did not come back: {type(error).__name__}: {error}") from None
        if processes is None:
            return found[0]
        there = [name for name in self.wanted if any(name in one for one in found)]
        return {name: [one.get(name) for one in found] for name in there}
