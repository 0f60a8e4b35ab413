"""What `gpu-magic ps` says of the processes of all users: who is known to hold GPU memory idle, and who may."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from gpu_magic.command_line import main
from gpu_magic.devices.model import UNKNOWN
from gpu_magic.process.session import Session, current, use_session
from gpu_magic.processes.idle import Holders, find_idle
from tests.claims.holders import Stranger, stranger
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.testing import Machine

GIB = 1 << 30
HOUR = 3600
CLAIMS = "globals().update(cell=False); globals().update(kernel=Claims(is_at_work=lambda: cell))"


@pytest.fixture
def machine(machine: Machine) -> Iterator[Machine]:
    """Return the simulated machine, for a session that sees the claims of other processes."""
    simulated = use_session(Session())
    yield machine
    current().reader.close()
    use_session(simulated)


@pytest.fixture
def kernel(machine: Machine) -> Iterator[Stranger]:
    """Return a kernel of maria that has chosen GPU 0 and has memory there, as a child of it has on GPU 1."""
    with stranger(JPY_SESSION_NAME="/home/maria/eval.ipynb") as one:
        one.run(CLAIMS)
        one.run(f"kernel.hold([{machine.gpus[0].uuid!r}])")
        child = one.run("__import__('subprocess').Popen(['sleep', '600']).pid")
        machine.gpus[0].run("ipykernel", "maria", 2 * GIB, pid=one.pid, age=9 * HOUR)
        machine.gpus[1].run("worker.py", "maria", 3 * GIB, pid=child, age=8 * HOUR)
        yield one
        one.run(f"os.kill({child}, 9)")


def rested(at_least: float = 1) -> Holders:
    """Look until the kernel has rested for a second."""
    until(lambda: find_idle(current(), at_least).idle)
    return find_idle(current(), at_least)


def test_a_kernel_that_chose_gpus_is_listed_with_all_that_it_holds(
    machine: Machine, kernel: Stranger
) -> None:
    found = rested()
    (one,) = found.idle
    assert (one.pid, one.owner, one.name, one.notebook) == (kernel.pid, "maria", "eval.ipynb", "eval.ipynb")
    assert {device.label: size for device, size in one.memory.items()} == {"GPU 0": 2 * GIB, "GPU 1": 3 * GIB}
    assert found.unknown == []
    assert find_idle(current(), HOUR).idle == []


@pytest.mark.parametrize("work", ["cell", "child", "kernel", "unknown"])
def test_a_kernel_that_works_or_may_work_is_not_idle(machine: Machine, kernel: Stranger, work: str) -> None:
    assert rested().idle
    if work == "cell":
        kernel.run("globals().update(cell=True)")
        kernel.run("kernel.publish_activity()")
    elif work == "unknown":
        machine.gpus[1].run("train.py", "tom", GIB, work=90, age=60)
        machine.gpus[1].fail("nvmlDeviceGetProcessUtilization", pynvml.NVML_ERROR_NOT_SUPPORTED)
    else:
        machine.gpus[work == "child"].processes[0].work = 50
    until(lambda: not find_idle(current(), 1).idle)  # the driver tells of work ten times a second
    may_be = {one.pid for one in find_idle(current(), 1).unknown}
    assert (kernel.pid in may_be) == (work == "unknown")


def test_of_a_process_without_a_claim_nothing_is_known_before_the_run(machine: Machine) -> None:
    machine.gpus[1].run("works.py", "tom", GIB, work=90, age=9 * HOUR)
    machine.gpus[2].run("new.py", "tom", GIB, age=60)
    machine.gpus[2].run("old.py", "tom", GIB, age=9 * HOUR)
    machine.gpus[2].run("ipykernel", "maria", None, age=9 * HOUR)
    machine.gpus[3].run("", UNKNOWN, GIB)  # as in a container
    names = ["old.py", "ipykernel", f"process {machine.last_pid}"]
    until(lambda: [one.name for one in find_idle(current(), 4 * HOUR).unknown] == names)
    found = find_idle(current(), 4 * HOUR)
    assert found.idle == []
    until(lambda: find_idle(current(), 4 * HOUR).others == 2)  # the driver tells of work ten times a second
    one = str(found._replace(unknown=[], others=1))  # an empty list alone reads as a free machine
    assert one.endswith(" for 4 h. 1 process has used GPUs since then: gpu-magic shows all.")
    assert str(found._replace(unknown=found.unknown[-3:], others=2)).endswith(
        "\nNo process is known to hold GPU memory idle for 4 h. "
        "2 processes have used GPUs since then: gpu-magic shows all. "
        "3 processes hold GPU memory, and may be idle: --json has the facts."
    )


def test_the_table_and_the_json(
    machine: Machine, kernel: Stranger, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.gpus[2].run("old.py", "tom\x1b[2J", GIB, age=9 * HOUR)
    rested()
    assert main(["ps", "--idle", "1s"]) == 0
    _, heading, first, second, note = capsys.readouterr().out.splitlines()
    assert re.split(" {2,}", heading) == ["User", "PID", "Process", "Memory", "Idle"]
    assert re.split(" {2,}", first)[:4] == ["maria", str(kernel.pid), "eval.ipynb", "2.0 GiB on GPU 0"]
    assert re.search(r"  under a minute, since \d\d:\d\d$", first)
    assert second.split("  ")[-1].strip() == "3.0 GiB on GPU 1"
    assert note == "1 more process holds GPU memory, and may be idle: --json has the facts."
    assert main(["ps", "--json", "--idle=1s"]) == 0
    said = json.loads(capsys.readouterr().out)
    (idle,), (unknown,) = said["idle"], said["unknown"]
    assert abs(idle.pop("since") + idle["idle"] - time.time()) <= 60
    assert idle.pop("idle") >= 1
    gpus: list[dict[str, Any]] = [
        {"label": f"GPU {number}", "uuid": machine.gpus[number].uuid, "memory": size * GIB}
        for number, size in ((0, 2), (1, 3))
    ]
    facts = {"owner": "maria", "age": 9 * HOUR, "name": "eval.ipynb", "notebook": "eval.ipynb", "gpus": gpus}
    assert idle == {"pid": kernel.pid} | facts
    assert (unknown["name"], unknown["idle"], unknown["since"]) == ("old.py", None, None)


def test_nobody_is_said_in_one_line(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "No process is known to hold GPU memory idle for 10 min."
    ]
    assert main(["ps", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"idle": [], "unknown": []}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--idle", "4x"], "4x is not a time. Try 30m, 90s or 1h30m"),
        (["--idle"], "--idle needs a value. Try --idle 4h."),
        (["tom"], "gpu-magic ps takes no tom."),
    ],
)
def test_bad_input_gets_one_line(
    machine: Machine, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert main(["ps", *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.machine("0xT4")
def test_without_a_gpu_it_says_why(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gpu-magic: The NVIDIA driver has no GPU.")
