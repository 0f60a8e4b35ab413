"""What the Jupyter server has of the packages that show a panel: anywidget's and ipywidgets's extensions.

The page's part of a widget comes from the environment of the Jupyter server, which can differ from the
kernel's. A widget of anywidget 0.11 asks the page for anywidget ~0.11 (anywidget/_version.py,
`_ANYWIDGET_SEMVER_VERSION`), and ipywidgets 8 for a manager of jupyterlab_widgets 3, which calls itself 5.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FrontEnd", "Missing", "Pages", "missing_there", "pages", "read_front_end", "tell_pages"]

_EXTENSIONS = "share/jupyter/labextensions"
# Where a Jupyter server looks besides its own environment (jupyter_core, `jupyter_path`).
_SHARED = ("usr/local", "usr")
_MOST_READ = 1 << 20  # bytes of a file


class Pages(NamedTuple):
    """How many panels cells have shown, and whether a page has answered one."""

    panels: int = 0
    has_answered: bool = False


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """The versions of both extensions at the Jupyter server; empty for one that is not there."""

    is_known: bool = False  # the server is another process of this user, on this machine
    anywidget: str = ""
    manager: str = ""  # @jupyter-widgets/jupyterlab-manager
    prefix: str = ""  # of the server's environment


class Missing(NamedTuple):
    """What pages lack to show a panel, as a sentence, and the command that adds it."""

    what: str
    mend: str


_tell: Callable[[], tuple[int, bool]] = Pages


def tell_pages(tell: Callable[[], tuple[int, bool]]) -> None:
    """Set what tells of the pages, once there is a panel."""
    global _tell  # noqa: PLW0603 - a process has one state of panels
    _tell = tell


def pages() -> Pages:
    """Return what is known of the pages that show panels of this process."""
    return Pages(*_tell())


def read_front_end(environment: Mapping[str, str], root: Path = Path("/")) -> FrontEnd:
    """Read which extensions the Jupyter server has whose kernel this is.

    Parameters
    ----------
    environment
        The variables that this process was launched with: those of the server, and JPY_PARENT_PID, its
        number (jupyter_client).
    root
        The folder with proc, and with the environments.

    """
    server = environment.get("JPY_PARENT_PID", "")
    prefix = _prefix(server, root) if server.isdecimal() else None
    if prefix is None:
        return FrontEnd()
    # The user's folder, as jupyter_core's `jupyter_data_dir` finds it on Linux.
    data = environment.get("XDG_DATA_HOME") or f"{environment.get('HOME', '')}/.local/share"
    own = environment.get("JUPYTER_DATA_DIR") or f"{data}/jupyter"
    named = [*environment.get("JUPYTER_PATH", "").split(":"), own]
    folders = [root / one.lstrip("/") / "labextensions" for one in filter(None, named)]
    folders += [root / one.lstrip("/") / _EXTENSIONS for one in (str(prefix), *_SHARED)]
    return FrontEnd(
        is_known=True,
        anywidget=_version(folders, "anywidget"),
        manager=_version(folders, "@jupyter-widgets/jupyterlab-manager"),
        prefix=str(prefix),
    )


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
    series = [found[0] if (found := re.match(r"\d+\.\d+", one)) else one for one in (here, front.anywidget)]
    if missing := "anywidget" * (not front.anywidget) or "ipywidgets" * (not front.manager):
        wanted = missing
        what = f"The Jupyter server's environment has no {missing}, which is the page's part of a panel."
    elif here and series[0] != series[1]:
        wanted = f"anywidget=={here}"
        what = f"Pages have anywidget {front.anywidget} of the Jupyter server, and this kernel has {here}."
    else:
        return None
    return Missing(what, f"{front.prefix}/bin/python -m pip install {wanted}")


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


def _version(folders: list[Path], extension: str) -> str:
    for folder in folders:
        try:
            with (folder / extension / "package.json").open(encoding="utf-8") as file:
                return str(json.loads(file.read(_MOST_READ))["version"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return ""
