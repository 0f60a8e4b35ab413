"""`%gpu_launch` and `%gpu_tasks` in a kernel."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.machine import CARDS, Driver
from tests.processes import marked, sees_processes, until, using

if TYPE_CHECKING:
    from tests.kernel.conftest import Kernel

LOAD = "%load_ext gpu_magic"
SHOW = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"


def test_a_script_runs_on_the_chosen_gpus_and_the_kernel_stays_as_it_is(kernel: Kernel) -> None:
    kernel.run(f"{LOAD}\n%gpus 2,0")
    kernel.run(f'open("show.py", "w").write({SHOW!r})')
    reply = kernel.run("%gpu_launch python show.py")
    assert reply.stdout == "2,0\n"
    assert re.fullmatch(r"python show\.py: done · \d+\.\d s", reply.updated)
    assert kernel.run("%gpu_launch --gpus 3,1 -n 1 python show.py").stdout.startswith("3\n")
    assert kernel.run(SHOW).stdout == "2,0\n"


def test_run_all_stops_at_a_command_that_fails(kernel: Kernel) -> None:
    replies = kernel.run_all(LOAD, "%gpu_launch python -c 'raise SystemExit(3)'", "after = 1")
    assert [reply.status for reply in replies] == ["ok", "error"]
    assert "failed with exit code 3" in replies[1].errors[0]


def test_the_traceback_of_the_rank_that_failed_comes_with_the_error(kernel: Kernel) -> None:
    kernel.run(LOAD)
    code = (
        "import os, time\\n"
        "print('I am', os.environ['RANK'], flush=True)\\n"
        "if os.environ['RANK'] == '1':\\n"
        "    while not os.path.exists('zero'): time.sleep(0.05)\\n"
        "    raise ValueError('boom')\\n"
        "open('zero', 'w').close()\\n"
        "time.sleep(600)"
    )
    kernel.run(f'open("fails.py", "w").write("{code}")')
    reply = kernel.run("%gpu_launch -n 2 torchrun fails.py")
    assert "[0] I am 0\n" in reply.stdout
    assert "[1] I am 1\n" in reply.text
    assert "<details open><summary>Rank 1 · ValueError: boom</summary>" in reply.html
    first, *_, error, empty, last = reply.errors[0].splitlines()
    assert (first, error, empty) == ("Rank 1:", "ValueError: boom", "")
    assert last.startswith("torchrun fails.py: failed with exit code 1")


def test_an_interrupt_ends_the_command(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run(LOAD)
    code = "import time\\nopen('there', 'w').close()\\nwhile True: time.sleep(60)"
    kernel.run(f'open("long.py", "w").write("{code}")')
    reply = kernel.run_and_interrupt("%gpu_launch python long.py", (tmp_path / "there").exists)
    assert reply.traceback == "KeyboardInterrupt"
    assert kernel.run("1 + 1").text == "2"


def test_ranks_of_a_task_are_shown_as_lines_and_folds(kernel: Kernel) -> None:
    kernel.run(LOAD)
    kernel.run("%gpu_launch --background sweep -n 3 --each python -c \"print('first'); print('second')\"")
    kernel.run("%gpu_tasks wait sweep")
    reply = kernel.run("%gpu_tasks sweep")
    assert reply.stdout.splitlines()[:2] == ["[0] first", "[0] second"]
    assert reply.text.startswith("[1] first\n[1] second\n[2] first\n[2] second")
    assert reply.html.count("<details>") == 2


def test_rank_0_and_the_process_that_fails_first_are_shown_while_they_run(
    kernel: Kernel, tmp_path: Path
) -> None:
    code = (
        "import os, time\n"
        "print('I am', os.environ['GPU_MAGIC_INDEX'], flush=True)\n"
        "if os.environ['GPU_MAGIC_INDEX'] == '2': raise ValueError('boom')\n"
        "while not os.path.exists('go-on'): time.sleep(0.05)\n"
    )
    heard = []

    def go_on() -> None:
        until(lambda: "[0] I am 0\n" in kernel.heard and "[2] ValueError: boom\n" in kernel.heard)
        heard.append(kernel.heard)
        (tmp_path / "go-on").touch()

    kernel.run(LOAD)
    waiting = threading.Thread(target=go_on)
    waiting.start()
    reply = kernel.run(f"%%gpu_launch -n 4 --each python\n{code}")
    waiting.join()
    assert not re.search(r"\[[13]\]", heard[0])
    assert re.findall(r"<summary>(.*?)</summary>", reply.html) == ["Process 1 · 1 line", "Process 3 · 1 line"]


@sees_processes
def test_what_it_uses_is_shown_and_is_the_kernel_s_own(kernel: Kernel, tmp_path: Path) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    kernel.run(f"{LOAD}\n%gpu_launch --gpus 1 --background long python -c '{code}'")
    until(lambda: re.match(r"\d+\n", kernel.run("%gpu_tasks long").said))
    kernel.change_machine(using(int(kernel.run("%gpu_tasks long").said.splitlines()[0])))
    until(lambda: "GPU 1: 97 %, 2.0 GiB" in kernel.run("%gpu_tasks").said)
    assert "this kernel: python" in kernel.run("%gpus").text
    assert "stopped" in (line := kernel.run("%gpu_tasks stop long").said)
    assert line.endswith(" · GPU 1 at most 2.0 GiB\n")


def test_what_a_command_uses_is_not_told_if_it_is_unknown(kernel: Kernel) -> None:
    """In a container no process can be told to be the command's. Nor can one that has ended."""
    kernel.run(f"{LOAD}\n%gpu_launch --gpus 1 --background long sleep 600")
    kernel.change_machine(using(int(Path("/proc/sys/kernel/pid_max").read_text())))
    until(lambda: "GPU 1: 97 %" in kernel.run("%gpu_tasks").said)
    assert "iB" not in kernel.run("%gpu_tasks").said
    assert "iB" not in kernel.run("%gpu_tasks stop long").said


@sees_processes
def test_what_a_process_of_a_command_uses_is_not_told_without_its_figure(kernel: Kernel) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    kernel.run(f"{LOAD}\n%gpu_launch --gpus 1 --background long python -c '{code}'")
    until(lambda: re.match(r"\d+\n", kernel.run("%gpu_tasks long").said))
    pid = int(kernel.run("%gpu_tasks long").said.splitlines()[0])
    kernel.change_machine(Driver((CARDS[0], replace(CARDS[1], util=97, processes=((pid, -1),)), *CARDS[2:])))
    until(lambda: "GPU 1: 97 %" in kernel.run("%gpu_tasks").said)
    assert "iB" not in kernel.run("%gpu_tasks").said
    assert "iB" not in kernel.run("%gpu_tasks stop long").said


@pytest.mark.parametrize("how", ["restart", "shutdown"])
def test_what_runs_in_the_background_ends_with_the_kernel(kernel: Kernel, how: str) -> None:
    mark = uuid4().hex
    code = "import time; time.sleep(600)"
    kernel.run(f"{LOAD}\n%gpu_launch --each --env MARK={mark} --background long python -c '{code}'")
    until(lambda: len(marked(mark)) == 4 * 3)  # each with its guardian and its keeper
    if how == "restart":
        kernel.restart()
    else:
        kernel.client.shutdown()
    until(lambda: not marked(mark))
    assert not marked(mark)
