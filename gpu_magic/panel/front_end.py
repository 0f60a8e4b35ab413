"""The extensions of the Jupyter server that show a panel: those of anywidget and ipywidgets.

The page loads its part of a widget from the environment of the Jupyter server, which can differ from the
kernel's. A widget of anywidget 0.11 asks the page for anywidget ~0.11 (anywidget/_version.py,
`_ANYWIDGET_SEMVER_VERSION`). ipywidgets 8 asks for the manager of jupyterlab_widgets 3, whose version is 5.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.frameworks.private import has_private

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "FrontEnd",
    "Missing",
    "Pages",
    "hear_every_page",
    "missing_there",
    "pages",
    "read_front_end",
    "tell_pages",
]

_MOST_READ = 1 << 20  # bytes of a file


class Pages(NamedTuple):
    """How many panels cells have shown, and whether a page has answered any of them."""

    panels: int = 0
    has_answered: bool = False


_tell: Callable[[], tuple[int, bool]] = Pages


def tell_pages(tell: Callable[[], tuple[int, bool]]) -> None:
    """Set the function that `pages` calls, once there is a panel."""
    global _tell  # noqa: PLW0603 - a process has one state of panels
    _tell = tell


def pages() -> Pages:
    return Pages(*_tell())


def hear_every_page(comm: Any) -> None:
    """Route a comm's messages to the subshell that their page names. If it has ended, to the main thread.

    ipykernel 7.4 routes them to the subshell that was last active when the comm sent a message, even if it
    belongs to another page. When that subshell has ended with its page, the messages of all pages are lost.
    After a restart that JupyterLab did not request, it names the subshell of the earlier process.
    """
    name = "ipykernel.comm:BaseComm._reply_subshell_for"  # there is no public switch
    if not has_private(comm, name):
        return
    from ipykernel.kernelbase import Kernel

    def route(_data: object, subshell: str | None) -> str | None:
        # Not `comm.kernel`, which is None until the comm has sent a message.
        there = Kernel.instance().shell_channel_thread.manager.list_subshell()
        return subshell if subshell in there else None

    setattr(comm, name.rpartition(".")[2], route)


class FrontEnd(NamedTuple):
    """The versions of both extensions at the Jupyter server. Empty for a missing extension."""

    is_known: bool = False  # whether the server's environment was found, on this machine
    anywidget: str = ""
    manager: str = ""  # @jupyter-widgets/jupyterlab-manager
    prefix: str = ""  # of the server's environment


class Missing(NamedTuple):
    """What is missing to show a panel, as a sentence, and the command that installs it."""

    problem: str
    fix: str


def read_front_end(environment: Mapping[str, str], root: Path = Path("/")) -> FrontEnd:
    """Read which extensions this kernel's Jupyter server has. Its files are below `root`.

    The environment at the launch of this process is the server's, with the server's PID in JPY_PARENT_PID
    (jupyter_client).
    """
    server = environment.get("JPY_PARENT_PID", "")
    prefix = _prefix(server, root) if server.isdecimal() else ""
    if not prefix:
        return FrontEnd()
    # As jupyter_core finds them on Linux (`jupyter_data_dir`, `jupyter_path`).
    data = environment.get("XDG_DATA_HOME") or f"{environment.get('HOME', '')}/.local/share"
    own = environment.get("JUPYTER_DATA_DIR") or f"{data}/jupyter"
    shared = (f"{place}/share/jupyter" for place in (prefix, "/usr/local", "/usr"))
    places = [*environment.get("JUPYTER_PATH", "").split(":"), own, *shared]

    def version(extension: str) -> str:
        for place in filter(None, places):
            path = root / place.lstrip("/") / "labextensions" / extension / "package.json"
            try:
                with path.open(encoding="utf-8") as file:
                    return str(json.loads(file.read(_MOST_READ))["version"])
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                continue
        return ""

    return FrontEnd(True, version("anywidget"), version("@jupyter-widgets/jupyterlab-manager"), prefix)


def _prefix(server: str, root: Path) -> str:
    """Return the prefix of the server's environment. Empty if unknown, for example on another machine."""
    try:
        words = (root / "proc" / server / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    if any(b"jupyter" in word or b"labhub" in word for word in words):
        for word in words[:2]:  # `/opt/hub/bin/python /opt/hub/bin/jupyter-lab`
            folder, _, name = word.decode("utf-8", "replace").rpartition("/bin/")
            # False if this user may not look, or the path is invalid. Path.is_dir raises.
            if folder[:1] == "/" and "/" not in name and os.path.isdir(f"{root}{folder}/share/jupyter"):  # noqa: PTH112
                return folder
    return ""


def missing_there(front: FrontEnd, here: str) -> Missing | None:
    """Return what the Jupyter server lacks, given this kernel's version of anywidget. None: nothing."""
    if not front.is_known:
        return None
    series = [found[0] if (found := re.match(r"\d+\.\d+", one)) else one for one in (here, front.anywidget)]
    if missing := "anywidget" * (not front.anywidget) or "ipywidgets" * (not front.manager):
        wanted = missing
        what = f"The Jupyter server's environment has no {missing}, which the panel needs in the page."
    elif here and series[0] != series[1]:
        wanted = f"anywidget=={here}"
        what = f"The Jupyter server has anywidget {front.anywidget}, but this kernel has {here}."
    else:
        return None
    return Missing(what, f"{front.prefix}/bin/python -m pip install {wanted}")
