"""The wheel's size, beside what the wheels of others hold."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile

from benchmarks.report import Row, Table, kilobytes
from benchmarks.timing import ROOT, Skipped

__all__ = ["run"]

PEERS = ("nvitop", "gpustat", "jupyterlab-nvdashboard", "ipyparallel", "ipywidgets", "zeus")


def run() -> list[Table]:
    if not (find_spec("build") and find_spec("hatchling")):
        raise Skipped("building a wheel needs `pip install build hatchling`")
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, str(ROOT)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines()
            reason = next((line for line in reversed(lines) if re.match(r"\w+Error: ", line)), lines[-1])
            raise Skipped(f"the wheel can't be built: {reason}")
        (wheel,) = Path(folder).glob("*.whl")
        size = wheel.stat().st_size
    ours = Row(wheel.name, size)
    others = [Row(name, size) for name in PEERS if (size := _packed(name))]
    note = "Of the others, what is installed, packed as a wheel is."
    return [Table("The wheel", [ours, *others], write=kilobytes, notes=[note] if others else [])]


def _packed(distribution: str) -> int:
    """Return the bytes that an installed distribution's files take in a wheel; 0: it is not installed."""
    try:
        installed = files(distribution) or []
    except PackageNotFoundError:
        return 0
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for file in installed:
            if file.suffix != ".pyc" and (path := Path(str(file.locate()))).is_file():
                archive.write(path, str(file))
    return packed.tell()
