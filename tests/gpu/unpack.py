"""Unpacks wheels into a folder, without pip or a network: `python unpack.py WHEELS FOLDER`.

A wheel is a zip archive of files for site-packages (PyPA, "Binary distribution format"). Scripts and data files are
left out, because nothing here needs them.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

LIBRARIES = ("purelib", "platlib")


def unpack(wheels: Path, folder: Path) -> None:
    """Unpack all wheels of a folder into another one."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                parts = name.split("/")
                if parts[0].endswith(".data"):
                    if parts[1] not in LIBRARIES:
                        continue
                    parts = parts[2:]
                target = folder.joinpath(*parts)
                if name.endswith("/"):
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
