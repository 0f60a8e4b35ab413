"""What goes to the log: what people change, once, and why something could not be read; nothing where nobody wants it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.devices.machine_reader import MachineReader
from gpu_magic.errors import ChoiceError, CudaInitializedWarning, NotFreeError
from gpu_magic.testing import simulate, start_cuda

if TYPE_CHECKING:
    from gpu_magic.testing import Machine
    from tests.conftest import Fresh


@pytest.fixture(autouse=True)
def debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "gpu_magic")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged since the last call, behind the loggers' names; not where errors were raised."""
    records = [one for one in caplog.records if one.name != "gpu_magic.api"]
    lines = [f"{one.name.removeprefix('gpu_magic.')}: {one.getMessage()}" for one in records]
    caplog.clear()
    return lines


@pytest.mark.usefixtures("machine")
def test_a_choice_is_logged_with_what_is_set(caplog: pytest.LogCaptureFixture) -> None:
    gpu_magic.choose("2,0")
    assert said(caplog) == [
        "process: Chosen: SIMULATED GPU 2 and GPU 0 · CUDA_VISIBLE_DEVICES=2,0 · CUDA_DEVICE_ORDER=PCI_BUS_ID"
    ]
    gpu_magic.choose("none")
    assert said(caplog)[0].startswith("process: Chosen: no GPU · CUDA_VISIBLE_DEVICES=")
    gpu_magic.choose("reset")
    assert said(caplog)[0].startswith("process: Reset · CUDA_VISIBLE_DEVICES not set")
    assert {record.levelno for record in caplog.get_records("call")} <= {logging.INFO}


def test_what_is_forced_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gpu_magic")
    with simulate("4xA100-80GB", mask="0,1"):
        with pytest.raises(ChoiceError) as refused:
            gpu_magic.choose("3")
        assert said(caplog) == [f"process: Not chosen: {refused.value}"]
        gpu_magic.choose("3", force=True)
        (line,) = said(caplog)
        assert line.startswith("process: Chosen: SIMULATED GPU 3")
        assert line.endswith(", with --force")


@pytest.mark.usefixtures("machine")
def test_what_comes_too_late_says_why(caplog: pytest.LogCaptureFixture) -> None:
    gpu_magic.choose("2,0")
    start_cuda()
    said(caplog)
    with pytest.warns(CudaInitializedWarning):
        gpu_magic.choose("1")
    (line,) = said(caplog)
    assert line.startswith(
        "process: Too late for SIMULATED GPU 1: CUDA has started. This process keeps GPU 2"
    )
    gpu_magic.choose("0", in_process=True)
    assert said(caplog) == ["process: Chosen in-process: SIMULATED GPU 0"]


@pytest.mark.usefixtures("machine")
def test_what_is_only_looked_at_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    gpu_magic.gpus()
    gpu_magic.choose("2", dry_run=True)
    with pytest.raises(ChoiceError):
        gpu_magic.choose("9", dry_run=True)
    assert said(caplog) == []


def test_a_wait_is_one_line_however_often_it_looks(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.gpus[1].run("train.py", "maria", 1 << 33)
    looks: list[str] = []
    with pytest.raises(NotFreeError):
        gpu_magic.choose("1", wait=0.3, on_wait=looks.append)
    assert len(looks) > 1
    (line,) = said(caplog)
    assert line.startswith("process: Timed out after 300 ms waiting for SIMULATED GPU 1: ")


def test_a_gpu_that_is_lost_is_logged_once_and_again_when_it_is_lost_again(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    reader = MachineReader()
    lost = "devices: GPU 2 is not answering: the driver reports this GPU as lost"
    for _ in range(2):
        machine.gpus[2].lose()
        for _ in range(3):
            reader.inventory()
        assert said(caplog) == [lost]
        machine.gpus[2].recover()
        reader.inventory()
        assert said(caplog) == []
    reader.close()


@pytest.mark.usefixtures("machine")
def test_a_line_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ChoiceError):
        gpu_magic.choose("auto", model="1\n2026-01-01 root: Chosen: GPU 7\x1b[2J")
    (line,) = said(caplog)
    assert line.isprintable()


@pytest.mark.usefixtures("machine")
def test_what_is_no_request_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ChoiceError):
        gpu_magic.choose("sk-secret-123")
    assert said(caplog) == []


def test_the_place_of_a_line_is_where_it_is_logged(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    gpu_magic.choose("2")
    assert {record.module for record in caplog.records} == {"apply"}
    del machine


def test_nothing_is_shown_unless_somebody_wants_it(fresh: Fresh) -> None:
    shown = fresh(
        """
        import sys
        import gpu_magic
        print("logging" in sys.modules)
        import logging
        sys.stderr = sys.stdout
        gpu_magic.choose("2")
        print(logging.getLogger("gpu_magic").handlers)
        """,
        GPU_MAGIC_SIMULATE="4xA100-80GB",
        GPU_MAGIC_CLAIMS="off",
    )
    assert shown == "False\n[]\n"


@pytest.mark.usefixtures("machine")
def test_the_end_of_a_command_is_logged_before_it_is_told() -> None:
    was_running = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "has ended" in record.getMessage():
                was_running.append(task.is_running)

    listener = Listener()
    log = logging.getLogger("gpu_magic.launch")
    log.addHandler(listener)
    try:
        task = gpu_magic.launch("sleep 0.2", gpus="3,1")
        task.wait()
        assert was_running == [True]
    finally:
        log.removeHandler(listener)


@pytest.mark.usefixtures("machine")
def test_a_command_is_logged_without_its_arguments(caplog: pytest.LogCaptureFixture) -> None:
    task = gpu_magic.launch("true --token secret", gpus="3,1")
    assert task.wait() is not None
    lines = [line for line in said(caplog) if not line.startswith("claims")]
    assert lines == [
        "launch: Started launch on SIMULATED GPU 3 and GPU 1",
        "launch: launch has ended with code 0",
    ]
