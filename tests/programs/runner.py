"""Runs the programs of this folder for tests, and gives them what the programs found.

>>> run = Runner(environment)
>>> found = run("on_gpu_torch.default_and_current_device")
>>> assert found["inside"] == "pretend:2"

Each program has a process of its own. It is forked from one that has imported the frameworks that the program's file
imports at its top, and has started none of them; `run.fresh` starts a new interpreter instead, for programs whose
point is an import, or the process itself.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from tests.native import SOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HANG", "PROGRAMS", "Runner", "devices"]

PROGRAMS = Path(__file__).parent
ROOT = PROGRAMS.parent.parent
FRAMEWORKS = {"cupy", "jax", "keras", "tensorflow", "torch", "torch._dynamo"}
# What TensorFlow imports itself, so that what needs these as well need not have a server of its own.
WITH_TENSORFLOW = {"jax", "keras"}
# Seconds after which a program hangs for sure: no measure of how long one takes on a busy machine.
HANG = 600
# How many servers are kept: each has up to 0.8 GB of frameworks.
KEPT = 4

_servers: OrderedDict[tuple[object, ...], _Server] = OrderedDict()


class Runner:
    """Runs programs with these variables added to the environment, which has no mask otherwise.

    Parameters
    ----------
    environment
        The variables.

    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        clean.pop("PYTEST_CURRENT_TEST", None)  # it differs from test to test, and servers are shared
        self._environment = {**clean, "PYTHONPATH": str(ROOT), **environment}

    def __call__(self, program: str, /, *arguments: Any, **environment: str) -> Any:
        """Run a program where its frameworks are imported already; return what it returned.

        Parameters
        ----------
        program
            Its file and its name: ``on_gpu_torch.default_device``.
        *arguments
            What it is called with, as JSON.
        **environment
            More variables. What stands in them is there when the frameworks are imported.

        """
        return self._forked(program, arguments, environment)

    def to_the_end(self, program: str, /, *arguments: Any, **environment: str) -> Any:
        """Run a program likewise, and have Python finalize its process, which takes half a second."""
        return self._forked(program, arguments, environment, finalize=True)

    def _forked(
        self,
        program: str,
        arguments: tuple[Any, ...],
        environment: Mapping[str, str],
        *,
        finalize: bool = False,
    ) -> Any:
        request = {**_request(program, arguments), "finalize": finalize}
        frameworks = _frameworks(Path(request["file"]))
        server = _server(frameworks, {**self._environment, **environment})
        try:
            reply = server.ask(request)
        except BaseException:  # an interrupt, a limit: the next reply would be that to this request
            server.close()
            raise
        return _answer(program, **reply)

    def fresh(self, program: str, /, *arguments: Any, **environment: str) -> Any:
        """Run a program in an interpreter that has imported nothing; return what it returned."""
        request = json.dumps(_request(program, arguments))
        with tempfile.NamedTemporaryFile() as answer:
            done = subprocess.run(
                [sys.executable, "-m", "tests.programs", "once", request, answer.name],
                env={**self._environment, **environment},
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            )
            return _answer(
                program, done.returncode, answer.read().decode(), done.stdout.decode(errors="replace")
            )


def devices(pretend: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which JAX and CuPy have four devices, and PyTorch those of `pretend`."""
    path = [pretend["PYTHONPATH"], str(SOURCES / "standin"), str(PROGRAMS / "packages")]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }


class _Server:
    """A process that has imported frameworks, and forks one for each program."""

    def __init__(self, frameworks: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.programs", "serve", *frameworks],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            start_new_session=True,  # Ctrl+C is for pytest
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Have a program run, and return how it ended."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        if reply := self._process.stdout.readline():
            return json.loads(reply)  # type: ignore[no-any-return]
        self._errors.seek(0)
        pytest.fail(f"The frameworks could not be imported:\n{self._errors.read().decode()}", pytrace=False)

    def close(self) -> None:
        """End it, and the program that it may be running."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def _request(program: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
    file, _, function = program.partition(".")
    path = PROGRAMS / f"{file}.py"
    return {"file": str(path), "function": function, "arguments": arguments, "limit": HANG}


@functools.cache
def _frameworks(file: Path) -> tuple[str, ...]:
    """Return the frameworks that a program's file imports at its top; `hides_jax` imports JAX."""
    found = []
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
    tops = {name.partition(".")[0].removeprefix("hides_") for name in found}
    needed = FRAMEWORKS & {*found, *tops}
    return tuple(sorted(needed - WITH_TENSORFLOW if "tensorflow" in needed else needed))


def _server(frameworks: tuple[str, ...], environment: Mapping[str, str]) -> _Server:
    key = (frameworks, *sorted(environment.items()))
    server = _servers.pop(key, None)
    if server is None or not server.is_running:
        while len(_servers) >= KEPT:
            _servers.popitem(last=False)[1].close()
        server = _Server(frameworks, environment)
    _servers[key] = server  # the last used one is last
    return server


def _answer(program: str, status: int, answer: str, output: str) -> Any:
    if status:
        pytest.fail(f"{program} ended with status {status}:\n{output}", pytrace=False)
    print(output, end="")  # pytest shows it where the test fails
    return json.loads(answer)


@atexit.register
def _close_all() -> None:
    while _servers:
        _servers.popitem()[1].close()
