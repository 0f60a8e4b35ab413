"""The page's side of the panel: what the Jupyter server has of anywidget and ipywidgets.

The page's part of a widget comes from the environment of the Jupyter server, which can be another one than
the kernel's. A widget of anywidget 0.11 asks the page for anywidget ~0.11 (anywidget/_version.py,
`_ANYWIDGET_SEMVER_VERSION`), and ipywidgets 8 for a manager of jupyterlab_widgets 3, which calls itself 5.
Where the server has neither, the page shows the static table that is saved with the notebook.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.diagnosis.facts import FrontEnd

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Missing", "missing_there", "read_front_end"]

_ANYWIDGET, _MANAGER = "anywidget", "@jupyter-widgets/jupyterlab-manager"
_EXTENSIONS = "share/jupyter/labextensions"
# Where a Jupyter server looks besides its own environment (jupyter_core, `jupyter_path`).
_SHARED = ("usr/local", "usr")
_MOST_READ = 1 << 20  # bytes of a file


def read_front_end(
    environment: Mapping[str, str], panels: int, *, has_answered: bool, root: Path = Path("/")
) -> FrontEnd:
    """Read which extensions the Jupyter server has whose kernel this is.

    Parameters
    ----------
    environment
        The variables that this process was launched with: those of the server, and JPY_PARENT_PID, its
        number (jupyter_client).
    panels, has_answered
        As in `FrontEnd`.
    root
        The folder with proc, and with the environments.

    """
    server = environment.get("JPY_PARENT_PID", "")
    prefix = _prefix(server, root) if server.isdecimal() else None
    if prefix is None:
        return FrontEnd(panels=panels, has_answered=has_answered)
    named = [*environment.get("JUPYTER_PATH", "").split(":"), _own_data(environment)]
    folders = [root / one.lstrip("/") / "labextensions" for one in filter(None, named)]
    folders += [root / one.lstrip("/") / _EXTENSIONS for one in (str(prefix), *_SHARED)]
    return FrontEnd(
        is_known=True,
        anywidget=_first_version(folders, _ANYWIDGET),
        manager=_first_version(folders, _MANAGER),
        prefix=str(prefix),
        panels=panels,
        has_answered=has_answered,
    )


def _own_data(environment: Mapping[str, str]) -> str:
    """Return the user's folder, as jupyter_core's `jupyter_data_dir` does on Linux."""
    if own := environment.get("JUPYTER_DATA_DIR"):
        return own
    data = environment.get("XDG_DATA_HOME") or f"{environment.get('HOME', '')}/.local/share"
    return f"{data}/jupyter"


class Missing(NamedTuple):
    """What pages lack to show a panel, as a sentence, and the command that mends it."""

    what: str
    mend: str


def missing_there(front: FrontEnd, here: str) -> Missing | None:
    """Return what the Jupyter server's environment lacks; None where that is nothing, or not known.

    Parameters
    ----------
    front
        What it has.
    here
        The version of anywidget in this process; empty where it is not known.

    """
    if not front.is_known:
        return None
    if missing := "anywidget" * (not front.anywidget) or "ipywidgets" * (not front.manager):
        wanted = missing
        what = f"The Jupyter server's environment has no {missing}, which is the page's part of a panel."
    elif here and _series(here) != _series(front.anywidget):
        wanted = f"anywidget=={here}"
        what = f"Pages have anywidget {front.anywidget} of the Jupyter server, and this kernel has {here}."
    else:
        return None
    return Missing(what, f"{front.prefix}/bin/python -m pip install {wanted}")


def _series(version: str) -> str:
    """Return the part that has to be the same on both sides: `0.11`."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version


def _prefix(server: str, root: Path) -> Path | None:
    """Return the environment of the server; None where that can't be told, as on another machine."""
    try:
        words = (root / "proc" / server / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if not any(b"jupyter" in word or b"labhub" in word for word in words):
        return None
    for word in words[:2]:  # `/opt/hub/bin/python /opt/hub/bin/jupyter-lab`
        program = Path(word.decode("utf-8", "replace"))
        prefix = program.parent.parent
        # It is False where this user can't look, or the path is none; Path.is_dir raises.
        has_extensions = os.path.isdir(root / str(prefix).lstrip("/") / "share/jupyter")  # noqa: PTH112
        if program.is_absolute() and program.parent.name == "bin" and has_extensions:
            return prefix
    return None


def _first_version(folders: list[Path], extension: str) -> str:
    for folder in folders:
        try:
            with (folder / extension / "package.json").open(encoding="utf-8") as file:
                return str(json.loads(file.read(_MOST_READ))["version"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return ""
