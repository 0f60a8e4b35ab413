"""Makes a folder that tries all claims by one command, on a machine with a GPU, PyTorch, and no network.

Usage: python -m tests.gpu.kit FOLDER [--python-version 3.12] [--machine x86_64]

It holds the wheels of gpu_magic and of all that it needs, but for PyTorch, for one version of Python on Linux.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["LARGEST", "lacking", "make", "size_of"]

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LARGEST = 60 << 20  # bytes
# Beside gpu_magic: what claims about kernels need.
PACKAGES = ("ipykernel",)
# Not for the machine with the GPU.
_LEFT_OUT = ("test_*.py", "kit.py", "seen.*", "reports", "unpack.py", "run.sh", "__pycache__")
_README = """\
This folder tries on a machine with an NVIDIA GPU what gpu_magic relies on, of the driver and of frameworks.

    ./run

It takes the first Python {python_version} here that has PyTorch; PYTHON=/path/to/python ./run takes another one. It needs no
network, no root and no pip, and installs nothing outside this folder. It takes up to 8 minutes, and uses one GPU, the
one with the least memory in use among those that CUDA_VISIBLE_DEVICES allows, and for a moment a second one.

It leaves report.json and seen.md here. The report names GPUs, versions and the date, four digits of each GPU's
UUID, and nothing of the host or of you.
"""


def make(folder: Path, python_version: str, machine: str = "x86_64") -> None:
    """Make the folder.

    Parameters
    ----------
    folder
        Where; one that is there already is replaced.
    python_version
        Of Python, ``3.12``.
    machine
        The processor, as `uname -m` says it.

    Raises
    ------
    RuntimeError
        A wheel that is needed is not there, or the folder is too large.

    """
    if folder.exists():
        shutil.rmtree(folder)
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip"]
    own = [
        *pip,
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(wheels),
        str(ROOT),
    ]
    subprocess.run(own, check=True)
    (wheel,) = wheels.glob("gpu_magic-*.whl")
    subprocess.run(
        [
            *pip,
            "download",
            "--quiet",
            "--dest",
            str(wheels),
            *_target(python_version, machine),
            str(wheel),
            *PACKAGES,
        ],
        check=True,
    )
    shutil.copytree(HERE, folder / "tests" / "gpu", ignore=shutil.ignore_patterns(*_LEFT_OUT))
    # A package of its own, which goes before any "tests" that somebody's package has left in site-packages.
    (folder / "tests" / "__init__.py").touch()
    shutil.copy(HERE / "unpack.py", folder)
    script = folder / "run"
    script.write_text(
        (HERE / "run.sh").read_text(encoding="utf-8").replace("@PYTHON_VERSION@", python_version)
    )
    script.chmod(0o755)
    (folder / "README.txt").write_text(_README.format(python_version=python_version), encoding="utf-8")
    if missing := lacking(wheels, python_version):
        message = f"the kit lacks {', '.join(missing)}"
        raise RuntimeError(message)
    if (size := size_of(folder)) >= LARGEST:
        message = f"the kit has {size >> 20} MiB, and is to have less than {LARGEST >> 20}"
        raise RuntimeError(message)


def lacking(wheels: Path, python_version: str) -> list[str]:
    """Return what wheels in a folder need on that Python, and is not among them.

    pip reads what a package needs as for the Python that it runs on itself, also where it downloads for another one.
    """
    target = {
        "python_version": python_version,
        "python_full_version": f"{python_version}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "extra": "",
    }
    found, needed = set(), set()
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = HeaderParser().parsestr(archive.read(name).decode())
        found.add(canonicalize_name(metadata["Name"]))
        requirements = map(Requirement, metadata.get_all("Requires-Dist", []))
        needed |= {
            canonicalize_name(one.name)
            for one in requirements
            if one.marker is None or one.marker.evaluate(target)
        }
    return sorted(needed - found)


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _target(python_version: str, machine: str) -> list[str]:
    """Return pip's options for the wheels of another Python."""
    # The oldest glibc of each: the machine's can be newer, and PyTorch's own wheels need 2.28.
    platforms = [f"manylinux{one}_{machine}" for one in ("2014", "_2_17", "_2_28")]
    abis = [f"cp{python_version.replace('.', '')}", "abi3", "none"]
    return [
        "--only-binary=:all:",
        "--implementation=cp",
        f"--python-version={python_version}",
        *(f"--platform={one}" for one in platforms),
        *(f"--abi={one}" for one in abis),
    ]


def main() -> None:
    """Make it where the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.kit")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python-version", default="3.12")
    parser.add_argument("--machine", default="x86_64")
    options = parser.parse_args()
    make(options.folder, options.python_version, options.machine)
    print(
        f"{options.folder}: {size_of(options.folder) / (1 << 20):.1f} MiB for Python {options.python_version}"
    )


if __name__ == "__main__":
    main()
