"""A real ipykernel on a machine of four A100s, whose driver libraries are the pretend ones."""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from jupyter_client.manager import KernelManager

from gpu_magic.kernelspec.kernelspecs import install
from tests.conftest import LIMIT, ROOT
from tests.kernel.forked import Server, forked_manager
from tests.machine import CARDS, Driver, clean_environment, environment
from tests.native import SOURCES
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

# What cells import: packages that start CUDA, or import more later.
PACKAGES = ROOT / "tests" / "kernel" / "packages"

_KEPT = "<span style='white-space:nowrap'>"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Reply:
    """What a cell answered."""

    status: str
    stdout: str = ""
    stderr: str = ""
    text: str = ""
    said: str = ""  # what it has printed, without errors, and shown as text, in order
    html: str = ""  # without what keeps a figure with its unit
    updated: str = ""  # the latest text of an output that was brought up to date
    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    traceback: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)  # of the latest output
    displays: dict[str, str] = field(default_factory=dict)  # the latest text of each output, by its id

    @property
    def refusal(self) -> str:
        """Its UsageError, without the line breaks."""
        return " ".join(self.stderr.split())

    @property
    def shown(self) -> str:
        """The text of all outputs as they are in the end."""
        return "".join(self.displays.values())


class Kernel:
    """A running kernel, and the machine beneath it."""

    def __init__(self, manager: KernelManager, state: Path) -> None:
        self._manager, self._state = manager, state
        self.client = manager.client()
        self.client.start_channels()
        self._wait_until_ready()
        self._ended = False
        self.folder = state.parent  # where its cells run
        self.heard = ""  # what the cell that runs has shown, for other threads

    def _wait_until_ready(self) -> None:
        """Wait until it answers on both channels. jupyter_client's own way then listens for 0.2 s to nothing."""
        deadline = time.monotonic() + LIMIT
        while self.is_alive() and time.monotonic() < deadline:
            asked = self.client.kernel_info()
            with contextlib.suppress(queue.Empty):
                while self.client.get_shell_msg(timeout=1)["parent_header"].get("msg_id") != asked:
                    pass
                while True:
                    told = self.client.get_iopub_msg(timeout=0.1)
                    if told["parent_header"].get("msg_id") == asked and told["content"] == {
                        "execution_state": "idle"
                    }:
                        return
        raise AssertionError("the kernel does not answer")

    def run(self, code: str, answer: str | None = None) -> Reply:
        """Run a cell to its end; answer what it asks for, where somebody is there who can."""
        reply, self.heard = Reply(""), ""

        def reply_to(message: dict[str, Any]) -> None:
            reply.asked.append(message["content"]["prompt"])
            assert answer is not None
            self.client.input(answer)

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                setattr(reply, content["name"], getattr(reply, content["name"]) + content["text"])
                self.heard += content["text"]
                reply.said += content["text"] * (content["name"] == "stdout")
            if message["msg_type"] in ("display_data", "execute_result", "update_display_data"):
                key = content.get("transient", {}).get("display_id") or message["header"]["msg_id"]
                reply.displays[key] = content["data"].get("text/plain", "")
            if message["msg_type"] in ("display_data", "execute_result"):
                reply.text += content["data"].get("text/plain", "")
                self.heard += content["data"].get("text/plain", "")
                reply.said += f"{content['data'].get('text/plain', '')}\n"
                reply.html += content["data"].get("text/html", "").replace(_KEPT, "").replace("</span>", "")
                reply.metadata = content["metadata"]
            elif message["msg_type"] == "update_display_data":
                reply.updated = content["data"].get("text/plain", "")
            elif message["msg_type"] == "error":
                reply.errors.append(content["evalue"])
                reply.traceback += _ANSI.sub("", "\n".join(content["traceback"]))

        done = self.client.execute_interactive(
            code, allow_stdin=answer is not None, output_hook=hear, stdin_hook=reply_to, timeout=LIMIT
        )
        reply.status = done["content"]["status"]
        if reply.status == "aborted":  # it came before the kernel was done with a cell that had failed
            return self.run(code, answer)
        return reply

    def load(self) -> Kernel:
        """Load the extension in its first cell."""
        reply = self.run("%load_ext gpu_magic")
        assert reply.status == "ok", reply.traceback
        return self

    def run_and_interrupt(self, code: str, when: Callable[[], object]) -> Reply:
        """Run a cell, and interrupt it when something is true."""

        def interrupt() -> None:
            until(when)
            self.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        reply = self.run(code)
        thread.join()
        return reply

    def run_all(self, *cells: str) -> list[Reply]:
        """Run cells until one of them fails, as "Run All" does."""
        replies: list[Reply] = []
        for cell in cells:
            replies.append(self.run(cell))
            if replies[-1].status != "ok":
                break
        return replies

    def change_machine(self, driver: Driver) -> None:
        driver.write(self._state)

    def end(self) -> None:
        """Kill it, and close every socket: a test run has hundreds of kernels, and 1024 file descriptors."""
        if self._ended:
            return
        self._ended = True
        self.client.stop_channels()
        self._manager.provisioner.process.kill()
        self._manager.provisioner.process.wait()
        self._manager.cleanup_resources()
        self.client.context.destroy(linger=0)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return int(self.run("import os; print(os.getpid(), end='')").stdout)

    def is_alive(self) -> bool:
        return bool(self._manager.is_alive())

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def restart(self) -> None:
        self._manager.restart_kernel(now=True)
        self._wait_until_ready()


@pytest.fixture(scope="session")
def preloaded() -> str:
    """Return the library that stands between kernels and the system; empty for none."""
    return ""


@pytest.fixture(scope="session")
def servers(preloaded: str) -> Iterator[Callable[..., Server]]:
    """Return a way to have the server for kernels with these variables, which have imported these modules."""
    running: dict[tuple[str, ...], Server] = {}

    def find(variables: Mapping[str, str], *imported: str) -> Server:
        # What Python and the loader read once, when a program starts.
        started_with = {name: variables[name] for name in ("PYTHONPATH", "LD_LIBRARY_PATH")}
        key = *started_with.values(), *imported
        if key not in running:
            running[key] = Server(clean_environment() | started_with | {"LD_PRELOAD": preloaded}, *imported)
        return running[key]

    yield find
    for server in running.values():
        server.close()


@pytest.fixture(scope="session")
def sockets() -> Iterator[str]:
    """Return a folder for kernels' sockets and temporary files. Its name is short: a socket's can have 107 characters."""
    with TemporaryDirectory(prefix="kernels-") as folder:
        yield folder


@contextlib.contextmanager
def kernels_in(
    tmp_path: Path, native: Path, servers: Callable[..., Server], sockets: str
) -> Iterator[Callable[..., Kernel]]:
    """Return a way to start kernels, which end with the block.

    A kernel is forked from a process that has imported ipykernel, and `imported`; one that is to be `fresh`, or to
    start with `gpus` by its kernelspec, is started as any program is.
    """
    kernels: list[Kernel] = []
    names: dict[str, str] = {}  # of kernelspecs, by the GPUs that they start with

    def start(
        driver: Driver | None = None,
        /,
        imported: tuple[str, ...] = (),
        *,
        fresh: bool = False,
        gpus: str = "",
        connection_file: Path | None = None,
        **variables: str,
    ) -> Kernel:
        state = tmp_path / "machine"
        (driver or Driver(CARDS)).write(state)
        paths = f"{variables.pop('PYTHONPATH', ROOT)}:{PACKAGES}"
        runtime = tmp_path / "runtime"
        places = {
            "PYTHONPATH": paths,
            "IPYTHONDIR": str(tmp_path / "ipython"),
            "JUPYTER_RUNTIME_DIR": str(runtime),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TMPDIR": sockets,  # kernels are killed, so files of their launches stay
        }
        given = clean_environment() | environment(native, state) | places | variables
        # A TCP port that was free when it was looked up can be taken when the kernel binds it.
        started: KernelManager = KernelManager(kernel_name="python3", transport="ipc")
        if gpus:
            if gpus not in names:
                names[gpus] = install(gpus, prefix=str(tmp_path)).name
            started.kernel_name = names[gpus]
            started.kernel_spec_manager.kernel_dirs = [str(tmp_path / "share/jupyter/kernels")]
        elif not fresh:
            started = forked_manager(servers(given, *imported))
        name = uuid4()  # KernelManager itself gives it none
        started.ip = f"{sockets}/{name}"
        runtime.mkdir(mode=0o700, exist_ok=True)
        # It is named as a server names it.
        started.connection_file = str(connection_file or runtime / f"kernel-{name}.json")
        started.start_kernel(env=given, cwd=str(tmp_path))
        kernels.append(Kernel(started, state))
        return kernels[-1]

    try:
        yield start
    finally:
        for kernel in kernels:
            kernel.end()


@pytest.fixture
def start_kernel(
    native: Path, tmp_path: Path, servers: Callable[..., Server], sockets: str
) -> Iterator[Callable[..., Kernel]]:
    """Return a way to start kernels; they end with the test."""
    with kernels_in(tmp_path, native, servers, sockets) as start:
        yield start


@pytest.fixture(scope="module")
def engines(
    native: Path, tmp_path_factory: pytest.TempPathFactory, servers: Callable[..., Server], sockets: str
) -> Iterator[Kernel]:
    """Return a kernel with two engines for all tests of a module: 0 has GPU 2, and 1 has GPU 0."""
    folder = tmp_path_factory.mktemp("engines")
    with kernels_in(folder, native, servers, sockets) as start:
        kernel = start(PYTHONPATH=f"{ROOT}:{SOURCES / 'standin'}").load()
        # With this variable, ipykernel's streams in engines do not read what is written to descriptors 1 and 2.
        kernel.run("import gpu_magic, os, pathlib, time\nos.environ.pop('PYTEST_CURRENT_TEST', None)")
        reply = kernel.run("%gpus 2,0\n%gpu_cluster")
        assert (
            "2 engines: 0 = GPU 2 (NVIDIA A100-SXM4-80GB), 1 = GPU 0 (NVIDIA A100-SXM4-80GB)\n" in reply.said
        )
        yield kernel


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel with the extension loaded."""
    return start_kernel().load()


@pytest.fixture
def pretend_kernel(start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> Kernel:
    """Return a kernel with the extension loaded, in which PyTorch has four devices once it is imported."""
    return start_kernel(imported=("torch", "torch._dynamo"), **pretend).load()
