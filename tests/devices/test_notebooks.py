"""The notebook of a kernel: real Jupyter servers, runners and kernels, whose notebooks are also renamed."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from gpu_magic.claims.held import Claims
from gpu_magic.devices.model import Gpu, GpuProcess, GpuStatus, Inventory, JupyterKernel
from gpu_magic.devices.notebooks import notebook_of, with_notebooks
from gpu_magic.devices.processes import read_process
from tests.browser.lab import free_port
from tests.conftest import LIMIT, ROOT
from tests.machine import clean_environment
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "0123456789"
SIMULATED = {"GPU_MAGIC_SIMULATE": "4xA100-80GB clock=0"}


class Jupyter:
    """A real Jupyter server at a port, or at a Unix socket."""

    def __init__(self, folder: Path, sock: str = "") -> None:
        self.root, self._sock, self._port = folder / "work", sock, free_port()
        self.root.mkdir()
        settings: dict[str, Any] = {"allow_root": True, "open_browser": False, "root_dir": str(self.root)}
        settings |= {"sock": sock} if sock else {"port": self._port}
        (folder / "config").mkdir()
        config = {"ServerApp": settings, "IdentityProvider": {"token": TOKEN}}
        (folder / "config" / "jupyter_server_config.json").write_text(json.dumps(config))
        variables = {
            "HOME": str(folder),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "IPYTHONDIR": str(folder / "ipython"),
            "PYTHONPATH": str(ROOT),
        }
        self.runtime, self._log = folder / "runtime", (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server"],
            env=clean_environment("JUPYTER", "JPY") | variables | SIMULATED,
            stdout=self._log,
            stderr=self._log,
        )

        def is_there() -> bool:
            assert self.process.poll() is None, (folder / "log").read_text()
            with suppress(OSError):
                return bool(self.ask("GET", "api"))
            return False

        until(is_there)

    def ask(self, method: str, url: str, /, **content: Any) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LIMIT)
        if self._sock:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(self._sock)
        body = json.dumps(content) if content else None
        connection.request(method, f"/{url}", body, {"Authorization": f"token {TOKEN}"})
        answer = connection.getresponse()
        told = answer.read()
        connection.close()
        assert answer.status < 300, told
        return json.loads(told) if told else None

    def open(self, name: str) -> dict[str, Any]:
        """Make a notebook and start its kernel, as a front end does; return the session."""
        notebook = {"type": "notebook", "format": "json", "content": nbformat.v4.new_notebook()}
        self.ask("PUT", f"api/contents/{name}", **notebook)
        session: dict[str, Any] = self.ask(
            "POST", "api/sessions", name=name, path=name, type="notebook", kernel={"name": "python3"}
        )
        return session

    def rename(self, session: dict[str, Any], name: str) -> None:
        """Rename a notebook, as JupyterLab does."""
        self.ask("PATCH", f"api/contents/{session['path']}", path=name)
        self.ask("PATCH", f"api/sessions/{session['id']}", path=name, name=name)

    @contextmanager
    def client(self, session: dict[str, Any]) -> Iterator[BlockingKernelClient]:
        file = self.runtime / f"kernel-{session['kernel']['id']}.json"
        until(file.exists)
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels()

        def hears() -> bool:  # `wait_for_ready` takes a kernel on a busy machine for a dead one
            client.kernel_info()
            with suppress(queue.Empty):
                return bool(client.get_iopub_msg(timeout=1))
            return False

        until(hears)
        try:
            yield client
        finally:
            client.stop_channels()
            client.context.destroy(linger=0)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGCONT)
        self.process.terminate()
        self.process.wait(LIMIT)
        self._log.close()


@pytest.fixture(params=["port", "socket"])
def jupyter(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Jupyter]:
    with TemporaryDirectory(prefix="nb-") as short:  # a socket's name can have 107 characters
        server = Jupyter(tmp_path, f"{short}/s" if request.param == "socket" else "")
        yield server
        server.close()


def run(client: BlockingKernelClient, code: str) -> str:
    """Run a cell; return what it prints."""
    printed: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        assert message["msg_type"] != "error", message["content"]
        printed.append(message["content"].get("text", ""))

    client.execute_interactive(code, allow_stdin=False, output_hook=hear, timeout=LIMIT)
    return "".join(printed)


def notebook_now(pid: int) -> str:
    """Return the notebook of a process that uses a GPU, as the table has it."""
    machine = Inventory((Gpu(0, "GPU-0", status=GpuStatus(processes=(read_process(pid),))),))
    processes: Any = with_notebooks(machine)[0].status.processes
    return str(processes[0].notebook)


def test_a_renamed_notebook_has_its_new_name_everywhere(jupyter: Jupyter) -> None:
    session, old, new = (
        jupyter.open("old.ipynb"),
        str(jupyter.root / "old.ipynb"),
        str(jupyter.root / "new.ipynb"),
    )
    with jupyter.client(session) as client:
        run(client, "import gpu_magic, os, subprocess, threading\nchild = subprocess.Popen(['sleep', '600'])")
        pid, child = map(int, run(client, "print(os.getpid(), child.pid)").split())
        uuid = run(client, "print(gpu_magic.choose('2').devices[0].uuid)").strip()
        (before,) = Claims().everybodys()[uuid]
        assert (before.pid, before.notebook) == (pid, "old.ipynb")
        assert {notebook_now(pid), notebook_now(child)} == {old}
        jupyter.rename(session, "new.ipynb")
        until(lambda: notebook_now(pid) == new)
        # What the kernel has started has the old name in its variables.
        assert (read_process(child).notebook, notebook_now(child)) == (old, new)
        # Other users see only the claim. The kernel runs no cell meanwhile.
        until(lambda: Claims().everybodys()[uuid][0].notebook == "new.ipynb")
        (after,) = Claims().everybodys()[uuid]
        assert after == before._replace(notebook="new.ipynb", idle=after.idle)
        run(client, "child.kill(); gpu_magic.choose('reset')")
        threads = "print(*[thread.name for thread in threading.enumerate()])"
        until(lambda: "gpu_magic-names" not in run(client, threads))
        assert uuid not in Claims().everybodys()


@pytest.mark.parametrize("jupyter", ["port"], indirect=True)
def test_a_server_that_hangs_is_not_asked_again(jupyter: Jupyter) -> None:
    session, old = jupyter.open("old.ipynb"), str(jupyter.root / "old.ipynb")
    with jupyter.client(session) as client:
        pid = int(run(client, "import os\nprint(os.getpid())"))
    jupyter.process.send_signal(signal.SIGSTOP)
    assert notebook_now(pid) == old  # as at its start
    until(lambda: not asking())
    assert notebook_now(pid) == old
    assert not asking()


def asking() -> bool:
    return any(thread.name == "gpu_magic-notebooks" for thread in threading.enumerate())


class Recorded(http.server.BaseHTTPRequestHandler):
    """Answers as a server does, and records what it was asked."""

    asked: list[tuple[str, str | None]]
    answer: bytes

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        if not self.answer:
            self.wfile.write(b"nothing of HTTP\r\n")
            return
        self.send_response(200 if self.answer.startswith(b"[") else 403)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


SESSIONS = [
    {"type": "console", "path": "console-1", "kernel": {"id": "k"}},
    {"type": "notebook", "path": "b/train-jvsc-2f6a-99b1.ipynb", "kernel": {"id": "k"}},
    {"type": "notebook", "path": "later.ipynb", "kernel": {"id": "k"}},
]


@pytest.mark.parametrize(
    ("about", "answer", "found"),
    [
        ({}, SESSIONS, "/root/b/train.ipynb"),
        ({"hostname": "0.0.0.0"}, SESSIONS, "/root/b/train.ipynb"),
        ({}, {"message": "Forbidden"}, ""),
        ({}, [[]], ""),
        ({}, None, ""),
        ({"hostname": "10.0.0.1"}, SESSIONS, None),
        ({"secure": True}, SESSIONS, None),
        ({"token": None, "hostname": 1}, SESSIONS, None),
        ("ended", SESSIONS, None),
    ],
)
def test_only_a_server_that_runs_here_gets_its_token(
    tmp_path: Path, about: Any, answer: Any, found: str | None
) -> None:
    class Handler(Recorded):
        pass

    Handler.asked, Handler.answer = [], json.dumps(answer).encode() if answer else b""
    ended = subprocess.Popen(["true"])
    ended.wait()
    pid = ended.pid if about == "ended" else os.getpid()
    file = tmp_path / f"jpserver-{pid}.json"
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = {
            "hostname": "localhost",
            "port": server.server_port,
            "sock": "",
            "secure": False,
            "token": TOKEN,
        }
        told |= {"base_url": "/base/", "root_dir": "/root"} | (about if isinstance(about, dict) else {})
        file.write_text(json.dumps(told))
        process = GpuProcess(4711, "ipykernel", is_same_user=True, kernel=JupyterKernel(4711, "k", str(file)))
        notebook_of(process, [])
        until(lambda: not asking())
        for _ in range(2):
            assert notebook_of(process, []) == (found or "")
        server.shutdown()
    # A server or a Hub that ends what nobody uses does not count the question.
    question = "/base/api/sessions?no_track_activity=1", f"token {TOKEN}"
    assert Handler.asked == ([] if found is None else [question])


CELL = """
import os
from gpu_magic.devices.notebooks import notebook_here
from gpu_magic.devices.processes import read_process
print(read_process(os.getpid()).notebook, notebook_here())
"""
IN_CHILD = """
import subprocess, sys
code = "import os; from gpu_magic.devices.processes import read_process; print(read_process(os.getpid()).notebook)"
print(subprocess.check_output([sys.executable, "-c", code], text=True))
"""


@pytest.mark.parametrize(
    ("command", "result", "name"),
    [
        (["papermill", "in.ipynb", "out/in.ipynb", "--cwd", "."], "out/in.ipynb", "out/in.ipynb"),
        (["jupyter", "execute", "in.ipynb", "--inplace"], "in.ipynb", "in.ipynb"),
        (["jupyter", "execute", "in.ipynb", "b.ipynb", "--inplace"], "in.ipynb", ""),
        (
            ["jupyter", "nbconvert", "--execute", "in.ipynb", "--to", "notebook", "--output", "c.ipynb"],
            "c.ipynb",
            "in.ipynb",
        ),
    ],
    ids=["papermill", "nbclient", "several", "nbconvert"],
)
def test_a_runner_s_command_line_tells_the_notebook(
    tmp_path: Path, command: list[str], result: str, name: str
) -> None:
    (tmp_path / "out").mkdir()
    for file in "in.ipynb", "b.ipynb":
        cells = [nbformat.v4.new_code_cell(code) for code in (CELL, IN_CHILD)]
        metadata = {"kernelspec": {"name": "python3", "display_name": "python3", "language": "python"}}
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), tmp_path / file)
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [sys.executable, program, *command[1:]],
        cwd=tmp_path,
        env=clean_environment("JPY", "JUPYTER") | {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    printed = [cell.outputs[0].text.split() for cell in nbformat.read(tmp_path / result, 4).cells]
    assert printed == [[name] * 2 if name else [], [name] if name else []]
