"""`%gpus --mine` and `%gpus --end`: real processes and kernels, and a driver that lists them on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.claims.holders import STAYS, as_nobody, end
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

    from tests.kernel.conftest import Kernel, Reply

pytestmark = sees_processes


def refusal(reply: Reply) -> str:
    """Return the one line of a refusal."""
    assert reply.status == "error"
    # IPython shows a UsageError as one line, and any other error as one of its own.
    (line,) = reply.errors or [reply.stderr.removeprefix("UsageError: ").removesuffix("\n")]
    assert "\n" not in line
    return line


def row(reply: Reply, pid: int) -> list[str]:
    """Return what the table says of a process: its name, memory and relation, without its age."""
    (line,) = [line for line in reply.text.split("\n") if f"  {pid}  " in line]
    name, number, memory, _, what = filter(None, map(str.strip, line.split("  ")))
    assert number == str(pid)
    return [name, memory, what]


# What is listed


def test_another_kernel_is_listed_by_its_notebook(
    kernel: Kernel, start_kernel: Callable[..., Kernel]
) -> None:
    pid = start_kernel(JPY_SESSION_NAME="/home/maria/work/train.ipynb").pid
    kernel.change_machine(using(pid))
    shown = kernel.run("%gpus --mine")
    assert row(shown, pid) == ["train.ipynb", "GPU 1: 2.0 GiB", "another kernel"]
    assert shown.text.endswith(f"\n%gpus --end {pid} ends train.ipynb, after a question.")


def test_another_kernel_is_called_by_its_notebook_in_the_table(
    kernel: Kernel, start_kernel: Callable[..., Kernel]
) -> None:
    pid = start_kernel(JPY_SESSION_NAME="/home/maria/work/train.ipynb").pid
    kernel.change_machine(using(pid))
    reply = kernel.run("%gpus")
    assert "you: train.ipynb, 2.0 GiB, for " in reply.text
    assert "you: train.ipynb, 2.0 GiB, for " in reply.html


def test_a_script_is_listed_with_the_notebook_that_it_was_started_in(kernel: Kernel, tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py", JPY_SESSION_NAME="/home/maria/run.ipynb") as process:
        kernel.change_machine(using(process.pid))
        reply = kernel.run("%gpus --mine")
    assert row(reply, process.pid) == ["train.py", "GPU 1: 2.0 GiB", "started in run.ipynb"]


def test_this_kernel_and_what_it_has_started_are_told_apart(kernel: Kernel) -> None:
    kernel.run("import os, subprocess; child = subprocess.Popen(['sleep', '600'])")
    child, this = int(kernel.run("print(child.pid, end='')").stdout), kernel.pid
    kernel.change_machine(using(this, child))
    reply = kernel.run("%gpus --mine")
    kernel.run("child.kill()")
    assert row(reply, this)[2] == "this kernel"
    assert row(reply, child) == ["sleep", "GPU 1: 3.0 GiB", "started by this kernel"]


def test_a_launched_task_is_named_and_left_to_gpu_tasks(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import os\nopen('pid', 'w').write(str(os.getpid()))\n{WAITS}")
    kernel.run("%gpu_launch --background night python train.py")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    kernel.change_machine(using(pid))
    assert row(kernel.run("%gpus --mine"), pid)[2] == "task night"
    line = refusal(kernel.run(f"%gpus --end {pid} --yes"))
    assert line == f"Process {pid} is of task night: %gpu_tasks night --stop ends it."
    kernel.run("%gpu_tasks night --stop")


def test_an_engine_is_named_and_left_to_gpu_cluster(kernel: Kernel) -> None:
    started = kernel.run("%gpu_cluster 2")
    assert started.status == "ok", started
    pid = int(
        kernel.run("import gpu_magic, os; print(*gpu_magic.map(lambda _: os.getpid(), [0]), end='')").stdout
    )
    kernel.change_machine(using(pid))
    assert row(kernel.run("%gpus --mine"), pid)[2] == "engine 0 (GPU 2)"
    line = refusal(kernel.run(f"%gpus --end {pid} --yes"))
    assert line.startswith(f"Process {pid} is of engine 0 (GPU 2): %gpu_cluster restart 0 ")
    kernel.run("%gpu_cluster stop")


def test_a_process_on_two_gpus_has_a_line_for_each(kernel: Kernel, tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py") as process:
        (first, second, *others) = using(process.pid).cards
        kernel.change_machine(Driver((replace(first, processes=second.processes), second, *others)))
        lines = kernel.run("%gpus --mine").text.split("\n")
    place = next(number for number, line in enumerate(lines) if "GPU 0: 2.0 GiB" in line)
    assert lines[place + 1].strip() == "GPU 1: 2.0 GiB"


def test_where_there_is_none_one_line_says_so(kernel: Kernel) -> None:
    with another_users() as (pid, _):
        kernel.change_machine(using(pid))
        assert kernel.run("%gpus --mine").text == "None of your processes has memory on a GPU."


def test_in_a_container_it_is_said_that_it_can_not_be_known(native: Path, tmp_path: Path) -> None:
    Driver(CARDS).write(tmp_path / "machine")
    code = "import gpu_magic\ntry:\n gpu_magic.my_processes()\nexcept gpu_magic.ProcessError as error: print(error)"
    apart = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        missing("no PID namespace can be made here")
    variables = os.environ | environment(native, tmp_path / "machine") | {"PYTHONPATH": str(ROOT)}
    said = subprocess.check_output(
        [*apart, sys.executable, "-c", code], env=variables, text=True, timeout=LIMIT
    )
    assert said.startswith("Which processes on the GPUs are yours can't be known here: in a container")


# What is ended


def test_a_script_ends_after_a_question(kernel: Kernel, tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py") as process:
        kernel.change_machine(using(process.pid))
        reply = kernel.run(f"%gpus --end {process.pid}", answer="y")
        assert process.wait() == -15
    assert reply.asked == [f"End train.py (pid {process.pid}, 2.0 GiB on GPU 1)? [y/N] "]
    assert reply.stdout == f"train.py (pid {process.pid}) has ended.\n"


@pytest.mark.parametrize("answer", ["", "n", "what?"])
def test_without_a_yes_nothing_is_sent(kernel: Kernel, tmp_path: Path, answer: str) -> None:
    with running(WAITS, tmp_path / "train.py") as process:
        kernel.change_machine(using(process.pid))
        reply = kernel.run(f"%gpus --end {process.pid}", answer=answer)
        assert process.poll() is None
    assert reply.stdout == f"Nothing was sent to train.py (pid {process.pid}).\n"


def test_where_nobody_can_be_asked_yes_has_to_be_typed(kernel: Kernel, tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py") as process:
        kernel.change_machine(using(process.pid))
        line = refusal(kernel.run(f"%gpus --end {process.pid}"))
        assert line.endswith("Nobody can be asked here: add --yes to end it. Nothing was sent to it.")
        assert process.poll() is None
        assert kernel.run(f"%gpus --end {process.pid} --yes").status == "ok"
        assert process.wait() == -15


def test_another_notebook_ends_by_its_name(kernel: Kernel, start_kernel: Callable[..., Kernel]) -> None:
    other = start_kernel(JPY_SESSION_NAME="/home/maria/my train.ipynb")
    pid = other.pid
    kernel.change_machine(using(pid))
    reply = kernel.run("%gpus --end my train.ipynb", answer="yes")
    assert reply.asked == [f"End the kernel of my train.ipynb (pid {pid}, 2.0 GiB on GPU 1)? [y/N] "]
    assert reply.stdout.startswith(
        f"The kernel of my train.ipynb (pid {pid}) has ended. Where a Jupyter server"
    )
    until(lambda: not other.is_alive())


def test_kill_comes_where_term_was_of_no_use(kernel: Kernel, tmp_path: Path) -> None:
    with running(DEAF, tmp_path / "deaf.py") as process:
        kernel.change_machine(using(process.pid))
        early = kernel.run(f"%gpus --end {process.pid} --kill --yes")
        assert "has not had 5 s to end after TERM: end it first." in refusal(early)
        reply = kernel.run(f"%gpus --end {process.pid} --yes")
        assert reply.stdout.startswith(f"deaf.py (pid {process.pid}) has not ended within 5 s: %gpus --end")
        reply = kernel.run(f"%gpus --end {process.pid} --kill", answer="y")
        assert reply.asked[0].startswith("Kill deaf.py")
        assert process.wait() == -9


def test_this_kernel_is_not_ended(kernel: Kernel) -> None:
    pid = kernel.pid
    kernel.change_machine(using(pid))
    line = refusal(kernel.run(f"%gpus --end {pid}", answer="y"))
    assert line.startswith(f"Process {pid} is this kernel: %gpu_free gives memory back")
    assert kernel.is_alive()


def test_a_process_of_another_user_is_refused(kernel: Kernel) -> None:
    with another_users() as (pid, owner):
        kernel.change_machine(using(pid))
        line = refusal(kernel.run(f"%gpus --end {pid} --yes"))
    assert line == f"Process {pid} is {owner}'s, and not yours, so it can't be ended from here."


def test_a_process_without_memory_on_a_gpu_is_refused(kernel: Kernel, tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py") as process:
        line = refusal(kernel.run(f"%gpus --end {process.pid} --yes"))
        assert process.poll() is None
    assert line == f"You have no process {process.pid} on a GPU."


@needs_root
def test_a_process_that_has_the_number_of_one_that_was_shown_is_left_alone(
    kernel: Kernel, tmp_path: Path
) -> None:
    with running(WAITS, tmp_path / "train.py") as shown:
        kernel.change_machine(using(shown.pid))
        kernel.run("import gpu_magic\n(shown,) = gpu_magic.my_processes()")
    with running_again(shown.pid, WAITS, tmp_path / "eval.py") as another:
        line = refusal(kernel.run("gpu_magic.end_process(shown)"))
        assert another.poll() is None
    assert line == f"Process {shown.pid} is another one than was shown; nothing was sent to it."


@needs_root
def test_a_process_that_gets_the_number_during_the_question_is_left_alone(
    kernel: Kernel, tmp_path: Path
) -> None:
    waits = "import time, pathlib\ndef go(question):\n    pathlib.Path('asked').touch()\n"
    waits += "    while not pathlib.Path('go').exists(): time.sleep(0.05)\n    return True"
    with running(WAITS, tmp_path / "train.py") as shown:
        kernel.change_machine(using(shown.pid))
        kernel.run(waits)
        message = kernel.client.execute(f"import gpu_magic\ngpu_magic.end_process({shown.pid}, confirm=go)")
        until((tmp_path / "asked").exists)
    with running_again(shown.pid, WAITS, tmp_path / "eval.py") as another:
        (tmp_path / "go").touch()
        answer = kernel.client._recv_reply(message, timeout=LIMIT)
        assert another.poll() is None
    assert "is another one than was shown" in answer["content"]["evalue"]


def test_a_notebook_that_only_claims_gpus_ends_by_its_name(
    kernel: Kernel, start_kernel: Callable[..., Kernel]
) -> None:
    other = start_kernel(JPY_SESSION_NAME="/home/maria/other.ipynb")
    other.run("%load_ext gpu_magic\n%gpus 2")
    pid = other.pid
    shown = kernel.run("%gpus --mine").text
    assert f"Claimed by you in other.ipynb (pid {pid}), without memory there: GPU 2, since " in shown
    assert shown.endswith(f"; %gpus --end {pid} ends it.")
    reply = kernel.run("%gpus --end other.ipynb", answer="y")
    assert reply.asked == [f"End the kernel of other.ipynb (pid {pid}, claims GPU 2)? [y/N] "]
    assert reply.stdout.startswith(f"The kernel of other.ipynb (pid {pid}) has ended.")
    until(lambda: not other.is_alive())
    assert "Claimed" not in kernel.run("%gpus --mine").text


def test_a_process_that_claims_no_gpu_any_more_is_left_alone(
    kernel: Kernel, start_kernel: Callable[..., Kernel], tmp_path: Path
) -> None:
    other = start_kernel(JPY_SESSION_NAME="/home/maria/other.ipynb")
    other.run("%load_ext gpu_magic\n%gpus 2")
    pid = other.pid
    waits = "def go(question):\n    pathlib.Path('asked').touch()\n"
    waits += "    while not pathlib.Path('go').exists(): time.sleep(0.05)\n    return True"
    kernel.run(f"import gpu_magic, pathlib, time\n{waits}")
    message = kernel.client.execute(f"gpu_magic.end_process({pid}, confirm=go)")
    until((tmp_path / "asked").exists)
    other.run("%gpus reset")
    (tmp_path / "go").touch()
    answer = kernel.client._recv_reply(message, timeout=LIMIT)
    assert "is not on the GPU any more; nothing was sent to it." in answer["content"]["evalue"]
    assert other.is_alive()


@needs_root
def test_another_user_s_claim_is_nothing_to_end(kernel: Kernel) -> None:
    code = f"claims = Claims()\nassert not claims.hold([{CARDS[2].uuid!r}])\n"
    pid = int(as_nobody(code + STAYS, Path(os.environ["GPU_MAGIC_CLAIMS"])))
    try:
        assert "GPU 2 is claimed by nobody" in kernel.run("%load_ext gpu_magic\n%gpus 2 --dry-run").stdout
        assert "Claimed" not in kernel.run("%gpus --mine").text
        line = refusal(kernel.run(f"%gpus --end {pid} --yes"))
    finally:
        end(pid)
    assert line == f"You have no process {pid} on a GPU."


def test_an_interrupt_while_it_waits_says_that_the_signal_was_sent(kernel: Kernel, tmp_path: Path) -> None:
    ready = tmp_path / "heard"
    heard = f"import signal\nsignal.signal(signal.SIGTERM, lambda *_: open({str(ready)!r}, 'w'))\n"
    with running(heard + WAITS.replace("600", "60") + "\ntime.sleep(600)", tmp_path / "deaf.py") as process:
        kernel.change_machine(using(process.pid))
        reply = kernel.run_and_interrupt(f"%gpus --end {process.pid} --yes", ready.exists)
    assert reply.traceback.startswith(
        "KeyboardInterrupt: the signal was sent; %gpus --mine shows whether deaf.py"
    )
