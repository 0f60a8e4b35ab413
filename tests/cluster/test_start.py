"""How a cluster of this process starts, on a machine on which other programs take ports."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import ipyparallel
import psutil
import pytest
from traitlets.config import Config

import gpu_magic
from gpu_magic.testing import simulate
from tests.processes import until

# As a controller ends that finds a port of its schedulers taken, once it has told where it can be reached.
ENDS = """
import os, sys
if "ipyparallel.controller" in sys.orig_argv:
    change = os.chmod
    def chmod(file, *args, **options):
        change(file, *args, **options)
        if str(file).endswith("-engine.json"):
            print("Address already in use", file=sys.stderr, flush=True)
            os._exit(1)
    os.chmod = chmod
"""


def test_a_controller_that_ends_before_it_answers_is_one_line_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(ENDS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = psutil.Process().children(recursive=True)
    with simulate("4xA100-80GB"), pytest.raises(gpu_magic.ClusterError) as caught:
        gpu_magic.cluster(count=1)
    says = "The controller failed with exit code 1 while starting. Address already in use"
    assert str(caught.value) == says
    assert psutil.Process().children(recursive=True) == before
    assert not list(tmp_path.glob("gpu_magic-*"))


def test_the_ports_of_a_controller_are_given_to_no_other_program(cluster: gpu_magic.Cluster) -> None:
    """Ports of which Linux gives one to a program, and those of 127.0.0.1, are wanted by other programs too."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    host, _, port = cluster.client._config["registration"].rpartition(":")
    assert host.startswith("tcp://127.")
    assert host != "tcp://127.0.0.1"
    (controller,) = [
        process
        for process in psutil.Process().children(recursive=True)
        if process.cmdline()[1:4] == ["-P", "-m", "ipyparallel.controller"]
        and process.parent().cmdline()[1:4] != process.cmdline()[1:4]
    ]
    listens = [
        one.laddr.port for one in controller.net_connections("tcp") if one.status == psutil.CONN_LISTEN
    ]
    assert int(port) in listens
    assert not [one for one in listens if first <= one <= last]


def test_an_engine_and_what_it_has_started_end_with_their_guardian(cluster: gpu_magic.Cluster) -> None:
    def start() -> tuple[int, int, int]:
        import os
        import subprocess

        return os.getppid(), os.getpid(), subprocess.Popen(["sleep", "600"], start_new_session=True).pid

    guardian, *others = cluster.client[0].apply_sync(start)
    os.kill(guardian, signal.SIGKILL)
    until(lambda: not any(map(psutil.pid_exists, others)))
    assert [engine.number for engine in cluster.restart([0])] == [0]
    assert cluster.client[0].apply_sync(os.getppid) != guardian


def test_each_end_of_an_engine_that_is_restarted_is_told(
    cluster: gpu_magic.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for _ in range(2):
        os.kill(cluster.client[1].apply_sync(os.getpid), signal.SIGKILL)
        until(lambda: cluster.ended)
        capsys.readouterr()
        cluster.report_ends()
        told.append(capsys.readouterr().err.partition("\n")[0])
        assert [engine.number for engine in cluster.restart()] == [1]
    assert told == ["Engine 1 (GPU 0): ended by SIGKILL. To restart it: %gpu_cluster restart 1"] * 2


def test_ipyparallels_own_cluster_starts_engines_by_name(tmp_path: Path) -> None:
    before = psutil.Process().children(recursive=True)
    with (
        simulate("3xA100-80GB"),
        ipyparallel.Cluster(
            n=2, controller="gpu", engines="gpu", profile_dir=str(tmp_path), log_level=logging.CRITICAL
        ) as client,
    ):
        for name, values in {"CUDA_VISIBLE_DEVICES": ["0", "1"], "RANK": ["0", "1"]}.items():
            assert client[:].apply_sync(os.getenv, name) == values
    assert psutil.Process().children(recursive=True) == before
    assert tmp_path.exists()  # the guardians have not removed the user's profile


def test_ipyparallels_own_cluster_has_an_engine_for_each_gpu_and_refuses_more(tmp_path: Path) -> None:
    options: dict[str, Any] = {"engines": "gpu", "profile_dir": str(tmp_path), "log_level": logging.CRITICAL}
    with simulate("1xA100-80GB"):
        config = Config(GpuEngineSetLauncher={"gpus": "all"})
        with ipyparallel.Cluster(config=config, load_profile=False, **options) as client:
            assert client[:].apply_sync(os.getenv, "WORLD_SIZE") == ["1"]
        more = ipyparallel.Cluster(n=2, controller="gpu", **options)
        with pytest.raises(gpu_magic.LaunchError, match="does not fit 1 GPU"):
            more.start_cluster_sync()
        more.stop_cluster_sync()
