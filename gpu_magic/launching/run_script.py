"""The program that runs a script with variables of the process that launched it, and hands some back.

    run_script.py SCRIPT GIVEN RETURNED NAME...

It is named to a launcher in the script's place, and each rank runs it. GIVEN has the variables that the
script begins with; those that are NAMEd are written to RETURNED by rank 0. In a sweep each process does so,
and "{INDEX}" in RETURNED stands for its number.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path


def main() -> None:
    path, given, returned, *names = sys.argv[1:]
    package = str(Path(__file__).parents[2])
    sys.path[0] = str(Path(path).parent)  # as for a script there
    sys.path.append(package)
    from gpu_magic.errors import LaunchError
    from gpu_magic.launching.handover import dump, load

    sys.path.remove(package)
    sys.argv = [path]
    script = types.ModuleType("__main__")
    script.__file__ = path
    sys.modules["__main__"] = script
    script.__dict__.update(load(Path(given)))
    exec(compile(Path(path).read_bytes(), path, "exec"), script.__dict__)  # noqa: S102 - it is what is to be run
    if not names or os.environ.get("RANK", "0") != "0":
        return
    missing = [name for name in names if name not in script.__dict__]
    if missing:
        sys.exit(f"At its end the cell has no variable {missing[0]}, which --out names.")
    file = Path(returned.replace("{INDEX}", os.environ.get("GPU_MAGIC_INDEX", "")))
    try:
        dump({name: script.__dict__[name] for name in names}, file)
    except LaunchError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
