"""Engines of somebody else's that cannot be used, and some that end."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest

import gpu_magic
from gpu_magic import ClusterError
from tests.cluster.hosts import on_host, started
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpu_magic import Cluster

pytestmark = pytest.mark.nightly  # a controller each; test_hosts.py and test_division.py have what is decided

A, B = "127.0.0.1", "127.0.0.2"


def test_more_engines_than_gpus_on_a_host_are_refused_in_a_line(
    join: Callable[[Any], Cluster], tmp_path: Path
) -> None:
    with started(tmp_path, on_host(A, "1xT4"), on_host(A, "1xT4")) as client:
        with pytest.raises(ClusterError) as caught:
            join(client)
        assert str(caught.value) == ("127.0.0.1 has 2 engines and only 1 GPU. Each engine needs one.")
        assert client[:].apply_sync(os.getenv, "RANK") == [None, None]


def test_an_engine_without_gpu_magic_is_named_with_its_host(
    join: Callable[[Any], Cluster], tmp_path: Path
) -> None:
    package = tmp_path / "hidden" / "gpu_magic"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'gpu_magic'\")")
    hidden = {"PYTHONPATH": str(package.parent)}
    with started(tmp_path, hidden) as client, pytest.raises(ClusterError) as caught:
        join(client)
    assert str(caught.value) == (
        "gpu_magic does not work in engine 0 (ModuleNotFoundError: No module named 'gpu_magic'). "
        f"Install gpu_magic {gpu_magic.__version__} there."
    )


def test_an_engine_that_dies_is_reported_by_name_gpu_and_host(
    join: Callable[[Any], Cluster], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(tmp_path, on_host(A, "1xT4"), on_host(B, "1xT4")) as client:
        cluster = join(client)
        client.send_signal(signal.SIGKILL, targets=1, block=False)
        until(lambda: cluster.ended)
        says = "Engine 1 (GPU 0 on 127.0.0.2) has ended. Only the program that started the engines can restart them. "
        with pytest.raises(ClusterError, match=f"^{re.escape(says)}To use the others: %%px --targets 0$"):
            cluster.check()
        says = "Engine 1 (GPU 0 on 127.0.0.2): ended. Only the program that started the engines can restart them\n"
        assert capsys.readouterr().err == says
