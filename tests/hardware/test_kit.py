"""The kit for machines without network: what is in it, and that it runs where there is neither pip nor an index."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.conftest import LIMIT
from tests.gpu.kit import LARGEST, lacking, make, size_of

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "{}.{}".format(*sys.version_info[:2])
NAME = "driver.before_and_after"

pytestmark = pytest.mark.nightly  # wheels are downloaded, and unpacked


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kit for the Python of the tests."""
    folder = tmp_path_factory.mktemp("kit") / "gpu-kit"
    make(folder, VERSION)
    return folder


def run(kit: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it where an index can't be reached."""
    offline = {"PIP_NO_INDEX": "1", "PIP_INDEX_URL": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    return subprocess.run(
        [kit / "run", *arguments],
        env=os.environ | offline | variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd="/",
    )


def test_it_is_small_and_has_no_framework(kit: Path) -> None:
    assert size_of(kit) < LARGEST
    names = {path.name.partition("-")[0] for path in (kit / "wheels").iterdir()}
    assert {"gpu_magic", "ipython", "ipykernel", "nvidia_ml_py", "anywidget"} <= names
    assert not {"torch", "tensorflow", "jax", "numpy"} & names
    assert not list(kit.rglob("test_*.py"))


def test_what_is_lacking_is_named(kit: Path, tmp_path: Path) -> None:
    assert lacking(kit / "wheels", VERSION) == []
    shutil.copytree(kit / "wheels", tmp_path / "wheels")
    next((tmp_path / "wheels").glob("traitlets-*")).unlink()
    assert lacking(tmp_path / "wheels", VERSION) == ["traitlets"]


def test_it_runs_by_one_command_and_leaves_a_report(kit: Path, machine: Path) -> None:
    mine = shutil.copytree(kit, machine / "gpu-kit")
    done = run(mine, "--only", NAME, PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    report = json.loads((mine / "report.json").read_text(encoding="utf-8"))
    assert report["claims"][NAME]["outcome"] == "confirmed"
    # What it has unpacked goes before what this Python has, as does its own "tests".
    code = "import gpu_magic, tests; print(gpu_magic.__file__, tests.__file__)"
    path = f"{mine}{os.pathsep}{mine / 'installed'}"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        cwd="/",
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.split() == [
        str(mine / "installed/gpu_magic/__init__.py"),
        str(mine / "tests/__init__.py"),
    ]


def test_another_python_is_refused_in_one_line(kit: Path, machine: Path) -> None:
    mine = shutil.copytree(kit, machine / "gpu-kit")
    script = mine / "run"
    script.write_text(script.read_text().replace(f"wanted={VERSION}", "wanted=2.6"))
    done = run(mine, PYTHON=sys.executable)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{sys.executable} is not Python 2.6. The wheels here need Python 2.6.\n"
    assert not (mine / "installed").exists()
    assert run(mine, PYTHON="").stderr.startswith("No Python 2.6 found. The wheels here need it. Try PYTHON=")
