"""What is told of a process that somebody looks at closely: of real processes, from the real /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from gpu_magic.devices.process_detail import UNKNOWN_DETAIL, read_detail
from gpu_magic.devices.processes import ProcessTable
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
    detail = read_detail(pid)
    assert isinstance(detail.started, int)
    ticks = os.sysconf("SC_CLK_TCK")
    assert psutil.boot_time() + detail.started / ticks == pytest.approx(
        psutil.Process(pid).create_time(), abs=2
    )


def test_a_process_of_ones_own_has_its_notebook(start: Callable[..., int]) -> None:
    detail = read_detail(start(JPY_SESSION_NAME="work/train ü.ipynb", XJPY_SESSION_NAME="no"))
    assert (detail.is_own, detail.notebook) == (True, "work/train ü.ipynb")


def test_a_process_that_has_ended_is_unknown_also_before_its_parent_knows() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert read_detail(process.pid) == UNKNOWN_DETAIL
    process.wait()
    assert read_detail(process.pid) == UNKNOWN_DETAIL


def test_a_process_of_another_user_is_not_ones_own() -> None:
    with another_users(JPY_SESSION_NAME="x") as (pid, _):
        detail = read_detail(pid)
    assert detail.started
    assert (detail.is_own, detail.notebook) == (False, "")


def test_in_a_container_nothing_is_told() -> None:
    detail = ProcessTable().detail(os.getpid())
    assert (detail == UNKNOWN_DETAIL) is IN_CONTAINER


def test_a_simulated_process_is_not_the_one_with_its_number_in_proc() -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("train.py", "maria", 1 << 30, pid=os.getppid()).age = 60
        detail = machine.detail(os.getppid())
    assert (detail.is_own, detail.age) == (False, 60)
