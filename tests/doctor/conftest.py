"""A machine of plain data, with packages and a /dev, /proc and so on in a folder."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

import gpu_magic
from gpu_magic.devices.inventory import Inventory
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.doctor.checks import check_builds, check_device_files, check_driver
from gpu_magic.doctor.facts import Facts, Kernel, Packages
from gpu_magic.doctor.sources import read_packages, read_system
from gpu_magic.process.guard import Guard
from gpu_magic.process.mask import Variables
from gpu_magic.process.state import State
from gpu_magic.process.visible import read_visible
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_magic.doctor.facts import Build, Finding, Program


def inventory(
    profile: str = "4xA100-80GB", capability: tuple[int, int] | None = None, **changes: Any
) -> Inventory:
    """Return a machine that is not marked as simulated; its first GPU can be of another capability."""
    with simulate(profile):
        found = gpu_magic.gpus()
    first, *others = found.gpus
    if capability and first.speed is not UNKNOWN:
        first = replace(first, speed=replace(first.speed, capability=capability))
    return replace(found, **{"gpus": (first, *others), "simulated": ""} | changes)


def kernel(machine: Inventory, program: Program = "kernel", mask: str | None = None, **more: Any) -> Kernel:
    """Return a process that was started with this mask, and sees what it means."""
    variables = more.pop("variables", Variables(mask, "PCI_BUS_ID"))
    reading = read_visible(variables, machine)
    seen = reading.devices
    labels = seen if not isinstance(seen, tuple) else tuple(one.label for one in seen)
    given = {
        "guard": Guard(State.ABSENT),
        "launched": variables,
        "notes": reading.notes,
        "seen": labels,
    } | more
    return Kernel(program, variables=variables, **given)


@pytest.fixture(autouse=True)
def _nothing_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide what other tests of this process have imported."""
    for name in ("torch", "tensorflow", "jax", "keras", "cupy"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@dataclass
class Place:
    """Folders of packages and of a system."""

    folder: Path

    def __post_init__(self) -> None:
        self.packages, self.root = self.folder / "packages", self.folder / "root"
        self.packages.mkdir()
        self.root.mkdir()

    def install(self, name: str, version: str, *, installer: str = "pip") -> Path:
        """Write what pip leaves of a distribution."""
        info = self.packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nA package.\n"
        )
        (info / "INSTALLER").write_text(f"{installer}\n")
        return info

    def install_torch(self, version: str, cuda: str | None, *, label: str = "", more: str = "") -> Path:
        """Write what pip leaves of PyTorch: the wheel of PyPI has its CUDA version in torch/version.py alone."""
        info = self.install("torch", version)
        folder = self.packages / "torch"
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
        (folder / "version.py").write_text(
            "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
            f"__version__ = '{version}{label}'\ndebug = False\ncuda: Optional[str] = {cuda!r}\n"
            f"git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'\n{more or 'hip: Optional[str] = None'}\n"
        )
        return info

    def install_tensorflow(self, name: str, cuda: str) -> None:
        self.install(name, "2.21.0")
        folder = self.packages / "tensorflow/python/platform"
        folder.mkdir(parents=True)
        (self.packages / "tensorflow/__init__.py").touch()
        values = f"('cuda_version', '{cuda}'), ('is_cuda_build', {bool(cuda)})"
        (folder / "build_info.py").write_text(
            f"build_info = collections.OrderedDict([('cpu_compiler', '/usr/bin/clang'), {values}])\n"
        )

    def builds(self, library_path: str = "") -> dict[str, Build]:
        found = read_packages([str(self.packages)], self.root, library_path).builds
        return {build.framework: build for build in found}

    def judge(self, machine: Inventory, program: Program = "python", **more: Any) -> list[Finding]:
        """Return what is found of the builds."""
        packages = Packages(tuple(self.builds(**more).values()))
        return list(check_builds(Facts(machine, kernel(machine, program), packages)))

    def write(self, path: str, text: str = "", mode: int = 0o666) -> None:
        """Write a file below the root."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def devices(self, *names: str) -> None:
        """Write device files."""
        for name in names or ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"):
            self.write(f"dev/{name}")

    def look(self, problem: str = "", machine: Inventory | None = None, **variables: str) -> list[Finding]:
        """Return what is found of the driver and the device files of a machine, without GPUs for a problem."""
        system = read_system(variables, self.root)
        facts = Facts(machine or Inventory(problem=problem), packages=Packages(), system=system)
        return [*check_device_files(facts), *check_driver(facts)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
