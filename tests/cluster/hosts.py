"""Engines that somebody else has started, on simulated machines of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import ipyparallel

from gpu_magic.cluster.launchers import own_places
from tests.conftest import LIMIT, ROOT
from tests.machine import clean_environment
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


FILES = "ipcontroller-client.json", "ipcontroller-engine.json"


@contextmanager
def started(folder: Path, *environments: dict[str, str]) -> Iterator[Any]:
    """Start a controller, and an engine for each environment; return ipyparallel's client."""
    clean = clean_environment()
    files = [folder / "security" / name for name in FILES]
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        log = stack.enter_context((folder / "output.txt").open("wb"))

        def run(*words: str, **variables: str) -> None:
            process = subprocess.Popen(
                [sys.executable, "-m", *words, f"--profile-dir={folder}", "--log-level=CRITICAL"],
                env=clean | {"PYTHONPATH": str(ROOT)} | variables,
                cwd=folder,
                stdout=log,
                stderr=log,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            processes.append(process)

        def are_there(there: Callable[[], bool]) -> bool:
            assert all(process.poll() is None for process in processes)
            return there()

        run("ipyparallel.controller", *own_places(), "--nodb", "--ping=250")
        until(lambda: are_there(lambda: all(map(is_whole, files))))
        for number, variables in enumerate(environments):
            run("ipyparallel.engine", f"--IPEngine.id={number}", f"--timeout={LIMIT}", **variables)

        def all_registered() -> bool:
            # A client that connects while engines register can miss one of them for good.
            with ipyparallel.Client(str(files[0]), timeout=LIMIT) as client:
                return len(client.ids) == len(environments)

        until(lambda: are_there(all_registered))
        yield stack.enter_context(ipyparallel.Client(str(files[0]), timeout=LIMIT))


def on_host(address: str, machine: str, **variables: str) -> dict[str, str]:
    """Return the variables of an engine on a host of its own."""
    return {"GPU_MAGIC_ADDRESS": address, "GPU_MAGIC_SIMULATE": machine, **variables}


def is_whole(file: Path) -> bool:
    """Return whether the controller has written a connection file to its end."""
    try:
        json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    return True
