"""Runs functions of tests in processes of their own, and gives back what they return.

>>> def inside():
...     with on_gpu(2):
...         return torch.ones(1).device
>>> def test_a_block(run):
...     assert run(inside) == "pretend:2"

Or, for the same, ``@gives("pretend:2")`` above ``def test_a_block(): ...``, whose body runs there.

The process is forked from one that has imported the frameworks that the function's file imports for it at its top,
under ``if ELSEWHERE:`` (see `needed`), and has started none of them. `run.fresh` starts a new interpreter instead, for
functions whose point is an import, or the process itself. What is returned comes as JSON; devices, dtypes and the like
by their names.
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
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import pytest

from tests.native import SOURCES
from tests.programs.needed import ELSEWHERE, needed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ELSEWHERE", "HANG", "PROGRAMS", "Runner", "devices", "gives"]

PROGRAMS = Path(__file__).parent
ROOT = PROGRAMS.parent.parent
FRAMEWORKS = {"cupy", "jax", "keras", "tensorflow", "torch", "torch._dynamo"}
FRAMEWORKS |= {"accelerate", "bitsandbytes", "lightning", "peft", "torchao", "transformers"}
# What TensorFlow imports itself, so that what needs these as well need not have a server of its own.
WITH_TENSORFLOW = {"jax", "keras"}
# Seconds after which a program hangs for sure: no measure of how long one takes on a busy machine.
HANG = 600
# How many servers are kept: each has up to 0.8 GB of frameworks.
KEPT = 4

Program: TypeAlias = "Callable[..., Any]"

_servers: OrderedDict[tuple[object, ...], _Server] = OrderedDict()


class Runner:
    """Runs functions with these variables added to the environment, which has no mask otherwise.

    Parameters
    ----------
    environment
        The variables.
    late
        How variables begin that are set in the function's process alone, so that functions that differ in them are
        forked from one process. By default those are the machines of the pretend drivers.

    """

    def __init__(self, environment: Mapping[str, str], late: tuple[str, ...] = ("GPU_MAGIC_TEST_",)) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        clean.pop("PYTEST_CURRENT_TEST", None)  # it differs from test to test, and servers are shared
        self._environment, self._late = {**clean, "PYTHONPATH": str(ROOT), **environment}, late

    def __call__(self, program: Program, /, *arguments: Any, **environment: str) -> Any:
        """Run a function where its frameworks are imported already; return what it returned.

        Parameters
        ----------
        program
            A function of a file of tests.
        *arguments
            What it is called with, as JSON.
        **environment
            More variables. What stands in them is there when the frameworks are imported.

        """
        return self._forked(program, arguments, environment)

    def to_the_end(self, program: Program, /, *arguments: Any, **environment: str) -> Any:
        """Run a function likewise, and have Python finalize its process, which takes half a second."""
        return self._forked(program, arguments, environment, finalize=True)

    def _forked(
        self,
        program: Program,
        arguments: tuple[Any, ...],
        environment: Mapping[str, str],
        *,
        finalize: bool = False,
    ) -> Any:
        variables = {**self._environment, **environment}
        late = {name: variables.pop(name) for name in [*variables] if name.startswith(self._late)}
        request = {**_request(program, arguments), "finalize": finalize, "environment": late}
        server = _server(_frameworks(request["file"]), variables)
        try:
            reply = server.ask(request)
        except BaseException:  # an interrupt, a limit: the next reply would be that to this request
            server.close()
            raise
        return _answer(program.__name__, **reply)

    def fresh(self, program: Program, /, *arguments: Any, **environment: str) -> Any:
        """Run a function in an interpreter that has imported nothing; return what it returned."""
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
                program.__name__,
                done.returncode,
                answer.read().decode(),
                done.stdout.decode(errors="replace"),
            )


def devices(pretend: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which JAX and CuPy have four devices, and PyTorch those of `pretend`."""
    path = [pretend["PYTHONPATH"], str(SOURCES / "standin"), str(PROGRAMS / "packages")]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": "1",  # for steps as small as those here, PyTorch's threads take longer than the steps
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


def gives(
    expected: Any, *arguments: Any, on: str = "run"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function the test that it returns this in a process of its own.

    Parameters
    ----------
    expected
        What it is to return.
    *arguments
        What it is called with, as JSON.
    on
        The fixture that runs it.

    """

    def decorate(program: Callable[..., Any]) -> Callable[..., Any]:
        # The fixture is made before the test, whose time is limited: it can have to build something.
        @pytest.mark.usefixtures(on)
        def test(request: pytest.FixtureRequest) -> None:
            assert request.getfixturevalue(on)(program, *arguments) == expected

        test.__name__, test.__qualname__, test.__doc__ = (
            program.__name__,
            program.__qualname__,
            program.__doc__,
        )
        test.__module__ = program.__module__
        return test

    return decorate


def _request(program: Program, arguments: tuple[Any, ...]) -> dict[str, Any]:
    file = program.__code__.co_filename
    return {"file": file, "function": program.__name__, "arguments": arguments, "limit": HANG}


@functools.cache
def _frameworks(file: str) -> tuple[str, ...]:
    """Return the frameworks that a file imports at its top, for all its functions; `hides_jax` imports JAX."""
    found = []
    for node in needed(Path(file).read_text(encoding="utf-8"), "").body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
    tops = {name.partition(".")[0].removeprefix("hides_") for name in found}
    used = FRAMEWORKS & {*found, *tops}
    return tuple(sorted(used - WITH_TENSORFLOW if "tensorflow" in used else used))


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
