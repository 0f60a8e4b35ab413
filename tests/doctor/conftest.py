"""A machine of plain data, with packages and a /dev, /proc and so on in a folder."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import gpu_magic
from gpu_magic.devices.model import Inventory
from gpu_magic.doctor.checks import check_builds, check_device_files, check_driver
from gpu_magic.doctor.facts import Facts, Kernel, Packages
from gpu_magic.doctor.sources import read_packages, read_system
from gpu_magic.process.drivers import State
from gpu_magic.process.guard import Guard
from gpu_magic.process.mask import Variables
from gpu_magic.process.visible import read_visible
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_magic.devices.problems import Problem
    from gpu_magic.doctor.facts import Build, Finding, Program


def inventory(profile: str = "4xA100-80GB", **changes: Any) -> Inventory:
    """Return a machine that is not marked as simulated."""
    with simulate(profile):
        return replace(gpu_magic.gpus().machine, **{"simulated": ""} | changes)


_AMD = tuple(gpu._replace(vendor="amd", hip_id=gpu.index) for gpu in inventory())
AMD = replace(inventory(), gpus=_AMD, vendor="amd")


def kernel(machine: Inventory, program: Program = "kernel", mask: str | None = None, **more: Any) -> Kernel:
    """Return a process that was started with this mask, and sees what it means."""
    variables = more.pop("variables", Variables(mask, "PCI_BUS_ID"))
    reading = read_visible(variables, machine)
    given = {"guard": Guard(State.ABSENT), "launched": variables, "notes": reading.notes}
    given["seen"] = reading.devices
    return Kernel(program, variables=variables, **given | more)


class Place:
    """Folders of packages and of a system."""

    def __init__(self, folder: Path) -> None:
        self.packages, self.root = folder / "packages", folder / "root"
        self.packages.mkdir()
        self.root.mkdir()

    def install(self, name: str, version: str = "0.10.2", *, installer: str = "pip") -> Path:
        """Write what pip leaves of a distribution."""
        info = self.packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nText.\n")
        (info / "INSTALLER").write_text(f"{installer}\n")
        if name.startswith("tensorflow"):
            cuda = "" if name == "tensorflow-cpu" else "12.5.1"
            values = f"('cpu_compiler', 'clang'), ('cuda_version', '{cuda}'), ('is_cuda_build', {bool(cuda)})"
            self._put("tensorflow", "python/platform/build_info.py", f"build_info = OrderedDict([{values}])")
        return info

    def install_torch(self, built_for: str = "", *, label: str = "") -> None:
        """Write what pip leaves of PyTorch, built for `cuda 13.0`: PyPI's has that in torch/version.py alone."""
        self.install("torch", "2.13.0")
        kind, _, runtime = built_for.partition(" ")
        values = {"cuda": None, "hip": None, kind or "cuda": runtime or None}
        stated = [f"{name}: Optional[str] = {value!r}" for name, value in values.items()]
        self._put("torch", "version.py", f"__version__ = '2.13.0{label}'\ndebug = False", *stated)

    def _put(self, package: str, path: str, *lines: str) -> None:
        file = self.packages / package / path
        file.parent.mkdir(parents=True)
        (self.packages / package / "__init__.py").touch()
        file.write_text("\n".join([*lines, ""]))

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

    def look(
        self, where: dict[str, str], problem: Problem | None = None, machine: Inventory | None = None
    ) -> list[Finding]:
        """Return what is found of the driver and the device files, with these files, and variables in capitals."""
        for path, text in where.items():
            if not path.isupper():
                self.write(path, text)
        system = read_system({name: value for name, value in where.items() if name.isupper()}, self.root)
        facts = Facts(machine or Inventory(problem=problem), packages=Packages(), system=system)
        return [*check_device_files(facts), *check_driver(facts)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return empty folders, in a process that has imported no framework."""
    for name in ("torch", "tensorflow", "jax", "keras", "cupy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return Place(tmp_path)
