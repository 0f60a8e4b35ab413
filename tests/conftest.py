"""What the tests share: the pretend driver libraries, a shell, and a check that nothing is left behind."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import hypothesis
import pynvml
import pytest
from filelock import FileLock
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from packaging.version import Version
from traitlets.config import Config

from gpu_magic.devices.nvml import Nvml
from gpu_magic.testing import Machine, simulate
from tests.native import build, build_amd, pretend_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.programs.runner import Runner

pytest.register_assert_rewrite("tests.programs.runner")  # where @gives compares

ROOT = Path(__file__).parent.parent

# Claims of this run's processes, and of nobody else's; one folder for all tests of a worker.
os.environ["GPU_MAGIC_CLAIMS"] = tempfile.mkdtemp(prefix="gpu_magic-tests-claims-")
Path(os.environ["GPU_MAGIC_CLAIMS"]).chmod(0o1777)
atexit.register(shutil.rmtree, os.environ["GPU_MAGIC_CLAIMS"], ignore_errors=True)

# A shell's background job ignores interrupts, and what it starts inherits that: tests and their children do not.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# No test fails because a machine is slow.
# Before a push the same examples each time, so that what fails is what was changed; others every night.
hypothesis.settings.register_profile("push", deadline=None, derandomize=True)
hypothesis.settings.register_profile("night", deadline=None)
hypothesis.settings.load_profile("push")
# What is waited for, and what `auto` looks at three times, changes at once here.
os.environ["GPU_MAGIC_PACE"] = "0.02"
# Seconds after which something hangs for sure: no measure of how long it takes on a busy machine.
LIMIT = 600
# Seconds after which calls are given up that a test lets hang: the others come back before, on a busy machine also.
IMPATIENT = 0.6


def needs_ipykernel(oldest: str, why: str) -> None:
    """Leave a test out with an older ipykernel. Combinations of the matrix have one, and `make test` has none."""
    if Version(version("ipykernel")) < Version(oldest):
        pytest.skip(f"needs ipykernel {oldest}: {why}")


def torch_build() -> tuple[str, bool]:
    """Return the version that PyTorch tells of itself, and whether it is built with CUDA, as most are."""
    spec = find_spec("torch")  # it is not imported
    assert spec is not None, "PyTorch is missing"
    assert spec.origin is not None
    stated = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(__version__|cuda)\b.*?= '(.+)'", stated, re.MULTILINE))
    return found["__version__"], "cuda" in found


def pytest_xdist_auto_num_workers() -> int:
    """Return how many tests run at once: half of the time they wait, for kernels, pages and other processes."""
    return (os.cpu_count() or 2) * 3 // 2


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Every test leaves the environment, the import system and pynvml as they were."""
    before = _environment(), _finders(), pynvml.nvmlLib
    yield
    assert _environment() == before[0]
    assert _finders() == before[1]
    assert pynvml.nvmlLib is before[2]


def _finders() -> list[Any]:
    """Return what finds modules, but for what six adds when a first package imports it."""
    return [one for one in sys.meta_path if type(one).__module__ != "six"]


def _environment() -> dict[str, str]:
    """Return the variables, but for those that pytest sets, and debugpy when ipykernel 6.17 loads it."""
    others = ("PYTEST_CURRENT_TEST", "PYDEVD_USE_FRAME_EVAL")
    return {name: value for name, value in os.environ.items() if name not in others}


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the pretend libnvidia-ml.so.1 and libcuda.so.1."""
    return build(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="session")
def native_amd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the pretend libamd_smi.so and libhsa-runtime64.so.1."""
    return build_amd(tmp_path_factory.mktemp("native_amd"))


@pytest.fixture(scope="session")
def pretend(pytestconfig: pytest.Config) -> dict[str, str]:
    """Return the variables with which PyTorch has an accelerator of four devices."""
    return {"PYTHONPATH": pretend_path(pytestconfig.cache.mkdir(f"pretend-{version('torch')}"))}


@pytest.fixture
def run(pretend: dict[str, str]) -> Runner:
    """Return what runs a function in a process where each real framework has four devices."""
    from tests.programs.runner import Runner, devices

    return Runner(devices(pretend))


@pytest.fixture(scope="session")
def ipykernel(pytestconfig: pytest.Config) -> Callable[[str], str]:
    """Return a way to have a version of ipykernel: the folder it is in, to stand before all others."""

    def install(version: str) -> str:
        needs_ipykernel("6.18", "the package comm, which later ones need, comes with it")
        folder = pytestconfig.cache.mkdir("ipykernels") / version
        with FileLock(f"{folder}.lock"):  # several runs can want the same one
            if not (folder / "ready").exists():
                # What it needs is here already, but for what a newer one has replaced.
                packages = [f"ipykernel=={version}", *(["nest-asyncio"] if version < "7" else [])]
                pip = [
                    sys.executable,
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--no-deps",
                    "--target",
                    str(folder),
                ]
                subprocess.run([*pip, *packages], check=True)
                if version == "7.3.0":
                    _keep_requests(folder / "ipykernel" / "kernelapp.py")
                (folder / "ready").touch()
        return str(folder)

    return install


def _keep_requests(app: Path) -> None:
    """Let replies leave through the stream, as ipykernel 7.4 does.

    Before it, a request that arrived while a reply left was not read, now and then, and its cell never began
    (ipython/ipykernel#1529).
    """
    made = "shell_stream = ZMQStream(self.shell_socket, self.shell_channel_thread.io_loop)"
    before, after = app.read_text().split(made)
    app.write_text(f"{before}{made}; self.shell_channel_thread._shell_socket = shell_stream{after}")


class Fresh(Protocol):
    """Runs code in a process of its own and returns what it printed; a failing one fails the test."""

    def __call__(self, code: str, **environment: str) -> str: ...


@pytest.fixture
def fresh() -> Fresh:
    """Return a way to run code in a fresh interpreter, without any mask in its environment."""

    def run(code: str, **environment: str) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=clean | {"PYTHONPATH": str(ROOT)} | environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def nvml() -> Iterator[Nvml]:
    """Return a reader that does not take a busy machine for a driver that hangs."""
    reader = Nvml(timeout=30, starting=0.0)
    yield reader
    reader.close()


@pytest.fixture
def impatient() -> Iterator[Nvml]:
    """Return a reader that does not wait long for calls that hang."""
    reader = Nvml(timeout=IMPATIENT, starting=0.0)
    yield reader
    reader.close()


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """Return a fresh IPython shell, and check that it is as before once the extension is unloaded."""
    InteractiveShell.clear_instance()
    ip = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    before = _traces(ip)
    with _no_running_loop():
        yield ip
    extensions = ip.extension_manager
    assert extensions is not None
    if "gpu_magic" in extensions.loaded:
        extensions.unload_extension("gpu_magic")
    assert _traces(ip) == before
    atexit.unregister(ip.atexit_operations)  # each shell would collect all garbage once more at the end
    InteractiveShell.clear_instance()


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Simulate a machine: four A100 whose figures stand still, or as `@pytest.mark.machine("2xT4", …)` says."""
    mark = request.node.get_closest_marker("machine")
    profile = mark.args[0] if mark and mark.args else "4xA100-80GB"
    with simulate(profile, **{"clock": 0.0, **(mark.kwargs if mark else {})}) as simulated:
        yield simulated


class Cell(NamedTuple):
    """What became of a cell."""

    value: Any
    error: Any
    text: str  # all that it has printed and shown, without colors


class Typed:
    """Runs a cell in a shell that has the extension."""

    def __init__(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
        self._shell, self._capsys = shell, capsys
        self.outputs: list[Any] = []  # what the latest cell has shown: `data` by MIME type, and `metadata`

    def __call__(self, cell: str) -> Cell:
        self._capsys.readouterr()
        with capture_output(stdout=False, stderr=False) as captured:
            result = self._shell.run_cell(cell, store_history=True)
        self.outputs, printed = captured.outputs, self._capsys.readouterr()
        shown = "".join(f"{one.data['text/plain']}\n" for one in self.outputs if "text/plain" in one.data)
        text = re.sub(r"\x1b\[[0-9;]*m", "", printed.out + printed.err + shown)
        return Cell(result.result, result.error_before_exec or result.error_in_exec, text)


@pytest.fixture
def typed(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Return a way to run a cell in a shell that has the extension."""
    shell.run_line_magic("load_ext", "gpu_magic")
    return Typed(shell, capsys)


@contextmanager
def _no_running_loop() -> Iterator[None]:
    """Hide the loop of Playwright, which counts as running in this thread from a first page to the end."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(running)


def _traces(ip: InteractiveShell) -> tuple[object, ...]:
    """Return all of a shell that an extension could leave something in."""
    return (
        sorted(ip.magics_manager.magics["line"]),
        sorted(ip.magics_manager.magics["cell"]),
        {event: list(callbacks) for event, callbacks in ip.events.callbacks.items()},
        # IPython adds its own magics classes lazily, when one of them is first used.
        [type(one).__name__ for one in ip.configurables if not type(one).__module__.startswith("IPython.")],
        list(ip.Completer.custom_matchers),
        list(getattr(ip.Completer, "magic_arg_matchers", ())),
        list(ip.input_transformers_cleanup),
        list(ip.ast_transformers),
        "GpuMagics" in ip.magics_manager.registry,
    )
