"""What the Jupyter server's extension says of the machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml
import pytest
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_server.services.kernels.kernelmanager import ServerKernelManager

from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.devices.simulated.machine import SimulatedProcess
from gpu_magic.server.reading import Kernel, Reading, seconds_since_cell
from gpu_magic.server.reading import kernels_of as kernels_of_server
from gpu_magic.testing import simulate
from tests.claims.holders import stranger
from tests.conftest import LIMIT, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

MINE = os.getpid()
KERNEL = Kernel("the-kernel", 28_800)  # its last cell has ended eight hours ago


@pytest.fixture
def reading() -> Iterator[Reading]:
    made = Reading()
    yield made
    made.reader.close()


def users(answer: dict[str, Any]) -> list[list[str]]:
    return [gpu["users"] for gpu in answer["gpus"]]


def kernels_of(gpu: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return some figures of the kernel on a GPU: its memory, unless others are named."""
    found = gpu["kernels"].get("the-kernel", {})
    return {name: found[name] for name in names or ["memory"] if name in found}


def test_it_says_what_the_table_says(reading: Reading) -> None:
    with simulate("2xA100-80GB+1xA100-80GB(3g.40gb,4g.40gb)") as machine:
        machine.gpus[0].run("train.py", owner="maria", memory=20 << 30, work=90)
        answer = reading.read({})
        assert answer["simulated"] == machine.profile
        first, second, split, part, _ = answer["gpus"]
        assert first["users"] == ["maria: train.py, 20.0\u00a0GiB"]
        assert (first["label"], first["typed"], first["is_free"]) == ("GPU 0", "0", False)
        assert first["total"] == 80 << 30
        assert second["is_free"]
        assert split["is_split"]
        assert (part["label"], part["typed"]) == ("MIG instance 2:0", "2:0")
        assert part["utilization"] is None


@pytest.fixture
def worker() -> Iterator[int]:
    """Return the number of a child process of this one, which is a kernel and the server at once here."""
    child = [sys.executable, "-c", "import sys; print('on', flush=True); sys.stdin.read()"]
    with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


def test_a_kernel_has_what_it_and_its_processes_use(reading: Reading, worker: int) -> None:
    """The names are as of any other of this user's processes."""
    with simulate("2xA100-80GB") as machine:
        for pid in (MINE, worker):
            machine.gpus[1].run("train.py", "maria", 3 << 30, pid=pid, is_same_user=True)
        answer = reading.read({MINE: KERNEL})
        assert [kernels_of(gpu) for gpu in answer["gpus"]] == [{}, {"memory": 6 << 30}]
        assert all(line.startswith("you: ") for line in users(answer)[1])
        machine.gpus[1].run("another", "maria", None, pid=worker, is_same_user=True)
        assert kernels_of(reading.read({MINE: KERNEL})["gpus"][1]) == {"memory": None}


def test_a_kernel_that_trains_in_a_child_is_at_work(reading: Reading, worker: int) -> None:
    with simulate("2xA100-80GB", clock=lambda: 0.0) as machine:
        child = machine.gpus[1].run("train.py", "maria", 3 << 30, pid=worker, is_same_user=True, work=90)
        assert kernels_of(reading.read({MINE: KERNEL})["gpus"][1], "idle", "is_working") == {
            "idle": 0,
            "is_working": True,
        }
        child.work = 0
        rests = kernels_of(reading.read({MINE: KERNEL})["gpus"][1], "idle", "is_working")
        assert rests["is_working"] is False
        assert rests["idle"] < KERNEL.idle  # since that work, and not since its last cell


def test_a_kernel_that_rests_has_been_idle_since_its_last_cell(reading: Reading, worker: int) -> None:
    with simulate("1xA100-80GB", clock=lambda: 0.0) as machine:
        machine.gpus[0].run("train.py", "maria", 3 << 30, pid=worker, is_same_user=True)

        def idle(*kernel: Any) -> Any:
            return kernels_of(reading.read({MINE: Kernel("the-kernel", *kernel)})["gpus"][0], "idle")["idle"]

        assert [idle(28_800), idle(0), idle(UNKNOWN)] == [28_800, 0, None]
        machine.gpus[0].run("train.py", "tom", 3 << 30, work=90)
        machine.gpus[0].fail("nvmlDeviceGetProcessUtilization", pynvml.NVML_ERROR_NOT_SUPPORTED)
        assert idle(28_800) is None  # one of both works


def test_a_claim_tells_of_a_kernel_s_cells(reading: Reading) -> None:
    """The server also counts the messages of a panel as activity, and does not know of tasks in the background."""
    with simulate("1xA100-80GB", clock=lambda: 0.0) as machine, stranger() as kernel:
        kernel.run("globals().update(kernel=Claims(is_at_work=lambda: True))")
        kernel.run(f"kernel.hold([{machine.gpus[0].uuid!r}])")
        (gpu,) = reading.read({kernel.pid: KERNEL})["gpus"]
        assert gpu["kernels"] == {
            "the-kernel": {"memory": 0, "is_working": False, "is_parked": False, "idle": 0}
        }
        kernel.run("kernel.release()")
        kernel.run("globals().update(parked=Claims(is_parked=lambda: True))")
        kernel.run(f"parked.hold([{machine.gpus[0].uuid!r}])")
        (gpu,) = reading.read({kernel.pid: KERNEL})["gpus"]
        assert kernels_of(gpu, "memory", "is_parked") == {"memory": 0, "is_parked": True}


def test_a_kernel_has_the_name_that_its_notebook_has_at_the_server_now(reading: Reading) -> None:
    with simulate("1xT4") as machine:
        machine.gpus[0].run(
            "ipykernel", "maria", 2 << 30, pid=4711, is_same_user=True, notebook="work/old.ipynb"
        )
        answer = reading.read({4711: KERNEL._replace(notebook="work/new-jvsc-2f6a-99b1.ipynb")})
    assert users(answer) == [["you: new.ipynb, 2.0\u00a0GiB, idle\u00a08\u00a0h"]]


def test_in_a_container_a_process_with_a_kernel_s_number_is_not_the_kernel(reading: Reading) -> None:
    """The driver gives the host's numbers there, so what a kernel with a claim uses is unknown."""
    with simulate("2xA100-80GB", clock=lambda: 0.0) as machine, stranger() as kernel:
        for gpu in machine.gpus:
            gpu.run("", UNKNOWN, 31 << 30, pid=kernel.pid, work=90)
        kernel.run(f"claims.hold([{machine.gpus[1].uuid!r}])")
        answer = reading.read({kernel.pid: KERNEL})
        assert [gpu["kernels"] for gpu in answer["gpus"]] == [
            {},
            {"the-kernel": {"memory": None, "is_working": None, "is_parked": False, "idle": None}},
        ]
        machine.gpus[1].processes[0].work = 0
        works = kernels_of(reading.read({kernel.pid: KERNEL})["gpus"][1], "idle", "is_working")
        assert works == {"idle": 28_800, "is_working": False}


def test_when_a_kernel_that_is_being_made_last_ran_a_cell_is_unknown() -> None:
    """Its manager has no time of activity yet, and raises an error if it is asked for one."""
    assert seconds_since_cell(ServerKernelManager()) is UNKNOWN


@pytest.mark.parametrize(
    ("state", "seconds"), [("idle", 7200), ("busy", 0), ("starting", UNKNOWN), ("dead", UNKNOWN)]
)
def test_a_cell_that_runs_for_long_is_no_rest(state: str, seconds: int | Unknown) -> None:
    last = datetime.now(UTC) - timedelta(hours=2)
    found = seconds_since_cell(ServerKernelManager(execution_state=state, last_activity=last))
    if seconds is UNKNOWN or found is UNKNOWN:
        assert found is seconds
    else:
        assert 0 <= found - seconds <= LIMIT


def test_on_a_mig_instance_too_a_kernel_is_named_as_any_process(reading: Reading) -> None:
    with simulate("1xA100-80GB(3g.40gb)") as machine:
        machine.gpus[0].mig[0].processes.append(
            SimulatedProcess(MINE, "train.py", "maria", 3 << 30, is_same_user=True)
        )
        part = reading.read({MINE: KERNEL})["gpus"][1]
    assert part["users"][0].startswith("you: ")


def test_pages_that_ask_at_once_have_one_reading(reading: Reading) -> None:
    async def ask() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(reading.of({}) for _ in range(8))))

    with simulate("1xT4"), ThreadPoolExecutor(1) as pool:  # a loop can run in this thread: Playwright's
        first, *others = pool.submit(lambda: asyncio.run(ask())).result()
    assert first["gpus"][0]["name"] == "Tesla T4"
    assert all(other is first for other in others)


def test_without_a_driver_it_says_why(reading: Reading) -> None:
    with simulate("0xT4"):
        answer = reading.read({})
    assert answer["gpus"] == []
    assert answer["problem"]


def test_a_machine_that_can_not_be_simulated_is_a_problem_as_any_other(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "8xNothing")
    answer = reading.read({})
    assert answer["gpus"] == []
    assert "8xNothing" in answer["problem"]


@pytest.fixture
def sessions() -> Any:
    """Return what lists one kernel in two notebooks, as after "Use kernel from other notebook"."""

    class Sessions:
        async def list_sessions(self) -> list[dict[str, Any]]:
            return [
                {"kernel": {"id": "k"}, "path": path, "type": "notebook"} for path in ("a.ipynb", "b.ipynb")
            ]

    return Sessions()


class Manager(ServerKernelManager):
    """A manager of one kernel, which is the kernels' manager too."""

    def list_kernel_ids(self) -> list[str]:
        return ["k"]

    def get_kernel(self, _: str) -> Manager:
        return self


@pytest.mark.parametrize(
    ("provisioner", "pid", "found"),
    [
        (LocalProvisioner, 4711, {4711: Kernel("k", UNKNOWN, "a.ipynb")}),
        (LocalProvisioner, None, {}),
        (LocalProvisioner, 1, {}),
        (SimpleNamespace, 4711, {}),  # its number on another machine
    ],
)
def test_only_a_process_of_this_machine_is_a_kernel(
    sessions: Any, provisioner: Any, pid: int | None, found: dict[int, Kernel]
) -> None:
    manager = Manager()
    manager.provisioner = provisioner()
    manager.provisioner.pid = pid
    assert asyncio.run(kernels_of_server(manager, sessions)) == found


def test_the_time_in_which_the_machine_sleeps_counts() -> None:
    """So that it is a gap between two looks. In a namespace of its own, the machine has slept before."""
    slept = ["unshare", "--map-root-user", "--time", "--boottime", "100000"]
    if shutil.which("unshare") is None or subprocess.run([*slept, "true"], check=False).returncode:
        pytest.skip("needs util-linux and a kernel with namespaces of time")
    code = (
        "import time; from gpu_magic.devices.idle import seconds_now; print(seconds_now() - time.monotonic())"
    )
    said = subprocess.run([*slept, sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)
    assert float(said.stdout) > 99_000
