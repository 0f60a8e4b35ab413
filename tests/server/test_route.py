"""Who gets an answer from the extension in a real Jupyter server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests.browser.lab import free_port
from tests.conftest import LIMIT, ROOT
from tests.machine import CARDS, GIB, Driver, clean_environment, environment
from tests.processes import sees_processes, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOKEN = "0123456789"
AUTHORIZER = """
from jupyter_server.auth import Authorizer

class NoKernels(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return resource != "kernels"
"""


class Server:
    """A real Jupyter server."""

    def __init__(self, port: int, log: Path) -> None:
        self.port, self._log = port, log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ask(self, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the JSON of an answer. With a body, it is a POST."""
        headers = {"Authorization": f"token {TOKEN}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as reply:
                return reply.status, json.loads(reply.read() or "null")
        except urllib.error.HTTPError as error:
            return error.code, None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Return what starts a server with options of its own, and variables."""
    with ExitStack() as opened:

        def start(options: dict[str, Any], **variables: str) -> Server:
            (tmp_path / "no_kernels.py").write_text(AUTHORIZER)
            (tmp_path / "config").mkdir()
            server = {
                "jpserver_extensions": {"gpu_magic": True},
                "allow_root": True,
                "open_browser": False,
                "port": (port := free_port()),
                "root_dir": str(tmp_path),
            }
            settings = {"ServerApp": server, "IdentityProvider": {"token": TOKEN}}
            for name, given in options.items():
                settings[name] = settings.get(name, {}) | given
            (tmp_path / "config" / "jupyter_server_config.json").write_text(json.dumps(settings))
            places = {
                "HOME": str(tmp_path),
                "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
                "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
                "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
            }
            log = opened.enter_context((tmp_path / "log").open("wb"))
            process = opened.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "jupyter_server"],
                    env=clean_environment("JUPYTER") | places | variables,
                    stdout=log,
                    stderr=log,
                )
            )
            opened.callback(process.kill)
            found = Server(port, tmp_path / "log")

            def is_there() -> bool:
                with suppress(OSError):
                    return bool(found.ask("api"))
                assert process.poll() is None, found.log
                return False

            until(is_there)
            return found

        yield start


def test_who_may_not_see_the_kernels_does_not_see_their_gpus(start: Callable[..., Server]) -> None:
    """Nor does it see which of them will be culled, or keep one."""
    options = {
        "ServerApp": {"authorizer_class": "no_kernels.NoKernels"},
        "GpuMagic": {"cull_idle_gpu": "4h"},
    }
    server = start(options, GPU_MAGIC_SIMULATE="1xT4")
    paths = "api/contents", "api/kernels", "gpu_magic/gpus", "gpu_magic/culling"
    assert [server.ask(path)[0] for path in paths] == [200, 403, 403, 403]
    assert server.ask("gpu_magic/culling", {"kernel": "a"})[0] == 403
    assert "idle for 4 h are shut down, with 15 min of warning" in server.log


@pytest.mark.parametrize(
    ("options", "says"),
    [({}, ""), ({"cull_idle_gpu": "4x"}, "c.GpuMagic.cull_idle_gpu = '4x' is not a time, so no kernel")],
)
def test_kernels_are_culled_only_if_that_is_asked_for(
    start: Callable[..., Server], options: dict[str, str], says: str
) -> None:
    server = start({"GpuMagic": options}, GPU_MAGIC_SIMULATE="1xT4")
    assert [server.ask(f"gpu_magic/{path}")[0] for path in ("gpus", "culling")] == [200, 404]
    assert [says in line for line in server.log.splitlines() if "GpuMagic" in line] == [True] * bool(says)


@sees_processes
def test_an_idle_kernel_is_shut_down_once_its_time_is_over(
    start: Callable[..., Server], native: Path, tmp_path: Path
) -> None:
    """No page is open, as with VS Code. One kernel is used again, as far as the driver says."""
    Driver(CARDS).write(tmp_path / "machine")
    machine = environment(native, tmp_path / "machine")
    server = start({"GpuMagic": {"cull_idle_gpu": "4s", "cull_idle_gpu_warn": "2s"}}, **machine)
    kernels, pids = [], []
    for name in ("idle", "works"):
        session = {"path": f"{name}.ipynb", "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        status, made = server.ask("api/sessions", session)
        assert status == 201
        kernels.append(made["kernel"]["id"])
        client = BlockingKernelClient(
            connection_file=str(tmp_path / "runtime" / f"kernel-{made['kernel']['id']}.json")
        )
        client.load_connection_file()
        client.start_channels(hb=False)  # on a slow machine its beats come too late
        client.wait_for_ready(timeout=LIMIT)
        said: list[str] = []
        client.execute_interactive(
            "import os; print(os.getpid())",
            output_hook=lambda message, said=said: said.append(message["content"].get("text", "")),
            timeout=LIMIT,
        )
        client.stop_channels()
        pids.append(int("".join(said)))
    idle, works = (
        replace(card, used=GIB, util=work, processes=((pid, GIB, work),))
        for card, pid, work in zip(CARDS, pids, (0, 90), strict=False)
    )
    Driver((idle, works, *CARDS[2:])).write(tmp_path / "machine")
    until(lambda: len(server.ask("api/kernels")[1]) < 2)
    assert [one["id"] for one in server.ask("api/kernels")[1]] == [kernels[1]]
    assert [one["path"] for one in server.ask("api/sessions")[1]] == ["works.ipynb"]
    lines = [line for line in server.log.splitlines() if f"kernel {kernels[0]}, idle.ipynb, idle for" in line]
    assert [("will be shut down in" in line, "shutting down" in line) for line in lines] == [
        (True, False),
        (False, True),
    ]
    assert server.ask("gpu_magic/culling")[1]["ended"] == {kernels[0]: "idle.ipynb"}
    assert server.ask("gpu_magic/culling", {"kernel": kernels[0]})[0] == 404
    assert server.ask("gpu_magic/culling", ["x"])[0] == 404
    assert server.ask("gpu_magic/culling", {"kernel": kernels[1]})[0] == 204
    assert f"kernel {kernels[1]} is kept for 4 s" in server.log
