"""Who gets an answer from the extension in a real Jupyter server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.browser.lab import free_port
from tests.conftest import LIMIT, ROOT
from tests.machine import clean_environment
from tests.processes import until

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


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Return a way to ask a server whose users may see all but its kernels; it returns the status."""
    (tmp_path / "no_kernels.py").write_text(AUTHORIZER)
    (tmp_path / "config").mkdir()
    settings = {
        "ServerApp": {
            "jpserver_extensions": {"gpu_magic": True},
            "authorizer_class": "no_kernels.NoKernels",
            "allow_root": True,
            "open_browser": False,
            "port": (port := free_port()),
            "root_dir": str(tmp_path),
        },
        "IdentityProvider": {"token": TOKEN},
    }
    (tmp_path / "config" / "jupyter_server_config.json").write_text(json.dumps(settings))
    variables = {
        "HOME": str(tmp_path),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "GPU_MAGIC_SIMULATE": "1xT4",
    }

    def ask(path: str) -> int:
        headers = {"Authorization": f"token {TOKEN}"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as reply:
                status: int = reply.status
        except urllib.error.HTTPError as error:
            status = error.code
        return status

    def is_there() -> bool:
        with suppress(OSError):
            return bool(ask("api"))
        assert server.poll() is None, (tmp_path / "log").read_text()
        return False

    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "jupyter_server"],
            env=clean_environment("JUPYTER") | variables,
            stdout=log,
            stderr=log,
        ) as server,
    ):
        until(is_there)
        yield ask
        server.kill()


def test_who_may_not_see_the_kernels_does_not_see_their_gpus(asked: Callable[[str], int]) -> None:
    paths = "api/contents", "api/kernels", "gpu_magic/gpus"
    assert [asked(path) for path in paths] == [200, 403, 403]
