"""`%gpu_cluster --profile`, engines that somebody else has started."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.processes import marked, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kernel.conftest import Kernel

# Each starts a controller and engines by ipyparallel itself; tests/cluster has what is decided about them.
pytestmark = pytest.mark.nightly

A100 = "NVIDIA A100-SXM4-80GB"


class Marked:
    """A kernel, and a mark that it and all that it starts carry in their environments."""

    def __init__(self, start_kernel: Callable[..., Kernel]) -> None:
        self.mark = str(uuid4())
        self.kernel = start_kernel(MARK=self.mark)
        assert self.kernel.run("%load_ext gpu_magic").status == "ok"
        self._before = marked(self.mark)

    def started(self) -> set[int]:
        """Return what was started since and still runs."""
        return marked(self.mark) - self._before


@pytest.fixture
def of_mark(start_kernel: Callable[..., Kernel]) -> Iterator[Marked]:
    """Return a kernel with a mark; what a failing test leaves is ended."""
    made = Marked(start_kernel)
    yield made
    for pid in made.started():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def profile(folder: Path, *settings: str) -> str:
    """Make an IPython profile for engines; return its name."""
    place = folder / "ipython" / "profile_there"
    place.mkdir(parents=True)
    lines = ["c = get_config()", "c.Cluster.delay = 0", *settings]
    (place / "ipcluster_config.py").write_text("\n".join(lines))
    return "there"


def test_engines_of_a_profile_divide_the_gpus_and_end_with_stop(of_mark: Marked, tmp_path: Path) -> None:
    kernel = of_mark.kernel
    started = kernel.run(f"%gpu_cluster --profile {profile(tmp_path)} -n 2")
    assert started.said == f"2 engines: 0 = GPU 0 and GPU 1 ({A100}), 1 = GPU 2 and GPU 3 ({A100})\n"
    reply = kernel.run("%%px\nimport os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['RANK'])")
    assert f"[stdout:1 = GPU 2 and GPU 3 ({A100})] 2,3 1\n" in reply.shown
    again = kernel.run("%gpu_cluster restart 1")
    assert "To restart all engines: %gpu_cluster stop, then %gpu_cluster --profile there" in again.refusal
    assert of_mark.started()
    assert kernel.run("%gpu_cluster stop").said == "2 engines ended.\n"
    until(lambda: not of_mark.started())  # ipyparallel's nannies end after their engines


def test_functions_reach_variables_in_the_engines(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0\n%gpu_cluster")
    reply = kernel.run(
        "%%px\nimport gpu_magic, torch\nx = torch.zeros(100)\nprint(gpu_magic.devices_of(x)['cpu'], 'bytes')"
    )
    assert f"[stdout:0 = GPU 2 ({A100})] 400 bytes" in reply.shown
    assert f"[stdout:1 = GPU 0 ({A100})] 400 bytes" in reply.shown


def test_engines_of_somebody_else_are_let_go_of(of_mark: Marked, tmp_path: Path) -> None:
    kernel = of_mark.kernel
    kernel.run(
        "import ipyparallel\n"
        f"theirs = ipyparallel.Cluster(profile={profile(tmp_path)!r}, n=2, log_level=40)\n"
        "client = theirs.start_and_connect_sync()"
    )
    assert kernel.run("import gpu_magic\nengines = gpu_magic.cluster(client)").status == "ok"
    assert kernel.run("%gpu_cluster").text.count("idle") == 2
    stopped = kernel.run("%gpu_cluster stop")
    assert stopped.said == "2 engines released. The program that started them can end them.\n"
    assert kernel.run("print(client.ids)").stdout == "[0, 1]\n"
    assert kernel.run("client.close()\ntheirs.stop_cluster_sync()").status == "ok"


def test_a_controller_that_answers_late_is_waited_for(of_mark: Marked, tmp_path: Path) -> None:
    """As long as `engine_timeout` of the profile says; ipyparallel's client by itself waits for 10 s."""
    program = (
        "import time\n"
        "from ipyparallel.controller.app import IPController as App\n"
        "init = App.init_schedulers\n"
        "App.init_schedulers = lambda self: (time.sleep(12), init(self))\n"
        "App.launch_instance()"
    )
    late = f"c.LocalControllerLauncher.controller_cmd = [{sys.executable!r}, '-c', {program!r}]"
    name = profile(tmp_path, late)
    engines = tmp_path / "ipython" / "profile_there" / "ipengine_config.py"
    engines.write_text("c = get_config()\nc.IPEngine.timeout = 60")
    assert of_mark.kernel.run(f"%gpu_cluster --profile {name} -n 1").said.startswith("1 engine: ")
    assert of_mark.kernel.run("%gpu_cluster stop").said == "1 engine ended.\n"


def test_a_profile_whose_engines_end_at_once_leaves_nothing(of_mark: Marked, tmp_path: Path) -> None:
    program = ["sh", "-c", "echo there is no such partition >&2; exit 1"]
    name = profile(tmp_path, f"c.LocalEngineLauncher.engine_cmd = {program}")
    reply = of_mark.kernel.run(f"%gpu_cluster --profile {name} -n 1")
    assert reply.refusal == "UsageError: The profile there started no engines: there is no such partition."
    assert not reply.stdout
    until(lambda: not of_mark.started())


def test_an_interrupt_while_engines_start_leaves_nothing(of_mark: Marked, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"
    name = profile(tmp_path, f"c.LocalEngineLauncher.engine_cmd = [{sys.executable!r}, '-c', {program!r}]")
    reply = of_mark.kernel.run_and_interrupt(f"%gpu_cluster --profile {name} -n 1", begun.exists)
    assert reply.status == "error"
    until(lambda: not of_mark.started())
    assert of_mark.kernel.run("print(1)").stdout == "1\n"
