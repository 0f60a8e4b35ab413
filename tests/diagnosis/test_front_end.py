"""The Jupyter server's side of the panel: what its environment has, read from a root of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpu_magic.diagnosis.checks.front_end import check_front_end
from gpu_magic.diagnosis.facts import Facts, FrontEnd, Kernel, Packages
from gpu_magic.diagnosis.front_end import read_front_end
from gpu_magic.process.guard import Guard
from gpu_magic.process.state import State
from gpu_magic.selection.visible import Variables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpu_magic.diagnosis.finding import Finding
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


def look(front: FrontEnd, program: str = "kernel", anywidget: str = "0.11.0") -> Sequence[Finding]:
    kernel = Kernel(program, Guard(State.ABSENT), Variables(), Variables())  # type: ignore[arg-type]
    packages = Packages(versions=(("anywidget", anywidget),))
    return list(check_front_end(Facts(kernel=kernel, packages=packages, front_end=front)))


def test_a_server_that_has_both_is_fine(tmp_path: Path) -> None:
    serve(tmp_path, anywidget="0.11.2", manager="5.0.17")
    front = read_front_end(BROWSED, 1, has_answered=True, root=tmp_path)
    assert (front.is_known, front.anywidget, front.manager) == (True, "0.11.2", "5.0.17")
    assert look(front) == []


def test_a_server_without_anywidget(tmp_path: Path) -> None:
    serve(tmp_path, manager="5.0.17")
    (found,) = look(read_front_end(BROWSED, 1, has_answered=False, root=tmp_path))
    assert found.severity == "worth knowing"
    assert "no anywidget" in found.what
    assert found.mend == "/opt/hub/bin/python -m pip install anywidget"
    assert "/opt" not in found.public


def test_a_server_with_another_series_of_it(tmp_path: Path) -> None:
    serve(tmp_path, anywidget="0.9.21", manager="5.0.17")
    (found,) = look(read_front_end(BROWSED, 0, has_answered=False, root=tmp_path))
    assert "Pages have anywidget 0.9.21 of the Jupyter server, and this kernel has 0.11.0." in found.what
    assert found.mend.endswith("install anywidget==0.11.0")


def test_an_extension_of_the_user_s_own_is_found(tmp_path: Path) -> None:
    serve(tmp_path, manager="5.0.17")
    serve(tmp_path, place="home/maria/.local/share/jupyter", anywidget="0.11.0")
    assert look(read_front_end(BROWSED, 1, has_answered=False, root=tmp_path))[0].what == (
        "A panel was shown, and no page has answered it."
    )


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"JUPYTER_PATH": "/apps/other:/apps/jupyter"}, "apps/jupyter"),
        ({"XDG_DATA_HOME": "/scratch/maria"}, "scratch/maria/jupyter"),
        ({"JUPYTER_DATA_DIR": "/scratch/data"}, "scratch/data"),
    ],
)
def test_extensions_are_looked_for_where_jupyter_does(
    tmp_path: Path, variables: dict[str, str], place: str
) -> None:
    serve(tmp_path, place=place, anywidget="0.11.0", manager="5.0.17")
    assert look(read_front_end(BROWSED | variables, 0, has_answered=False, root=tmp_path)) == []


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({}, LAB),
        ({"JPY_PARENT_PID": "../12"}, LAB),
        ({"JPY_PARENT_PID": "99"}, LAB),
        (BROWSED, b""),
        (BROWSED, b"code-server\0"),
        (BROWSED, b"/usr/bin/python3\0-m\0nbclient\0"),
    ],
)
def test_a_server_of_which_nothing_is_known(tmp_path: Path, environment: dict[str, str], line: bytes) -> None:
    serve(tmp_path, line)
    front = read_front_end(environment, 0, has_answered=False, root=tmp_path)
    assert not front.is_known
    assert look(front) == []


def test_a_broken_extension_is_none(tmp_path: Path) -> None:
    serve(tmp_path, anywidget="0.11.0")
    (tmp_path / "opt/hub/share/jupyter/labextensions/anywidget/package.json").write_text("[1")
    assert read_front_end(BROWSED, 0, has_answered=False, root=tmp_path).anywidget == ""


@pytest.mark.parametrize(
    ("line", "is_known"),
    [
        (
            b"/opt/" + b"x" * 300 + b"/bin/python\0/opt/hub/bin/jupyter-lab\0",
            True,
        ),  # longer than a name can be
        (b"/opt/\n/bin/jupyter-lab\0", False),
    ],
)
def test_a_path_that_is_none_is_passed_over(tmp_path: Path, line: bytes, is_known: bool) -> None:
    serve(tmp_path, line)
    assert read_front_end(BROWSED, 1, has_answered=False, root=tmp_path).is_known == is_known


def test_a_server_in_a_folder_that_is_closed_to_others(tmp_path: Path, fresh: Fresh) -> None:
    serve(tmp_path, b"/opt/hub/bin/python\0/opt/hub/bin/jupyter-lab\0", anywidget="0.11.0")
    tmp_path.chmod(0o755)
    (tmp_path / "opt").chmod(0)
    said = fresh(
        f"""
        import os
        from pathlib import Path
        from gpu_magic.diagnosis.front_end import read_front_end
        if not os.geteuid():
            os.seteuid(65534)
        print(read_front_end({BROWSED!r}, 1, has_answered=False, root=Path({str(tmp_path)!r})).is_known)
        """
    )
    (tmp_path / "opt").chmod(0o755)
    assert said == "False\n"


def test_an_extension_of_very_many_levels_is_none(tmp_path: Path) -> None:
    serve(tmp_path, anywidget="0.11.0")
    package = tmp_path / "opt/hub/share/jupyter/labextensions/anywidget/package.json"
    package.write_text('{"a":' + "[" * 100_000)
    assert read_front_end(BROWSED, 0, has_answered=False, root=tmp_path).anywidget == ""


def test_outside_of_a_kernel_there_is_no_page(tmp_path: Path) -> None:
    serve(tmp_path)
    assert look(read_front_end(BROWSED, 0, has_answered=False, root=tmp_path), "ipython") == []
