"""What the Jupyter server's extension says of the machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.devices.simulated.machine import SimulatedProcess
from gpu_magic.server.extension import Reading
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

MINE = os.getpid()


@pytest.fixture
def reading() -> Iterator[Reading]:
    made = Reading()
    yield made
    made.reader.close()


def users(answer: dict[str, Any]) -> list[list[str]]:
    return [gpu["users"] for gpu in answer["gpus"]]


def test_it_says_what_the_table_says(reading: Reading) -> None:
    with simulate("2xA100-80GB+1xA100-80GB(3g.40gb,4g.40gb)") as machine:
        machine.gpus[0].run("train.py", owner="maria", memory=20 << 30, work=90)
        answer = reading.read({})
        assert answer["simulated"] == machine.profile
        first, second, split, part, _ = answer["gpus"]
        assert first["users"] == ["maria: train.py, 20.0 GiB"]
        assert (first["label"], first["typed"], first["is_free"]) == ("GPU 0", "0", False)
        assert first["total"] == 80 << 30
        assert second["is_free"]
        assert split["is_split"]
        assert (part["label"], part["typed"]) == ("MIG instance 2:0", "2:0")
        assert part["utilization"] is None


def test_a_kernel_has_what_it_and_its_processes_use(reading: Reading) -> None:
    """Here this process is a kernel, and the server at once: the names are as of any other of this user's processes."""
    child = [sys.executable, "-c", "import sys; print('on', flush=True); sys.stdin.read()"]
    with (
        subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker,
        simulate("2xA100-80GB") as machine,
    ):
        assert worker.stdout is not None
        worker.stdout.readline()
        for pid in (MINE, worker.pid):
            machine.gpus[1].run("train.py", "maria", 3 << 30, pid=pid, is_own=True)
        answer = reading.read({MINE: "the-kernel"})
        assert [gpu["kernels"] for gpu in answer["gpus"]] == [{}, {"the-kernel": 6 << 30}]
        assert all(line.startswith("you: ") for line in users(answer)[1])


def test_on_a_mig_instance_too_a_kernel_is_named_as_any_process(reading: Reading) -> None:
    with simulate("1xA100-80GB(3g.40gb)") as machine:
        machine.gpus[0].mig[0].processes.append(
            SimulatedProcess(MINE, "train.py", "maria", 3 << 30, is_own=True)
        )
        part = reading.read({MINE: "the-kernel"})["gpus"][1]
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
