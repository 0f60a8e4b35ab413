"""The front end that all tests here share, on a machine whose driver libraries are the pretend ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from tests.browser import lab as front_end
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.lab import Lab


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if front_end.find_chromium() is None:
        pytest.fail(front_end.NO_CHROMIUM) if os.environ.get("CI") else pytest.skip(front_end.NO_CHROMIUM)
    with front_end.chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def server(native: Path, tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Lab]:
    """Start the one Jupyter server of this run of the tests."""
    home = tmp_path_factory.mktemp("jupyter")
    Driver(CARDS).write(home / "machine")
    with front_end.start_lab(home, chromium, environment(native, home / "machine")) as lab:
        yield lab


@pytest.fixture(scope="session")
def ipykernel(pytestconfig: pytest.Config) -> Callable[[str], str]:
    """Return a way to have a version of ipykernel: the folder it is in, to stand before all others."""

    def install(version: str) -> str:
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


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note which tests fail."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture
def lab(server: Lab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Return the server, with the machine as it is at first; after the test, no page has complained.

    Tests share a page, each with a notebook of its own and a new kernel. A test that fails takes the page with it.
    """
    server.shares_page = True
    server.change_machine(Driver(CARDS))
    server.complaints.clear()
    server.harmless[:] = front_end.HARMLESS
    yield server
    has_failed = request.node.stash.get(FAILED, False) or bool(server.complaints)
    server.close_pages(keep_shared=not has_failed)
    for kernel in json.loads(server.request("api/kernels")):
        server.request(f"api/kernels/{kernel['id']}", "DELETE")
    for kept in (server.root.parent / "runtime" / "gpu_magic").glob("*"):
        kept.unlink()
    assert not server.complaints, server.complaints
