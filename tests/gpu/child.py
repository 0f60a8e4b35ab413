"""Runs one program in this process, which has imported nothing: `python -m tests.gpu.child PROGRAM ARGUMENTS FILE`.

It writes the result of the program, or the error, to the file as JSON.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module


def main(program: str, arguments: str, answer: str) -> int:
    """Run it; return the exit status."""
    from tests.gpu.claim import NotTriedError

    module, _, function = program.rpartition(".")
    try:
        found = getattr(import_module(f"tests.gpu.{module}"), function)(*json.loads(arguments))
        found = found._asdict() if hasattr(found, "_asdict") else found
    except NotTriedError as reason:
        found = {"not tried": str(reason)}
    except Exception as error:  # noqa: BLE001 - any error is a result
        found = {"failed": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    with open(answer, "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes its time
        json.dump(found, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
