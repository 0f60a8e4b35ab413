"""Runs a function in a process that has imported nothing: `python -m tests.gpu.child FUNCTION ARGUMENTS FILE`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["LIMIT", "run"]

ROOT = Path(__file__).parent.parent.parent
LIMIT = 120  # seconds
_LONGEST = 300  # characters of an error
# Variables that it must not inherit, because they simulate a machine or change how a framework behaves.
_REMOVED = ("GPU_MAGIC_SIMULATE", "PYTORCH_NVML_BASED_CUDA_CHECK", "PYTEST_CURRENT_TEST")


def run(function: str, arguments: tuple[Any, ...] = (), use: str = "") -> dict[str, Any]:
    """Run a function of this folder.

    Parameters
    ----------
    function
        Its module and its name: ``programs.driver.before_and_after``.
    arguments
        As JSON.
    use
        The UUIDs of the GPUs that it may use, with commas between them.

    Returns
    -------
    dict[str, Any]
        What it returned; or `failed` or `not tried`, with the reason.

    """
    environment = {name: value for name, value in os.environ.items() if name not in _REMOVED}
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "GPU_MAGIC_CLAIMS": "off",
        "GPU_MAGIC_TEST_GPUS": use,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    with tempfile.TemporaryDirectory() as folder, Path(folder, "output").open("w+b") as output:
        answer = Path(folder, "answer")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.child", function, json.dumps(arguments), str(answer)],
            env=environment | {"IPYTHONDIR": folder, "JUPYTER_RUNTIME_DIR": folder},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return {"failed": f"it did not end within {LIMIT} seconds"}
        finally:  # also at Ctrl+C, which it does not get; and all processes that it has started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status < 0:
            return {"failed": f"it was ended by {signal.Signals(-status).name}"}
        if status > 0:
            output.seek(0)
            lines = output.read().decode(errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
            return {"failed": f"its process failed: {last.strip()[:_LONGEST]}"}
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found


def main(function: str, arguments: str, answer: str) -> None:
    """Run it here, and write what it returns to a file."""
    from tests.gpu.claim import NotTriedError

    module, _, name = function.rpartition(".")
    try:
        found = getattr(import_module(f"tests.gpu.{module}"), name)(*json.loads(arguments))
        found = found._asdict() if hasattr(found, "_asdict") else found
    except NotTriedError as reason:
        found = {"not tried": str(reason)}
    except Exception as error:  # noqa: BLE001 - any error is a result
        line = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        found = {"failed": f"its program failed: {line[:_LONGEST]}"}
    with open(answer, "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes its time
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
