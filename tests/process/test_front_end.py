"""The Jupyter server's side of the panel: what its environment has, read from a root of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpu_magic.process.front_end import FrontEnd, missing_there, read_front_end

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh

MANAGER = "@jupyter-widgets/jupyterlab-manager"
LAB = b"/opt/hub/bin/python3.11\0/opt/hub/bin/jupyter-lab\0--no-browser\0"
BROWSED = {"JPY_PARENT_PID": "12", "HOME": "/home/maria"}


def serve(root: Path, line: bytes = LAB, *, place: str = "opt/hub/share/jupyter", **versions: str) -> None:
    """Put a Jupyter server into /proc, and extensions into its environment."""
    (root / "proc/12").mkdir(parents=True, exist_ok=True)
    (root / "proc/12/cmdline").write_bytes(line)
    (root / "opt/hub/share/jupyter").mkdir(parents=True, exist_ok=True)
    for name, version in versions.items():
        folder = root / place / "labextensions" / (MANAGER if name == "manager" else name)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps({"name": name, "version": version}))


def test_a_server_that_has_both_is_fine(tmp_path: Path) -> None:
    serve(tmp_path, anywidget="0.11.2", manager="5.0.17")
    front = read_front_end(BROWSED, tmp_path)
    assert (front.is_known, front.anywidget, front.manager) == (True, "0.11.2", "5.0.17")
    assert missing_there(front, "0.11.0") is None


@pytest.mark.parametrize(
    ("versions", "lacks", "installs"),
    [
        ({"manager": "5.0.17"}, "no anywidget", "anywidget"),
        ({"anywidget": "0.11.0"}, "no ipywidgets", "ipywidgets"),
        ({"anywidget": "0.9.21", "manager": "5.0.17"}, "0.9.21", "anywidget==0.11.0"),
    ],
)
def test_what_a_server_lacks(tmp_path: Path, versions: dict[str, str], lacks: str, installs: str) -> None:
    serve(tmp_path, **versions)
    missing = missing_there(read_front_end(BROWSED, tmp_path), "0.11.0")
    assert missing is not None
    assert lacks in missing.what
    assert missing.mend == f"/opt/hub/bin/python -m pip install {installs}"


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
    serve(tmp_path, place=place, anywidget="0.11.0", manager="5.0.17")
    assert read_front_end(BROWSED | variables, tmp_path).anywidget == "0.11.0"


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({}, LAB),
        ({"JPY_PARENT_PID": "../12"}, LAB),
        ({"JPY_PARENT_PID": "99"}, LAB),
        (BROWSED, b""),
        (BROWSED, b"code-server\0"),
        (BROWSED, b"/usr/bin/python3\0-m\0nbclient\0"),
        (BROWSED, b"/opt/\n/bin/jupyter-lab\0"),
    ],
)
def test_a_server_of_which_nothing_is_known(tmp_path: Path, environment: dict[str, str], line: bytes) -> None:
    serve(tmp_path, line)
    assert read_front_end(environment, tmp_path) == FrontEnd()
    assert missing_there(FrontEnd(), "0.11.0") is None


def test_a_path_that_is_longer_than_a_name_can_be_is_passed_over(tmp_path: Path) -> None:
    serve(tmp_path, b"/opt/" + b"x" * 300 + b"/bin/python\0/opt/hub/bin/jupyter-lab\0")
    assert read_front_end(BROWSED, tmp_path).is_known


@pytest.mark.parametrize("text", ["[1", '{"a":' + "[" * 100_000])
def test_a_broken_extension_is_none(tmp_path: Path, text: str) -> None:
    serve(tmp_path, anywidget="0.11.0")
    (tmp_path / "opt/hub/share/jupyter/labextensions/anywidget/package.json").write_text(text)
    assert read_front_end(BROWSED, tmp_path).anywidget == ""


def test_a_server_in_a_folder_that_is_closed_to_others(tmp_path: Path, fresh: Fresh) -> None:
    serve(tmp_path, b"/opt/hub/bin/python\0/opt/hub/bin/jupyter-lab\0", anywidget="0.11.0")
    tmp_path.chmod(0o755)
    (tmp_path / "opt").chmod(0)
    said = fresh(
        f"""
        import os
        from pathlib import Path
        from gpu_magic.process.front_end import read_front_end
        if not os.geteuid():
            os.seteuid(65534)
        print(read_front_end({BROWSED!r}, Path({str(tmp_path)!r})).is_known)
        """
    )
    (tmp_path / "opt").chmod(0o755)
    assert said == "False\n"
