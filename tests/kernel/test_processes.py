"""`%gpu_ps`: real processes and kernels, and a driver that lists them on a GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.processes import start_of
from tests.claims.holders import stranger
from tests.conftest import LIMIT, ROOT
from tests.machine import CARDS, Driver, environment
from tests.processes import (
    DEAF,
    WAITS,
    another_users,
    missing,
    needs_root,
    running,
    running_again,
    sees_processes,
    until,
    using,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kernel.conftest import Kernel, Reply

pytestmark = sees_processes
# Ends a process after a question that is answered once there is a file.
SLOWLY = """
import gpu_magic, pathlib, time
def go(question):
    pathlib.Path('asked').touch()
    while not pathlib.Path('go').exists(): time.sleep(0.05)
    return True
gpu_magic.end_process({}, confirm=go)
"""


def refusal(reply: Reply) -> str:
    """Return a refusal as one line: IPython shows a UsageError on stderr, and errors of ours as theirs."""
    assert reply.status == "error"
    (line,) = reply.errors or [reply.refusal.removeprefix("UsageError: ")]
    assert "\n" not in line
    return line


def row(reply: Reply, pid: int) -> list[str]:
    """Return what the table says of a process: its name, memory and relation, without its age."""
    (line,) = [line for line in reply.text.split("\n") if f"  {pid}  " in line]
    name, _, memory, _, what = filter(None, map(str.strip, line.split("  ")))
    return [name, memory, what]


def test_each_process_is_listed_as_what_it_is(
    kernel: Kernel, start_kernel: Callable[..., Kernel], tmp_path: Path
) -> None:
    notebook = start_kernel(JPY_SESSION_NAME="/home/maria/work/train.ipynb", fresh=True)
    notebook.run("%load_ext gpu_magic\n%gpus 0,2")
    other = notebook.pid
    kernel.run("import os, subprocess; child = subprocess.Popen(['sleep', '600'])")
    child, this = int(kernel.run("print(child.pid, end='')").stdout), kernel.pid
    with running(WAITS, tmp_path / "a.py", JPY_SESSION_NAME="/home/maria/run.ipynb") as script:
        first, second, *more = using(other, script.pid, this, child).cards
        kernel.change_machine(Driver((replace(first, processes=second.processes[:1]), second, *more)))
        shown, table = kernel.run("%gpu_ps"), kernel.run("%gpus")
    kernel.run("child.kill()")
    lines = shown.text.split("\n")
    assert lines[0] == f"To end train.ipynb: %gpu_ps end {other}"
    assert row(shown, other) == ["train.ipynb", "2.0 GiB on GPU 0", "another kernel"]
    assert [line.strip() for line in lines[3:5]] == ["2.0 GiB on GPU 1", "a claim on GPU 2"]
    assert row(shown, script.pid) == ["a.py", "3.0 GiB on GPU 1", "started in run.ipynb"]
    assert row(shown, this)[1:] == ["4.0 GiB on GPU 1", "this kernel"]
    assert row(shown, child) == ["sleep", "5.0 GiB on GPU 1", "started by this kernel"]
    assert all("you: train.ipynb, 2.0 GiB, for " in page for page in (table.text, table.html))


def test_a_process_whose_shell_has_ended_is_still_this_kernel_s(kernel: Kernel, tmp_path: Path) -> None:
    """As after an interrupt of `subprocess.run("python train.py | tee log", shell=True)`."""
    file = tmp_path / "left"
    kernel.run(f"import subprocess; subprocess.run('sleep 600 & echo $! > {file}', shell=True)")
    left = int(file.read_text())
    try:
        kernel.change_machine(using(left))
        assert row(kernel.run("%gpu_ps"), left)[2] == "started by this kernel"
        assert f"To end it: %gpu_ps end {left}" in kernel.run("%gpu_free").said
    finally:
        os.kill(left, signal.SIGKILL)


def test_tasks_and_engines_are_named_and_left_to_their_magics(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import os\nopen('pid', 'w').write(str(os.getpid()))\n{WAITS}")
    kernel.run("%gpu_launch --background night python train.py")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    task = int((tmp_path / "pid").read_text())
    kernel.run("%gpu_cluster 2")
    asked = "import gpu_magic, os; print(*gpu_magic.map(lambda _: os.getpid(), [0]), end='')"
    engine = int(kernel.run(asked).stdout)
    kernel.change_machine(using(task, engine))
    shown = kernel.run("%gpu_ps")
    assert (row(shown, task)[2], row(shown, engine)[2]) == ("task night", "engine 0 (GPU 2)")
    for pid, says in (
        (task, "task night: %gpu_tasks stop night"),
        (engine, "engine 0 (GPU 2): %gpu_cluster restart 0"),
    ):
        assert refusal(kernel.run(f"%gpu_ps end {pid} --yes")).startswith(f"Process {pid} is {says} ")
    kernel.run("%gpu_cluster stop\n%gpu_tasks stop night")


def test_kernels_of_vs_code_and_what_an_ended_kernel_has_left(
    kernel: Kernel, start_kernel: Callable[..., Kernel]
) -> None:
    code = start_kernel(fresh=True)  # nothing outside tells its notebook
    code.run("%load_ext gpu_magic\n%gpus 2")
    code.run("__vsc_ipynb_file__ = '/home/maria/work/eval.ipynb'")  # also if it comes after a choice
    train = start_kernel(JPY_SESSION_NAME="/home/maria/work/train.ipynb", fresh=True)
    forks = "import os, time\nworkers = []\nfor _ in '12':\n  workers += [os.fork()]\n  workers[-1] or time.sleep(600)"
    first, second = map(int, train.run(f"{forks}\nprint(*workers)").stdout.split())
    kernel.change_machine(using(code.pid, first, second))
    until(lambda: row(kernel.run("%gpu_ps"), code.pid)[::2] == ["eval.ipynb", "another kernel"])
    assert "you: eval.ipynb, 2.0 GiB" in kernel.run("%gpus").text
    assert row(kernel.run("%gpu_ps"), first)[::2] == ["worker of train.ipynb", "started in train.ipynb"]
    os.kill(train.pid, signal.SIGKILL)
    until(lambda: not train.is_alive())
    shown = kernel.run("%gpu_ps")
    whose = ["worker of train.ipynb", "started in train.ipynb, whose kernel has ended"]
    assert [row(shown, pid)[::2] for pid in (first, second)] == [whose, whose]
    assert kernel.run("%gpu_ps end eval.ipynb --yes").said.startswith("eval.ipynb (pid ")
    said = kernel.run("%gpu_ps end train.ipynb --yes").said
    assert said.endswith(" have ended.\n")
    assert start_of(first) is start_of(second) is UNKNOWN


def test_in_a_container_it_is_said_that_it_can_not_be_known(native: Path, tmp_path: Path) -> None:
    Driver(CARDS).write(tmp_path / "machine")
    code = "import gpu_magic\ntry:\n gpu_magic.my_processes()\nexcept gpu_magic.ProcessError as error: print(error)"
    apart = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        missing("no PID namespace can be made here")
    variables = os.environ | environment(native, tmp_path / "machine") | {"PYTHONPATH": str(ROOT)}
    said = subprocess.check_output([*apart, sys.executable, "-c", code], env=variables, text=True)
    assert said.startswith("Which processes are yours is unknown here. In a container")


def test_a_script_ends_after_a_yes_and_nothing_else(kernel: Kernel, tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py") as process:
        kernel.change_machine(using(process.pid))
        name = f"train.py (pid {process.pid}, 2.0 GiB on GPU 1)"
        for answer in "", "n", "what?":
            reply = kernel.run(f"%gpu_ps end {process.pid}", answer=answer)
            assert (reply.asked, reply.said) == ([f"End {name}? [y/N] "], f"Nothing was sent to {name}.\n")
        line = refusal(kernel.run("%gpu_ps end train.py"))
        assert line.endswith("Nobody can answer here, so nothing was sent to it. To end it, add --yes")
        assert process.poll() is None
        assert kernel.run("%gpu_ps end train.py", answer="y").said == f"{name} has ended.\n"
        # Its parent has not asked for its status, and the driver still lists it.
        line = refusal(kernel.run(f"%gpu_ps end {process.pid} --yes"))
        assert line == f"Process {process.pid} has already ended."
        assert process.wait() == -15


def test_kill_comes_where_term_was_of_no_use(kernel: Kernel, tmp_path: Path) -> None:
    with running(DEAF, tmp_path / "deaf.py") as process:
        kernel.change_machine(using(process.pid))
        early = kernel.run(f"%gpu_ps end {process.pid} --kill --yes")
        assert "has not had 5 s to end. First run %gpu_ps end " in refusal(early)
        reply = kernel.run(f"%gpu_ps end {process.pid} --yes")
        assert reply.said.endswith(
            f"within 5 s. To kill it without saving: %gpu_ps end {process.pid} --kill\n"
        )
        reply = kernel.run(f"%gpu_ps end {process.pid} --kill", answer="y")
        assert reply.asked[0].startswith("Kill deaf.py")
        assert process.wait() == -9


def test_an_interrupt_while_it_waits_says_that_the_signal_was_sent(kernel: Kernel, tmp_path: Path) -> None:
    heard = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: open('heard', 'w'))\n"
    heard = heard.replace("'heard'", repr(str(tmp_path / "heard")))
    with running(f"{heard}{WAITS}\ntime.sleep(600)", tmp_path / "deaf.py") as process:
        kernel.change_machine(using(process.pid))
        reply = kernel.run_and_interrupt(f"%gpu_ps end {process.pid} --yes", (tmp_path / "heard").exists)
    assert reply.traceback.startswith(f"KeyboardInterrupt: process {process.pid} got the signal. %gpu_ps")


def test_only_ones_own_processes_on_gpus_are_ended_and_not_this_kernel(
    kernel: Kernel, tmp_path: Path
) -> None:
    with another_users() as (pid, _), running(WAITS, tmp_path / "train.py") as process:
        kernel.change_machine(using(pid))
        assert kernel.run("%gpu_ps").text == "None of your processes uses or claims a GPU."
        for number in pid, process.pid:
            line = refusal(kernel.run(f"%gpu_ps end {number} --yes"))
            assert line == f"You have no process {number} on a GPU."
        assert process.poll() is None
    kernel.change_machine(using(kernel.pid))
    line = refusal(kernel.run(f"%gpu_ps end {kernel.pid} --yes"))
    assert line.startswith(f"Process {kernel.pid} is this kernel: %gpu_free gives memory back")
    assert kernel.is_alive()


def test_what_this_kernel_only_claims_is_listed(kernel: Kernel) -> None:
    kernel.run("%load_ext gpu_magic\n%gpus 2,0")
    shown = kernel.run("%gpu_ps")
    assert row(shown, kernel.pid)[1:] == ["a claim on GPU 0", "this kernel"]
    assert "a claim on GPU 2" in shown.text
    kernel.run("%gpus reset")
    assert kernel.run("%gpu_ps").text == "None of your processes uses or claims a GPU."


@needs_root
def test_another_user_s_claim_is_nothing_to_end(kernel: Kernel) -> None:
    with stranger("nobody") as one:
        assert one.run(f"claims.hold([{CARDS[2].uuid!r}])") == ""
        assert "GPU 2 is claimed by nobody" in kernel.run("%load_ext gpu_magic\n%gpus 2 --dry-run").said
        assert "claimed" not in kernel.run("%gpu_ps").text
        line = refusal(kernel.run(f"%gpu_ps end {one.pid} --yes"))
    assert line == f"You have no process {one.pid} on a GPU."


@needs_root
def test_a_process_that_gets_the_number_of_another_is_left_alone(kernel: Kernel, tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py") as shown:
        kernel.change_machine(using(shown.pid))
        kernel.run("import gpu_magic\n(shown,) = gpu_magic.my_processes()")
        message = kernel.client.execute(SLOWLY.format(shown.pid))
        until((tmp_path / "asked").exists)
    with running_again(shown.pid, WAITS, tmp_path / "eval.py") as another:
        (tmp_path / "go").touch()
        answer = kernel.client._recv_reply(message, timeout=LIMIT)["content"]["evalue"]
        for line in answer, refusal(kernel.run("gpu_magic.end_process(shown)")):
            assert line == f"Process {shown.pid} is not the one that was shown. Nothing was sent to it."
        assert another.poll() is None


def test_a_notebook_that_only_claims_gpus_ends_while_it_does(
    kernel: Kernel, start_kernel: Callable[..., Kernel], tmp_path: Path
) -> None:
    other = start_kernel(JPY_SESSION_NAME="/home/maria/my train.ipynb", fresh=True)
    other.run("%load_ext gpu_magic\n%gpus 2")
    pid = other.pid
    assert row(kernel.run("%gpu_ps"), pid) == ["my train.ipynb", "a claim on GPU 2", "another kernel"]
    message = kernel.client.execute(SLOWLY.format(pid))
    until((tmp_path / "asked").exists)
    other.run("%gpus reset")
    (tmp_path / "go").touch()
    answer = kernel.client._recv_reply(message, timeout=LIMIT)["content"]["evalue"]
    assert answer == f"You have no process {pid} on a GPU."
    assert other.is_alive()
    other.run("%gpus 2")
    reply = kernel.run("%gpu_ps end my train.ipynb", answer="yes")
    assert reply.asked == [f"End my train.ipynb (pid {pid}, a claim on GPU 2)? [y/N] "]
    assert "has ended. If a Jupyter server started it" in reply.said
    until(lambda: not other.is_alive())
