"""`%gpu_ps` as typed, and `my_processes`, in an IPython shell over a simulated machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pynvml
import pytest
from IPython.core.completer import provisionalcompleter

import gpu_magic
from gpu_magic.devices.model import UNKNOWN, Gpu, GpuProcess, GpuStatus
from gpu_magic.devices.processes import read_process, start_of
from gpu_magic.errors import ProcessError
from gpu_magic.processes.processes import OwnProcess, OwnProcesses, next_step
from gpu_magic.testing import Machine, simulate
from tests.claims.holders import holder
from tests.conftest import LIMIT
from tests.machine import environment
from tests.processes import DEAF, running, sees_processes, until, using

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from tests.conftest import Fresh, Typed


@pytest.fixture
def machine(machine: Machine) -> Machine:
    """Return a machine with a kernel of one's own on GPU 1, and a process of another user on GPU 0."""
    machine.gpus[0].run("train.py", "tom", 1 << 30)
    run_own(machine, "/home/maria/1/a.ipynb", age=60, pid=4001)
    return machine


def run_own(machine: Machine, notebook: str, name: str = "ipykernel", **more: int) -> None:
    machine.gpus[1].run(name, "maria", 1 << 30, is_same_user=True, notebook=notebook, **more)


def test_what_this_process_claims_on_a_simulated_machine_is_listed_as_its_own(fresh: Fresh) -> None:
    code = "import gpu_magic; gpu_magic.choose(1); print([one.what for one in gpu_magic.my_processes()])"
    assert fresh(code, GPU_MAGIC_SIMULATE="2xT4") == "['this kernel']\n"


def test_it_lists_ones_own_processes(machine: Machine, typed: Typed) -> None:
    run_own(machine, "", "nvidia-cuda-mps-server")  # it serves others
    assert typed("%gpu_ps").text.strip().split("\n") == [
        "SIMULATED machine (4xA100-80GB): these GPUs do not exist",
        "Process  PID   GPUs              Age    What it is",
        "a.ipynb  4001  1.0 GiB on GPU 1  1 min  another kernel",
    ]
    (own,) = gpu_magic.my_processes()
    found = own.pid, own.name, own.notebook, own.age, [*own.memory.values()]
    assert found == (4001, "a.ipynb", "/home/maria/1/a.ipynb", 60, [1 << 30])


def test_it_says_who_is_idle() -> None:
    own = OwnProcess(11, "a.ipynb", "another kernel", "", {Gpu(3): 21 << 30}, "", 5, 36_000, 32_400)
    shown = repr(OwnProcesses([own], [], "")).split("\n")
    assert re.split(" {2,}", shown[-1]) == [
        "a.ipynb",
        "11",
        "21.0 GiB on GPU 3",
        "10 h, idle 9 h",
        "another kernel",
    ]


def test_what_has_ended_is_not_offered_to_be_ended() -> None:
    """Its parent has not asked for it yet; what is known of a process is kept for as long."""
    with subprocess.Popen(["sleep", "600"]) as child:
        process = read_process(child.pid)
        assert next_step(process) == "end"
        child.kill()
        until(lambda: start_of(child.pid) is UNKNOWN)
        assert next_step(process) == ""


def left_over(pid: int, name: str = "worker of train.ipynb") -> OwnProcess:
    started = start_of(os.getpid())
    return OwnProcess(
        pid, name, "", "", {Gpu(3): 21 << 30}, "/home/maria/train.ipynb", started, 5, is_left_over=True
    )


def test_the_workers_that_a_kernel_has_left_are_found_together() -> None:
    kernel = OwnProcess(9, "train.ipynb", "another kernel", "", {}, "/home/tom/train.ipynb", 1, 1)
    workers = [left_over(11), left_over(12)]
    own = OwnProcesses([OwnProcess(8, "a.py", "", "", {Gpu(0): 1}, "", 1, 1), *workers], [], "")
    assert own.find_all("train.ipynb") == own.find_all("worker of train.ipynb") == workers
    assert repr(own).startswith("To end each worker of train.ipynb: %gpu_ps end worker of train.ipynb\n")
    assert own.find_all(11) == [workers[0]]
    alive = workers[0]._replace(pid=13, is_left_over=False)  # of the same name
    assert repr(OwnProcesses([*workers, alive], [], "")).startswith(
        "To end worker of train.ipynb: %gpu_ps end 11\n"
    )
    with pytest.raises(ProcessError, match=r"train\.ipynb could be 11 or 12"):
        own.find("train.ipynb")
    assert OwnProcesses([kernel, *workers], [], "").find_all("train.ipynb") == [kernel]


def test_a_process_that_the_driver_still_lists_is_explained() -> None:
    status = GpuStatus(processes=(GpuProcess(4711, memory=32 << 30, has_ended=True),))
    own = OwnProcesses([], [Gpu(1, status=status)], "")
    said = "Process 4711 has ended, but the driver still lists 32.0 GiB of it on GPU 1."
    assert repr(own).strip().startswith(f"! {said} %gpu_doctor shows")
    with pytest.raises(ProcessError, match=said):
        own.find_all("4711")


def test_gpus_whose_processes_are_not_listed_are_named(shell: InteractiveShell) -> None:
    with simulate("4xA100-80GB") as machine:
        assert repr(gpu_magic.my_processes()).endswith("None of your processes uses or claims a GPU.")
        machine.gpus[3].fail("nvmlDeviceGetComputeRunningProcesses", pynvml.NVML_ERROR_NOT_SUPPORTED)
        title, *lines = repr(gpu_magic.my_processes()).split("\n")
    assert "None" not in title
    assert lines == ["! The processes on GPU 3 are unknown. On the other GPUs none is yours."]


def test_memory_that_is_unknown_and_instances_of_mig_are_shown_as_such(shell: InteractiveShell) -> None:
    with simulate("4xA100-80GB") as machine:
        machine.gpus[2].split("3g.40gb", "1g.10gb")
        process = machine.gpus[2].run("a.py", "maria", None, is_same_user=True)
        machine.gpus[2].mig[1].processes.append(process)
        (own,) = gpu_magic.my_processes()
    assert own.places() == ["? on MIG instance 2:1"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%gpu_ps 4001", "%gpu_ps 4001 is not understood. Try %gpu_ps end 4001"),
        ("%gpu_ps kill 4007", "%gpu_ps kill 4007 is not understood. Try %gpu_ps end 4007"),
        ("%gpu_ps --end 4007", "There is no --end. Try %gpu_ps end 4007"),
        ("%gpu_ps end", "%gpu_ps end is not understood. Try %gpu_ps end 4001"),
        ("%gpu_ps --yes", "%gpu_ps --yes is not understood. Try %gpu_ps end 4001 --yes"),
        ("%gpu_ps end 4711", "You have no process 4711 on a GPU. Yours: 4001 (1/a.ipynb), 4002 (2/a.ipynb),"),
        ("%gpu_ps end a.ipynb", "You have no process a.ipynb on a GPU. Yours: 4001 (1/a.ipynb), "),
        ("%gpu_ps end b.py --yes", "b.py could be 4003 or 4004."),
        ("%gpu_ps --yes end 2/a.ipynb", "Process 4002 cannot be ended: the GPUs here are SIMULATED."),
    ],
)
def test_what_can_not_be_done_gets_one_line(machine: Machine, typed: Typed, line: str, says: str) -> None:
    run_own(machine, "/home/maria/2/a.ipynb", pid=4002)
    run_own(machine, "", "b.py", pid=4003)
    run_own(machine, "", "b.py", pid=4004)
    said = typed(line).text.strip()
    assert said.startswith(f"UsageError: {says}")
    assert "\n" not in said


def test_tab_offers_end_and_what_can_be_ended(
    machine: Machine, typed: Typed, shell: InteractiveShell
) -> None:
    run_own(machine, "", pid=os.getpid())

    def offered(line: str) -> list[str]:
        with provisionalcompleter():
            return [one.text for one in shell.Completer.completions(line, len(line))]

    assert offered("%gpu_ps ") == ["end"]
    assert offered("%gpu_ps end ") == ["4001", "a.ipynb"]
    assert offered("%gpu_ps end a.ipynb --") == ["--kill", "--yes"]
    assert not {"--mine", "--end", "--kill", "--yes"} & set(offered("%gpus --"))


def test_what_other_notebooks_only_claim_is_listed(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", str(tmp_path / "claims"))
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "8xA100-80GB clock=0")
    uuids = [str(gpu.uuid) for gpu in gpu_magic.gpus()]
    with holder(uuids[2], uuids[4], JPY_SESSION_NAME="/home/maria/b.ipynb") as pid:
        rows = [" ".join(line.split()) for line in typed("%gpu_ps").text.strip().split("\n")]
        assert typed("%gpus").text.strip().count("claimed by you: b.ipynb, since ") == 2
    at = rows.index(f"b.ipynb {pid} a claim on GPU 2 another process")
    assert rows[at + 1] == "a claim on GPU 4"
    assert "b.ipynb" not in typed("%gpu_ps").text.strip()
    typed("%unload_ext gpu_magic")


@sees_processes
def test_another_term_does_not_put_off_the_kill(fresh: Fresh, native: Path, tmp_path: Path) -> None:
    code = """
        import sys, time
        import gpu_magic
        from gpu_magic.devices.processes import read_process
        from gpu_magic.processes.processes import next_step, send
        (own,) = gpu_magic.my_processes()
        def step():
            return next_step(read_process(own.pid))
        def ask():
            send(own.pid, own.started, kill=False)
            return step()
        ask()
        while step() != "kill":
            time.sleep(0.05)
        print(ask())
        gpu_magic.end_process(own, kill=True)
    """
    with running(DEAF, tmp_path / "deaf.py") as process:
        using(process.pid).write(tmp_path / "machine")
        assert fresh(code, **environment(native, tmp_path / "machine")) == "kill\n"
        assert process.wait(LIMIT) == -signal.SIGKILL
