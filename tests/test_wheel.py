"""The wheel: all that is needed where it is installed is in it, and nothing else."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import gpu_magic

ROOT = Path(__file__).parent.parent
# Where JupyterLab and Notebook find extensions: below the prefix, so as data of the wheel.
EXTENSION = f"gpu_magic-{gpu_magic.__version__}.data/data/share/jupyter/labextensions/gpu-magic/"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def _tracked(*folders: str) -> set[str]:
    """Return the files of folders that git knows, from the top of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *folders], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(listed.stdout.split("\0")) - {""}


def test_it_has_the_package_as_it_is_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if name.startswith("gpu_magic/")}
    assert inside == _tracked("gpu_magic") - {"gpu_magic/ruff.toml"}
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    version = f"gpu_magic-{gpu_magic.__version__}"
    assert tops == {"gpu_magic", f"{version}.data", f"{version}.dist-info"}


def test_what_a_page_loads_is_below_a_hash_of_its_content(wheel: zipfile.ZipFile) -> None:
    """Browsers keep it for a year."""
    shared = {name.removeprefix(EXTENSION) for name in wheel.namelist() if name.startswith(EXTENSION)}
    package = json.loads(wheel.read(f"{EXTENSION}package.json"))
    assert package["version"] == gpu_magic.__version__
    load = Path(package["jupyterlab"]["_build"]["load"])
    assert re.fullmatch(r"static/\w{20}/remoteEntry\.js", str(load))
    own = _tracked("gpu_magic/labextension/page")
    sources = {f"{load.parent}/{Path(name).name}": name for name in own}
    settings = "schemas/gpu-magic/chip.json"
    assert shared == {"package.json", "install.json", settings, *sources}
    for placed, source in sources.items():
        assert wheel.read(EXTENSION + placed) == (ROOT / source).read_bytes()


def test_an_editable_install_has_no_copy_that_pip_would_write_through_the_link(tmp_path: Path) -> None:
    """`jupyter labextension develop` links the folder. tests/browser/test_upgrade.py opens it."""
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["LabExtensionHook"]
    building = hook(str(ROOT), {}, None, None, str(tmp_path), "wheel")
    data: dict[str, dict[str, str]] = {"shared_data": {}}
    building.initialize("editable", data)
    building.finalize("editable", data, "")
    assert data == {"shared_data": {}}


def test_it_enables_the_extension_of_the_server(wheel: zipfile.ZipFile) -> None:
    config = next(
        name for name in wheel.namelist() if name.endswith("jupyter_server_config.d/gpu_magic.json")
    )
    assert json.loads(wheel.read(config)) == {"ServerApp": {"jpserver_extensions": {"gpu_magic": True}}}


def test_it_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    info = f"gpu_magic-{gpu_magic.__version__}.dist-info"
    said = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (said["Name"], said["Version"]) == ("gpu_magic", gpu_magic.__version__)
    needed = [one for one in said.get_all("Requires-Dist") if "extra ==" not in one]
    assert sorted(needed) == sorted(project["dependencies"])  # no framework among them
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
    assert "gpu-magic = gpu_magic.command_line:main" in wheel.read(f"{info}/entry_points.txt").decode()


def test_its_metadata_can_be_uploaded(wheel: zipfile.ZipFile) -> None:
    """By twine 6, as the action of release.yml does."""
    metadata = wheel.read(f"gpu_magic-{gpu_magic.__version__}.dist-info/METADATA").decode()
    assert Parser().parsestr(metadata)["Metadata-Version"] == "2.4"


def test_the_version_stands_nowhere_else() -> None:
    """Otherwise the next one fails tests."""
    stands = rf"gpu_magic[ =-]+{re.escape(gpu_magic.__version__)}\b"
    texts = {name: (ROOT / name).read_bytes().decode(errors="ignore") for name in _tracked()}
    assert [name for name, text in texts.items() if re.search(stands, text)] == []
