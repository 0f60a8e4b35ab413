"""`%gpu_launch` and `%gpu_tasks` in a kernel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.conftest import LIMIT, ROOT
from tests.native import SOURCES
from tests.processes import marked, sees_processes, until, using

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def test_a_cell_is_a_script_with_its_lines_in_tracebacks(kernel: Kernel) -> None:
    kernel.run(f"{LOAD}\n%gpus 1")
    kernel.run('open("beside.py", "w").write("there = 5")')
    reply = kernel.run("%%gpu_launch python\nimport beside\nprint(beside.there)\nlog = 1 / 0")
    assert reply.status == "error"
    assert reply.stdout.startswith("5\n")
    assert re.search(r"cell_\d+\.py\", line 3, in <module>\n    log = 1 / 0", reply.stdout)
    assert re.fullmatch(r"python cell_\d+\.py: failed with exit code 1 · \d+\.\d s", reply.errors[0])


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
    assert {"[0] I am 0", "[1] I am 1"} <= set(reply.text.splitlines())
    assert re.search(
        r"<summary>Rank 1 · ValueError: boom</summary>.*<summary>Rank 0 · 1 line<", reply.html, re.DOTALL
    )
    first, *_, error, empty, last = reply.errors[0].splitlines()
    assert (first, error, empty) == ("Rank 1:", "ValueError: boom", "")
    assert last.startswith("torchrun fails.py: failed with exit code 1")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("torchrun nothing.py", "nothing.py is not there: "),
        ("train.py", "train.py needs a launcher; try torchrun train.py, or python train.py."),
        ("-n 5 python -V", "-n 5 with 4 GPUs: from 1 to 4 of them can be used."),
        ("-n many python -V", "-n is a number of GPUs, and not many."),
        ("torchrun --gpus 1 show.py", "--gpus is not torchrun's: write it before torchrun."),
        ("torchrun --each show.py", "--each is not torchrun's: write it before torchrun."),
        ("python --background x show.py", "--background is not python's: write it before python."),
        ("torchrn show.py", "There is no program torchrn here; did you mean torchrun?"),
        ("accelerate train.py", "accelerate has several commands; try accelerate launch train.py."),
        ("LR=1 python -V", "LR=1 sets a variable: write --env LR=1, or for GPUs --gpus."),
        ("python -m torch.distributed.run --nproc_per_node 8 show.py", "contradicts the 4 GPUs"),
        ("--background python -V", "--background needs a name; try %gpu_launch --background NAME python …"),
        ("--background true", "--background needs a name; try %gpu_launch --background NAME true …"),
        (
            "--background bash -c 'sleep 1'",
            "--background needs a name; try %gpu_launch --background NAME bash …",
        ),
        ("'python -V'", "python -V is one word, as it is in quotes: leave them out."),
        ("2,0 python -V", "2,0 names GPUs, and no program: write --gpus 2,0 before the command."),
        ("--gpus 2 0 python -V", "GPUs are separated by commas; try --gpus 2,0."),
        ("--gpus 7 python -V", "There is no GPU 7"),
        ("--cwd /nowhere python -V", "/nowhere is not a folder."),
        (
            "--env CUDA_VISIBLE_DEVICES=3 python -V",
            "CUDA_VISIBLE_DEVICES says which GPUs the command gets: name",
        ),
        ("./nowhere/torchrun show.py", "show.py is not there"),
        ("--env LR python -V", "--env is NAME=value, and not LR."),
        ("no-such-program", "There is no program no-such-program here, or it is not on the PATH."),
        ("torchrun --nproc-per-node 3 show.py", "--nproc-per-node 3 contradicts the 4 GPUs"),
        ("accelerate launch --gpu_ids 0,1 show.py", "--gpu_ids would replace the GPUs that are chosen"),
        ("deepspeed --include localhost:0 show.py", "--include would replace the GPUs that are chosen"),
        ("", "Nothing to launch is named: torchrun train.py, for example."),
        ("'python", "The line can't be read: no closing quotation."),
    ],
)
def test_bad_input_is_one_line_before_anything_starts(kernel: Kernel, line: str, says: str) -> None:
    kernel.run(LOAD)
    reply = kernel.run(f"%gpu_launch {line}")
    assert reply.status == "error"
    assert says in reply.stderr
    assert reply.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "python -c 'raise SystemExit(3)'",
        "python -c 'import os, signal; os.kill({os.getpid()}, signal.SIGINT); signal.pause()'",
        "torchrun nothing.py",
        "-n 1 {program}",
    ],
)
def test_an_error_leaves_no_files(start_kernel: Callable[..., Kernel], tmp_path: Path, line: str) -> None:
    """An error holds all that led to it, until the next one."""
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF, but no more")
    program.chmod(0o755)
    files = tmp_path / "files"
    files.mkdir()
    kernel = start_kernel(TMPDIR=str(files))
    kernel.run(f"{LOAD}\nimport os\nprogram = {str(program)!r}")
    assert kernel.run(f"%gpu_launch {line}").status == "error"
    assert list(files.glob("gpu_magic-*")) == []


def test_a_command_says_which_gpus_it_has_that_nobody_chose(kernel: Kernel) -> None:
    kernel.run(LOAD)
    said = kernel.run("%gpu_launch printenv CUDA_VISIBLE_DEVICES").stdout
    assert "No GPU was chosen here, so it has all 4; --gpus 0,1 before the command takes others.\n" in said
    for line in ("--gpus 0,1 printenv", "-n 2 printenv"):
        assert "No GPU was chosen" not in kernel.run(f"%gpu_launch {line} CUDA_VISIBLE_DEVICES").stdout
    kernel.run("%gpus 1,3")
    assert "No GPU was chosen" not in kernel.run("%gpu_launch printenv CUDA_VISIBLE_DEVICES").stdout


def test_a_dry_run_is_a_line_for_a_shell(kernel: Kernel) -> None:
    kernel.run(f"{LOAD}\n%gpus 3,0")
    reply = kernel.run("%gpu_launch --dry-run --env 'LR=1 e' printenv CUDA_VISIBLE_DEVICES LR")
    assert reply.stdout.startswith("CUDA_VISIBLE_DEVICES=3,0 CUDA_DEVICE_ORDER=PCI_BUS_ID ")
    typed = kernel.run(
        f"import subprocess; print(subprocess.check_output({reply.stdout!r}, shell=True, text=True))"
    )
    assert typed.stdout.split("\n")[:2] == ["3,0", "1 e"]


def test_an_interrupt_ends_the_command(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run(LOAD)
    code = "import time\\nopen('there', 'w').close()\\nwhile True: time.sleep(60)"
    kernel.run(f'open("long.py", "w").write("{code}")')
    reply = kernel.run_and_interrupt("%gpu_launch python long.py", (tmp_path / "there").exists)
    assert reply.traceback.startswith("KeyboardInterrupt")
    assert kernel.run("1 + 1").text == "2"


def test_variables_go_to_a_cell_and_come_back(kernel: Kernel) -> None:
    kernel.run(f"{LOAD}\n%gpus 1,2")
    kernel.run("steps = 3\nshared = [1]\nboth = [shared, shared]\ndef square(x): return x * x * steps")
    reply = kernel.run(
        "%%gpu_launch --in square,both --out result,who torchrun\n"
        "import os\n"
        "both[0].append(2)\n"
        "who = int(os.environ['RANK'])\n"
        "result = square(4), both, __name__"
    )
    assert reply.status == "ok", reply.traceback
    assert kernel.run("(who, result, both, result[1][0] is result[1][1])").text == (
        "(0, (48, [[1, 2], [1, 2]], '__main__'), [[1], [1]], True)"
    )


def test_variables_of_a_sweep_come_back_as_lists(kernel: Kernel) -> None:
    kernel.run(f"{LOAD}\nrates = [0.1, 0.01]")
    code = "import os\nrate = rates[int(os.environ['GPU_MAGIC_INDEX'])]"
    kernel.run(f"%%gpu_launch --gpus 2,0 --each --in rates --out rate python\n{code}")
    assert kernel.run("rate").text == "[0.1, 0.01]"
    kernel.run(f"%%gpu_launch --gpus 2 --each --in rates --out rate python\n{code}")
    assert kernel.run("rate").text == "[0.1]"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--in stepps", "stepps is not a variable here; did you mean steps?"),
        ("--in steps.x", "steps.x is not a variable; variables are named like this: --in lr,steps."),
        ("--in steps,lock", "lock can't be handed over: TypeError: cannot pickle '_thread.lock' object"),
        ("--in large", "large: 65 MiB are too much to be handed over, at most 64 MiB are"),
        (
            "--out x --background b",
            "--out needs the end of the command, which --background does not wait for.",
        ),
    ],
)
def test_what_can_not_be_handed_over_is_one_line_before_the_start(
    kernel: Kernel, options: str, says: str
) -> None:
    kernel.run(f"{LOAD}\nimport threading\nsteps = 3; lock = threading.Lock(); large = bytes(65 << 20)")
    reply = kernel.run(f"%%gpu_launch {options} python\nprint('started')")
    assert (reply.status, reply.stdout, reply.text) == ("error", "", "")
    assert says in reply.stderr
    assert reply.stderr.count("\n") == 1


def test_what_lies_on_a_gpu_is_not_handed_over(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(PYTHONPATH=f"{ROOT}:{SOURCES / 'standin'}")
    kernel.run(f"{LOAD}\nimport cupy\nx = [cupy.ones(3)]")
    says = "x is on cuda:0, and is handed over on the CPU alone: move it there first."
    assert says in kernel.run("%%gpu_launch -n 1 --in x python\nprint('started')").stderr
    code = "import cupy\nx = [cupy.ones(3)]"
    assert says in kernel.run(f"%%gpu_launch -n 1 --out x python\n{code}").stdout
    kernel.run("def total(): return sum(x)")
    says = "total uses what is on cuda:0, and is handed over on the CPU alone: move it there first."
    assert says in kernel.run("%%gpu_launch -n 1 --in total python\nprint('started')").stderr


def test_a_name_that_a_cell_never_sets_is_one_line_before_the_start(kernel: Kernel) -> None:
    kernel.run(LOAD)
    reply = kernel.run("%%gpu_launch --gpus 0 --out result,other python\nresult = 1")
    assert reply.stderr.endswith("--out names other, which the cell never sets.\n")


def test_what_is_there_comes_back_though_another_is_missing(kernel: Kernel) -> None:
    kernel.run(LOAD)
    cell = "%%gpu_launch --gpus 0 --out result,other python\nresult = 1\nif not result: other = 2"
    reply = kernel.run(cell)
    assert reply.status == "error"
    assert "At its end the cell has no variable other, which --out names." in reply.stdout
    assert kernel.run("result").text == "1"


def test_what_is_there_comes_back_from_a_cell_that_exits(kernel: Kernel) -> None:
    kernel.run(LOAD)
    kernel.run("%%gpu_launch --gpus 0 --out early python\nearly = 2\nimport sys\nsys.exit(0)")
    assert kernel.run("early").text == "2"


def test_what_others_of_a_sweep_have_found_comes_back_though_one_has_failed(kernel: Kernel) -> None:
    kernel.run(LOAD)
    code = "import os\nrate = 1 / int(os.environ['GPU_MAGIC_INDEX'])"
    reply = kernel.run(f"%%gpu_launch --gpus 0-2 --each --out rate python\n{code}")
    assert kernel.run("rate").text == "[None, 1.0, 0.5]"
    assert reply.errors[0].startswith("Process 0:\nTraceback (most recent call last):\n")


def test_a_traceback_of_a_cell_with_variables_has_nothing_of_ours(kernel: Kernel) -> None:
    kernel.run(LOAD)
    reply = kernel.run("%%gpu_launch --gpus 0,1 --each --out rate python\nrate = 1 / 0")
    assert re.search(r'cell_\d+\.py", line 1, in <module>$', reply.errors[0].splitlines()[2])


def test_nothing_is_set_where_nothing_comes_back(kernel: Kernel) -> None:
    kernel.run(f"{LOAD}\nresult = 'old'")
    for options in "-n 1", "-n 2 --each":
        reply = kernel.run(f"%%gpu_launch {options} --out result python\nresult = 1 / 0")
        assert reply.status == "error"
        assert "result did not come back: the cell has not come to its end." in reply.stdout
        assert kernel.run("result").text == "'old'"


def test_a_cell_with_variables_runs_as_one_without(kernel: Kernel) -> None:
    kernel.run(f"{LOAD}\nx = 3")
    code = (
        "import sys\ndef f(x: int): pass\nlike = f.__annotations__, sys.argv[1:], sys.path[1:]\nprint(like)"
    )
    with_them = kernel.run(f"%%gpu_launch -n 1 --in x --out like python\n{code}").stdout
    assert with_them == kernel.run(f"%%gpu_launch -n 1 python\n{code}").stdout


def test_variables_go_to_launchers_that_add_arguments(kernel: Kernel) -> None:
    kernel.run(f"{LOAD}\nx = 3")
    code = "import sys\ny = x + 1, [word.partition('=')[0] for word in sys.argv[1:]]"
    for launcher, flag in (
        ("deepspeed", "--local_rank"),
        ("python -m torch.distributed.launch", "--local-rank"),
    ):
        reply = kernel.run(f"%%gpu_launch -n 1 --in x --out y {launcher}\n{code}")
        assert reply.status == "ok", reply.text
        assert kernel.run("y").text == f"(4, ['{flag}'])"


def test_an_interrupt_is_a_line(kernel: Kernel) -> None:
    kernel.run(LOAD)
    kernel.client.execute("%gpu_launch python -c 'import time; time.sleep(600)'")
    while kernel.client.get_iopub_msg(timeout=LIMIT)["msg_type"] != "display_data":
        pass
    kernel.interrupt()
    while (message := kernel.client.get_iopub_msg(timeout=LIMIT))["msg_type"] != "error":
        pass
    assert message["content"]["traceback"] == ["KeyboardInterrupt"]


def test_what_only_looks_like_something_is_said(kernel: Kernel) -> None:
    kernel.run(f"{LOAD}\nrate = 0.1\ngpus = [1, 3]")
    show = "%gpu_launch -n 1 python -c 'import sys; print(sys.argv[1:])'"
    assert kernel.run(f"{show} {{rate}}").stdout == "['0.1']\n"
    said = kernel.run(f"{show} {{rate}} {{missing}}").stdout
    assert said.startswith("{rate} is handed over as it stands: ")
    assert kernel.run(f"{show} $HOME").stdout.startswith(
        "$HOME is handed over as it stands: there is no shell"
    )
    kernel.run("open('one.py', 'w').close()")
    said = kernel.run(f"{show} *.py").stdout
    assert said.startswith("*.py is handed over as it stands: there is no shell here, bash -c")
    for word in "'*.py'", "*.nothing", "one.py":
        assert "handed over" not in kernel.run(f"{show} {word}").stdout, word
    for typed in ("> out.log", "| tail -1", "&& date", "2>&1"):
        assert "is a shell's, and there is none" in kernel.run(f"{show} {typed}").stderr, typed
    assert kernel.run(f"{show} '|'").stdout == "['|']\n"
    assert kernel.run(f"{show} --filter='loss<1' --name=\"R&D\" it\\'s a\\;b").stdout == (
        "['--filter=loss<1', '--name=R&D', \"it's\", 'a;b']\n"
    )
    assert "handed over" not in kernel.run("%gpu_launch -n 1 bash -c 'echo $HOME ${HOME}'").stdout
    assert kernel.run("%gpu_launch --gpus {gpus} printenv CUDA_VISIBLE_DEVICES").stdout == "1,3\n"


def test_a_cell_with_a_magic_is_told_so(kernel: Kernel) -> None:
    kernel.run(LOAD)
    assert (
        "it has no magics and no shell, as !ls in line 3."
        in kernel.run("%%gpu_launch python\nx = 1\n!ls").stderr
    )
    assert "expected ':' in line 2." in kernel.run("%%gpu_launch python\nfor i in [1]\n    pass").stderr
    assert (
        "The cell is the script, so leave out train.py."
        in kernel.run("%%gpu_launch torchrun train.py\nx = 1").stderr
    )


def test_a_dry_run_of_a_cell_can_be_pasted(kernel: Kernel) -> None:
    kernel.run(f"{LOAD}\nx = 4")
    line = kernel.run("%%gpu_launch -n 1 --in x --out y --dry-run python\ny = x * x\nprint(y)").stdout
    done = kernel.run(f"import subprocess; print(subprocess.check_output({line!r}, shell=True, text=True))")
    assert done.stdout.startswith("16\n")


def test_a_line_has_no_variables(kernel: Kernel) -> None:
    kernel.run(f"{LOAD}\nlr = 1")
    assert "--in and --out go with a cell" in kernel.run("%gpu_launch --in lr python -V").stderr


def test_a_task_can_have_the_name_of_a_program(kernel: Kernel) -> None:
    kernel.run(LOAD)
    for line in "test printenv CUDA_VISIBLE_DEVICES", "test --gpus 1 printenv CUDA_VISIBLE_DEVICES":
        assert kernel.run(f"%gpu_launch --background {line}").status == "ok", line
        kernel.run("%gpu_tasks wait test")


def test_ranks_of_a_task_are_shown_one_after_the_other(kernel: Kernel) -> None:
    kernel.run(LOAD)
    kernel.run("%gpu_launch --background sweep -n 2 --each python -c \"print('first'); print('second')\"")
    kernel.run("%gpu_tasks wait sweep")
    reply = kernel.run("%gpu_tasks sweep")
    assert reply.text.splitlines() == ["[0] first", "[0] second", "[1] first", "[1] second"]
    assert reply.html.count("<details") == 2


@sees_processes
def test_what_it_uses_is_shown_and_is_the_kernel_s_own(kernel: Kernel, tmp_path: Path) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    kernel.run(f"{LOAD}\n%gpu_launch --gpus 1 --background long python -c '{code}'")
    until(lambda: re.match(r"\d+\n", kernel.run("%gpu_tasks long").stdout))
    kernel.change_machine(using(int(kernel.run("%gpu_tasks long").stdout.splitlines()[0])))
    until(lambda: "GPU 1: 97 %, 2.0 GiB" in kernel.run("%gpu_tasks").stdout)
    assert "this kernel: python" in kernel.run("%gpus").text
    assert "stopped" in (line := kernel.run("%gpu_tasks stop long").stdout)
    assert line.endswith(" · GPU 1 at most 2.0 GiB\n")


@pytest.mark.parametrize("how", ["restart", "shutdown"])
def test_what_runs_in_the_background_ends_with_the_kernel(kernel: Kernel, how: str) -> None:
    mark = uuid4().hex
    code = "import time; time.sleep(600)"
    kernel.run(f"{LOAD}\n%gpu_launch --each --env MARK={mark} --background long python -c '{code}'")
    until(lambda: len(marked(mark)) == 4 * 2)  # each with its guardian
    if how == "restart":
        kernel.restart()
    else:
        kernel.client.shutdown()
    until(lambda: not marked(mark))
    assert not marked(mark)


def test_it_is_explained(kernel: Kernel) -> None:
    kernel.run(LOAD)
    assert "%gpu_launch torchrun train.py --lr 1e-3" in kernel.run("%gpu_launch --help").stdout
    assert "%gpu_tasks stop NAME" in kernel.run("%gpu_tasks --help").stdout
