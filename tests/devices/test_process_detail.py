"""What is told of a process that somebody looks at closely: of real processes, from the real /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from gpu_magic.devices.processes import UNKNOWN_PROCESS, ProcessTable, read_process
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.testing import simulate
from tests.machine import IN_CONTAINER
from tests.processes import another_users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAITS = "print(1, flush=True); import time; time.sleep(600)"


@pytest.fixture
def start() -> Iterator[Callable[..., int]]:
    """Return a way to start a process; it ends with the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def run(code: str = WAITS, **variables: str) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ | variables
        )
        processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def test_it_was_started_when_psutil_says(start: Callable[..., int]) -> None:
    pid = start()
    detail = read_process(pid)
    assert isinstance(detail.started, int)
    ticks = os.sysconf("SC_CLK_TCK")
    assert psutil.boot_time() + detail.started / ticks == pytest.approx(
        psutil.Process(pid).create_time(), abs=2
    )


def test_a_process_of_ones_own_has_its_notebook(start: Callable[..., int]) -> None:
    detail = read_process(start(JPY_SESSION_NAME="work/train ü.ipynb", XJPY_SESSION_NAME="no"))
    assert (detail.is_own, detail.notebook) == (True, "work/train ü.ipynb")


def test_a_process_that_has_ended_is_unknown_also_before_its_parent_knows() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert read_process(process.pid).started is UNKNOWN
    process.wait()
    assert read_process(process.pid) == UNKNOWN_PROCESS


def test_a_process_of_another_user_is_not_ones_own() -> None:
    with another_users(JPY_SESSION_NAME="x") as (pid, _):
        detail = read_process(pid)
    assert detail.started
    assert (detail.is_own, detail.notebook) == (False, "")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_process_that_somebody_else_has_started_with_our_rights_is_not_ones_own() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", f"import os; os.setresuid(65534, 0, 0); {WAITS}"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        is_own = read_process(process.pid).is_own
        process.kill()
    assert not is_own


def test_in_a_container_nothing_is_told() -> None:
    detail = ProcessTable().look_up(os.getpid())
    assert (detail == UNKNOWN_PROCESS) is IN_CONTAINER


def test_a_simulated_process_is_not_the_one_with_its_number_in_proc() -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("train.py", "maria", 1 << 30, pid=os.getppid()).age = 60
        detail = machine.look_up(os.getppid())
    assert (detail.is_own, detail.age) == (False, 60)
