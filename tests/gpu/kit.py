"""Makes a folder that tries all claims with one command, on a machine with a GPU and PyTorch, but without network.

Usage: python -m tests.gpu.kit FOLDER [--python-version 3.12] [--machine x86_64]

The folder has the wheels of gpu_magic and its dependencies, without PyTorch, for one version of Python on Linux.
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
# Packages that claims about kernels need, in addition to gpu_magic.
PACKAGES = ("ipykernel",)
# Files that the machine with the GPU does not need.
_LEFT_OUT = ("test_*.py", "kit.py", "seen.*", "reports", "unpack.py", "run.sh", "__pycache__")
_README = """\
This folder tries the claims about the driver and frameworks that gpu_magic relies on. It needs an NVIDIA GPU.

    ./run

The command uses the first Python {python_version} on this machine that has PyTorch. To use another Python, run
PYTHON=/path/to/python ./run. The command needs no network, no root and no pip, and installs nothing outside this
folder. It runs for up to 8 minutes. It uses one GPU: of the GPUs that CUDA_VISIBLE_DEVICES allows, the one with the
least memory in use. For a moment it also uses a second GPU.

It writes report.json and seen.md to this folder. The report contains the GPUs, four digits of each GPU's UUID,
versions and the date. It contains nothing about the host or about you.
"""


def make(folder: Path, python_version: str, machine: str = "x86_64") -> None:
    """Make the folder.

    Parameters
    ----------
    folder
        The folder. An existing folder is replaced.
    python_version
        The version of Python, ``3.12``.
    machine
        The processor, as `uname -m` prints it.

    Raises
    ------
    RuntimeError
        A wheel is missing, or the folder is too large.

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
    # A package, which Python finds before a "tests" that another package has left in site-packages.
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
        message = f"the kit has {size >> 20} MiB, but must have less than {LARGEST >> 20} MiB"
        raise RuntimeError(message)


def lacking(wheels: Path, python_version: str) -> list[str]:
    """Return the packages that wheels in a folder need on that Python and that are not in the folder.

    pip reads a package's requirements for the Python that pip runs on, even if it downloads for another Python.
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
    # The oldest glibc of each platform. The machine's glibc can be newer, and PyTorch's own wheels need 2.28.
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
    """Make the folder that the command line names."""
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
