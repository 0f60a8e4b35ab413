"""A fresh process on a machine with packages, a driver, and a /dev, /proc and so on of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import LIMIT, ROOT
from tests.machine import CARDS, Driver, clean_environment, environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Modules are found in the given folder alone once ours are loaded, as if nothing else were installed.
PROGRAM = """
import grp, json, sys
from pathlib import Path
import gpu_magic.api.diagnosis
from gpu_magic.diagnosis.diagnose import diagnose
from gpu_magic.display.diagnosis import Diagnosis
from gpu_magic.process.session import current
packages, root, before = sys.argv[1:]
sys.path[:] = [packages]
exec(before)
modules = set(sys.modules)
found = Diagnosis.of(diagnose(current(), "python", root=Path(root)))
loaded = sorted(name for name in set(sys.modules) - modules if name.partition(".")[0] in ("torch", "tensorflow", "jax"))
print(json.dumps(found.to_dict() | {"text": repr(found), "report": found.report(), "html": found._repr_html_(),
                                    "loaded": loaded}))
"""


@dataclass
class Page:
    """What was found."""

    found: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.found[name]

    def about(self, about: str) -> dict[str, str]:
        """Return the only finding about something."""
        (one,) = self.all_about(about)
        return one

    def all_about(self, about: str) -> list[dict[str, str]]:
        return [finding for finding in self.findings if finding["about"] == about]

    @property
    def wrong(self) -> list[str]:
        return [finding["what"] for finding in self.findings if finding["severity"] == "wrong"]

    def row(self, name: str) -> str:
        """Return a row of the facts."""
        (line,) = [line for line in self.text.splitlines() if line.startswith(f"{name}  ")]
        return line.removeprefix(name).strip()


@dataclass
class Machine:
    """A machine, which is written when a process looks at it."""

    folder: Path
    native: Path
    driver: Driver | None = field(default_factory=lambda: Driver(CARDS))  # None: NVML is not there

    def __post_init__(self) -> None:
        self.packages, self.root = self.folder / "packages", self.folder / "root"
        self.packages.mkdir()
        self.root.mkdir()
        self.install("nvidia-ml-py", "13.615.71")

    def install(
        self,
        name: str,
        version: str,
        *requires: str,
        installer: str = "pip",
        files: Sequence[str] = (),
        extras: Sequence[str] = (),
    ) -> None:
        """Write what pip leaves of a distribution."""
        info = self.packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {one}" for one in requires]
        lines += [f"Provides-Extra: {one}" for one in extras]
        (info / "METADATA").write_text("\n".join(lines) + "\n\nA package.\n")
        (info / "INSTALLER").write_text(f"{installer}\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in [*files, f"{info.name}/RECORD"]))

    def install_torch(self, version: str, cuda: str | None, *, label: str = "") -> None:
        """Write what pip leaves of PyTorch: the wheel of PyPI has its CUDA version in torch/version.py alone."""
        self.install("torch", version)
        folder = self.packages / "torch"
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text("from torch.version import __version__\n")
        (folder / "version.py").write_text(
            "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
            f"__version__ = '{version}{label}'\ndebug = False\ncuda: Optional[str] = {cuda!r}\n"
            "git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'\nhip: Optional[str] = None\n"
        )

    def write(self, path: str, text: str = "", mode: int = 0o666) -> None:
        """Write a file below the root."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def devices(self, *names: str) -> None:
        """Write device files."""
        for name in names or ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "nvidia2", "nvidia3"):
            self.write(f"dev/{name}")

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        """Run a program in a fresh process, and return what it printed."""
        state = self.folder / "state"
        (self.driver or Driver(CARDS)).write(state)
        given = clean_environment("COLAB_", "KAGGLE_", "KUBERNETES_", "JPY_", "APPTAINER_") | {
            "PYTHONPATH": str(ROOT)
        }
        given |= environment(self.native, state)
        if self.driver is None:
            empty = self.folder / "no_driver"
            empty.mkdir(exist_ok=True)
            for library in ("libnvidia-ml.so.1", "libcuda.so.1"):
                (empty / library).touch()  # where a real one is installed, it is not found either
            given["LD_LIBRARY_PATH"] = str(empty)
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=given | variables,
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    def page(self, before: str = "", **variables: str) -> Page:
        """Return what a fresh process finds, which does something else before."""
        arguments = str(self.packages), str(self.root), before
        return Page(json.loads(self.run(PROGRAM, *arguments, **variables)))


@pytest.fixture
def machine(tmp_path: Path, native: Path) -> Machine:
    """Return a machine with four A100s and the driver 580.65.06, which runs CUDA 13.0."""
    return Machine(tmp_path, native)
