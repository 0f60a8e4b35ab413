"""Runs a script with variables of the launching process, and returns some variables.

    run_script.py SCRIPT GIVEN RETURNED NAME...

A launcher gets this program instead of the script, and each rank runs this program. GIVEN is a file with the
script's input variables. Rank 0 writes the variables NAME... to the file RETURNED. In a sweep, each process
writes them, and "{INDEX}" in RETURNED becomes the process's number.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path


def main() -> None:
    # Some launchers put `--local_rank=0` before the script's arguments.
    place = next(place for place, word in enumerate(sys.argv) if place and not word.startswith("-"))
    flags, (path, given, returned, *names) = sys.argv[1:place], sys.argv[place:]
    package = str(Path(__file__).parents[2])
    sys.path[0] = str(Path(path).parent)  # as Python does for a script
    is_found = package in sys.path
    sys.path += [] if is_found else [package]
    from gpu_magic.errors import LaunchError
    from gpu_magic.launch.pickling import dump, load

    if not is_found:
        sys.path.remove(package)
    sys.argv = [path, *flags]
    script = types.ModuleType("__main__")
    script.__file__ = path
    sys.modules["__main__"] = script
    script.__dict__.update(load(Path(given)))
    sys.excepthook = show_error
    end: SystemExit | None = None
    try:
        code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
        exec(code, script.__dict__)  # noqa: S102 - the user's script
    except SystemExit as error:
        end = error
    if names and os.environ.get("RANK", "0") == "0":
        found = {name: script.__dict__[name] for name in names if name in script.__dict__}
        file = Path(returned.replace("{INDEX}", os.environ.get("GPU_MAGIC_INDEX", "")))
        try:
            dump(found, file)
        except LaunchError as error:
            sys.exit(str(error))
        if missing := [name for name in names if name not in found]:
            sys.exit(f"At its end the cell has no variable {missing[0]}, which --out names.")
    if end:
        raise end


def show_error(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Show an error without the frames of this program."""
    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    main()
