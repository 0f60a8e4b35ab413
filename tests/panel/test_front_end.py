"""The Jupyter server's side of the panel: what its environment has, read below another root."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gpu_magic.panel.front_end import FrontEnd, hear_every_page, missing_there, read_front_end

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh

MANAGER = "@jupyter-widgets/jupyterlab-manager"
PYTHON, LAB = b"/opt/hub/bin/python3.11\0", b"/opt/hub/bin/jupyter-lab\0--no-browser\0"
BROWSED = {"JPY_PARENT_PID": "12", "HOME": "/home/maria"}


def serve(
    root: Path, line: bytes = PYTHON + LAB, place: str = "opt/hub/share/jupyter", /, **texts: str
) -> None:
    """Put a Jupyter server into /proc, and extensions into its environment: their versions, or files."""
    (root / "proc/12").mkdir(parents=True, exist_ok=True)
    (root / "proc/12/cmdline").write_bytes(line)
    (root / "opt/hub/share/jupyter").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        folder = root / place / "labextensions" / (MANAGER if name == "manager" else name)
        folder.mkdir(parents=True)
        is_version = text[:1].isdecimal()
        (folder / "package.json").write_text(json.dumps({"version": text}) if is_version else text)


@pytest.mark.parametrize(
    ("has", "lacks", "installs"),
    [
        ({"anywidget": "0.11.2", "manager": "5.0.17"}, "", ""),
        ({"manager": "5.0.17"}, "no anywidget", "anywidget"),
        ({"anywidget": "0.11.0"}, "no ipywidgets", "ipywidgets"),
        ({"anywidget": "0.9.21", "manager": "5.0.17"}, "0.9.21", "anywidget==0.11.0"),
        ({"anywidget": "[1", "manager": "5.0.17"}, "no anywidget", "anywidget"),
        ({"anywidget": '{"a":' + "[" * 100_000, "manager": "5.0.17"}, "no anywidget", "anywidget"),
    ],
    ids=["both", "no anywidget", "no manager", "an old one", "a broken one", "a deep one"],
)
def test_what_a_server_lacks(tmp_path: Path, has: dict[str, str], lacks: str, installs: str) -> None:
    serve(tmp_path, **has)
    problem, fix = missing_there(read_front_end(BROWSED, tmp_path), "0.11.0") or ("", "")
    assert lacks in problem
    assert fix == (f"/opt/hub/bin/python -m pip install {installs}" if installs else "")


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, "home/maria/.local/share/jupyter"),
        ({"JUPYTER_PATH": "/apps/other:/apps/jupyter"}, "apps/jupyter"),
        ({"XDG_DATA_HOME": "/scratch/maria"}, "scratch/maria/jupyter"),
        ({"JUPYTER_DATA_DIR": "/scratch/data"}, "scratch/data"),
    ],
)
def test_extensions_are_looked_for_where_jupyter_does(
    tmp_path: Path, variables: dict[str, str], place: str
) -> None:
    serve(tmp_path, PYTHON + LAB, place, anywidget="0.11.0", manager="5.0.17")
    assert read_front_end(BROWSED | variables, tmp_path) == (True, "0.11.0", "5.0.17", "/opt/hub")


@pytest.mark.parametrize(
    ("environment", "line", "is_known"),
    [
        ({}, LAB, False),
        ({"JPY_PARENT_PID": "../12"}, LAB, False),
        ({"JPY_PARENT_PID": "99"}, LAB, False),
        (BROWSED, b"", False),
        (BROWSED, b"code-server\0", False),
        (BROWSED, b"/usr/bin/python3\0-m\0nbclient\0", False),
        (BROWSED, b"/opt/\n/bin/jupyter-lab\0", False),
        (BROWSED, b"/opt/" + b"x" * 300 + b"/bin/python\0" + LAB, True),  # longer than a name can be
    ],
)
def test_which_server_it_is(
    tmp_path: Path, environment: dict[str, str], line: bytes, *, is_known: bool
) -> None:
    serve(tmp_path, line)
    assert read_front_end(environment, tmp_path) == FrontEnd(is_known, prefix="/opt/hub" * is_known)
    assert missing_there(FrontEnd(), "0.11.0") is None


def test_a_server_in_a_folder_that_is_closed_to_others(tmp_path: Path, fresh: Fresh) -> None:
    serve(tmp_path, anywidget="0.11.0")
    tmp_path.chmod(0o755)
    (tmp_path / "opt").chmod(0)
    said = fresh(
        f"""
        import os
        from pathlib import Path
        from gpu_magic.panel.front_end import read_front_end
        if not os.geteuid():
            os.seteuid(65534)
        print(read_front_end({BROWSED!r}, Path({str(tmp_path)!r})).is_known)
        """
    )
    (tmp_path / "opt").chmod(0o755)
    assert said == "False\n"


def test_comms_without_ipykernel_s_route_are_left_alone() -> None:
    comm = SimpleNamespace()
    hear_every_page(comm)
    assert vars(comm) == {}
