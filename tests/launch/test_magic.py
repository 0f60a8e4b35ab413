"""`%gpu_launch` as typed, in an IPython shell: what it refuses, and cells as scripts."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes import missing

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

Run = Any  # the fixture `run`: what is typed -> what is shown


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("torchrun nothing.py", "/nothing.py"),
        (
            "--gpus 0 train.py --epochs 3",
            "train.py needs a launcher. Try %gpu_launch --gpus 0 torchrun train.py --epochs 3 or "
            "%gpu_launch --gpus 0 python train.py --epochs 3",
        ),
        ("torchrun --standalone", "No script is named. Try %gpu_launch torchrun --standalone train.py"),
        ("python -u -", "No script is named. Try %gpu_launch python -u train.py"),
        ("nohup nice torchrun", "No script is named. Try %gpu_launch nohup nice torchrun train.py"),
        ("-n 9 python -V", "-n 9 does not fit 8 GPUs. Try -n 8"),
        ("-n many python -V", "-n many is not a number of GPUs. Try -n 1"),
        ("torchrun --gpus 1 show.py", "--gpus is not an option of torchrun. Put it before torchrun"),
        ("python --background x show.py", "--background is not an option of python. Put it before python"),
        ("torchrn show.py", "There is no program torchrn here. Did you mean torchrun?"),
        ("accelerate train.py", "accelerate needs a command. Try %gpu_launch accelerate launch train.py"),
        ("LR=1 python -V", "LR=1 sets a variable. Try %gpu_launch env LR=1 python -V"),
        ("LR=1 torchrun show.py", "LR=1 sets a variable. Try %gpu_launch env LR=1 torchrun show.py"),
        ("gpus=1 python -V", "gpus=1 sets a variable. Try --gpus=1\n"),
        ("keep=1 python -V", "keep=1 sets a variable. Try %gpu_launch env keep=1 python -V"),
        ("env=1 each=2 python -V", "env=1 sets a variable. Try %gpu_launch env env=1 each=2 python -V"),
        ("python -m torch.distributed.run --nproc_per_node 3 show.py", "contradicts the 8 GPUs"),
        ("torchrun --nproc_per 4 show.py", "torchrun --nproc_per 4 contradicts the 8 GPUs"),
        ("torchrun --nproc=4 show.py", "torchrun --nproc 4 contradicts the 8 GPUs"),
        ("deepspeed --incl localhost:0 show.py", "--incl would replace the chosen GPUs"),
        ("--background python -V", "--background needs a name. Try %gpu_launch --background NAME python -V"),
        ("--background true", "--background needs a name. Try %gpu_launch --background NAME true"),
        ("--gpus 0 --background=python x.py", "Try %gpu_launch --gpus 0 --background NAME python x.py"),
        (
            "--background bash -c 'sleep 1'",
            "--background needs a name. Try %gpu_launch --background NAME bash -c 'sleep 1'",
        ),
        ("'python -V'", "python -V is one word because of its quotes. Omit them."),
        ("2,0 python -V", "2,0 names GPUs, not a program. Try --gpus 2,0 before the command"),
        ("--gpus 2 0 python -V", "Separate GPUs by commas. Try --gpus 2,0"),
        ("--gpus auto 2 python -V", "A colon goes before the number of GPUs. Try --gpus auto:2"),
        (
            "-- -n 2 true",
            "-n is where the command should start. Put options before the command and before --",
        ),
        ("--gpus 9 python -V", "There is no GPU 9"),
        ("--cwd /nowhere python -V", "/nowhere is not a folder."),
        (
            "--env CUDA_VISIBLE_DEVICES=3 python -V",
            "--env cannot set CUDA_VISIBLE_DEVICES, which selects the GPUs. Name",
        ),
        ("./nowhere/torchrun show.py", "There is no script "),
        ("--env LR python -V", "--env LR is not NAME=value."),
        ("no-such-program", "There is no program no-such-program here, or it is not on PATH."),
        ("accelerate launch --gpu_ids 0,1 show.py", "--gpu_ids would replace the chosen GPUs"),
        ("deepspeed --include localhost:0 show.py", "--include would replace the chosen GPUs"),
        (
            "python -V > out.log",
            "%gpu_launch runs no shell, so > does not work. To start one: %gpu_launch bash -c '…'",
        ),
        ("python -V 2>&1 | tail", "%gpu_launch runs no shell, so >& does not work"),
        ("", "No command is named. Try %gpu_launch torchrun train.py"),
        ("'python", "The line has no closing quotation."),
    ],
)
def test_bad_input_is_one_line_before_anything_starts(run: Run, line: str, says: str) -> None:
    said = run(f"%gpu_launch {line}")
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ("python", "x = 1\n!ls", "magics and shell commands do not run in it (!ls in line 3)."),
        ("python", "for i in [1]\n    pass", "expected ':' in line 2."),
        ("torchrun train.py", "x = 1", "The cell is the script. Omit train.py"),
        ("-n 1 accelerate", "x = 1", "accelerate needs a command. Try %%gpu_launch -n 1 accelerate launch\n"),
        ("lr=1 torchrun", "x = 1", "lr=1 sets a variable. Try %%gpu_launch env lr=1 torchrun\n"),
        (
            "train.py",
            "x = 1",
            "train.py is not the script, because the cell is. Try %%gpu_launch torchrun or %%gpu_launch python\n",
        ),
        ("torchrun -m", "x = 1", "The cell is the script. Omit -m"),
        ("python -m package", "x = 1", "The cell is the script. Omit package"),
        ("python -c pass", "x = 1", "The cell is the script. Omit -c"),
        ("", "x = 1", "No program is named to run the cell. Try %%gpu_launch torchrun"),
    ],
)
def test_a_cell_that_can_t_be_a_script_is_one_line(run: Run, options: str, code: str, says: str) -> None:
    said = run(f"%%gpu_launch {options}\n{code}")
    assert says in said
    assert said.count("\n") == 1


def test_what_only_looks_like_something_is_said(run: Run, shell: InteractiveShell, machine: Path) -> None:
    shell.user_ns.update(rate=0.1, gpus=[1, 3])
    (machine / "one.py").touch()
    show = "%gpu_launch -n 1 python -c 'import sys; print(sys.argv[1:])'"
    assert "\n['0.1']\n" in run(f"{show} {{rate}}")
    said = run(f"{show} {{rate}} {{missing}}")
    assert (
        "%gpu_launch passes '{missing}' literally; IPython replaces {names} if all are variables.\n" in said
    )
    no_shell = "literally; no shell runs. To start one: bash -c '…'\n"
    assert f"\n%gpu_launch passes '$HOME' {no_shell}" in run(f"{show} $HOME")
    assert f"\n%gpu_launch passes '${{HOME}}' {no_shell}" in run(f"{show} ${{HOME}}")
    assert f"\n%gpu_launch passes '*.py' {no_shell}" in run(f"{show} *.py")
    for line in (
        *(f"{show} {word}" for word in ("'*.py'", "*.nothing", "one.py")),
        "%gpu_launch bash -c 'echo $HOME'",
    ):
        assert "literally" not in run(line), line
    typed = f"{show} --filter='loss<1' --name=\"R&D\" it\\'s a\\;b '|'"
    assert "\n['--filter=loss<1', '--name=R&D', \"it's\", 'a;b', '|']\n" in run(typed)
    assert "\n1,3\n" in run("%gpu_launch --gpus {gpus} printenv CUDA_VISIBLE_DEVICES")


def test_a_dry_run_is_a_line_for_a_shell(run: Run, shell: InteractiveShell) -> None:
    run("%gpus 3,0")
    line = run("%gpu_launch --dry-run --env 'LR=1 e' --env N=2 printenv CUDA_VISIBLE_DEVICES LR N")
    assert line.startswith("CUDA_VISIBLE_DEVICES=3,0 CUDA_DEVICE_ORDER=PCI_BUS_ID ")
    assert subprocess.check_output(line, shell=True, text=True) == "3,0\n1 e\n2\n"
    line = run("%%gpu_launch -n 1 --dry-run python\nprint(4 * 4)")
    assert subprocess.check_output(line, shell=True, text=True) == "16\n"


def test_a_command_for_simulated_gpus_says_what_it_gets(run: Run) -> None:
    """The program is real, and takes GPUs 2 and 0 of a machine that has them."""
    says = (
        "SIMULATED GPUs do not exist. The command runs with CUDA_VISIBLE_DEVICES=2,0 and can use real GPUs.\n"
    )
    assert run("%gpu_launch --gpus 2,0 true").startswith(says)
    assert run("%gpu_launch --gpus 2,0 --background one true").startswith(says)
    assert run("%gpu_launch --gpus 2,0 --dry-run true").endswith(f"\n# {says}")
    run("%gpu_launch --gpus 2,0 --background long sleep 600")
    assert re.search(r"running · \d+ s · SIMULATED GPU 2\b.* · SIMULATED GPU 0\b", run("%gpu_tasks long"))
    assert "CUDA_VISIBLE_DEVICES=2 or 0 and can" in run("%gpu_launch --gpus 2,0 --each true")


def test_a_command_says_which_gpus_it_has_that_nobody_chose(run: Run) -> None:
    says = "No GPUs were chosen, so all 8 are used. To choose GPUs, add --gpus 0,1\n"
    assert says in run("%gpu_launch true")
    for line in ("--gpus 0,1 true", "-n 2 true"):
        assert says not in run(f"%gpu_launch {line}")
    run("%gpus 1,3")
    assert says not in run("%gpu_launch true")


def test_a_cell_is_a_script_with_its_lines_in_tracebacks(run: Run, machine: Path) -> None:
    (machine / "beside.py").write_text("there = 5")
    said = run("%%gpu_launch -n 1 python\nimport beside\nprint(beside.there)\nlog = 1 / 0")
    assert "\n5\n" in said
    assert re.search(r"cell_\d+\.py\", line 3, in <module>\n    log = 1 / 0", said)
    assert re.search(r"python cell_\d+\.py: failed with exit code 1 · \d+\.\d s\n$", said)


def test_each_process_of_a_cell_leaves_its_result_in_a_file(run: Run, machine: Path) -> None:
    """The way that the documentation shows; results of processes that have ended well are there if one fails."""
    code = "import os\nindex = int(os.environ['GPU_MAGIC_INDEX'])\nopen(f'result-{index}', 'w').write(str(1 / index))"
    said = run(f"%%gpu_launch --gpus 0-2 --each python\n{code}")
    assert "Process 0:\nTraceback" in said
    assert sorted((file.name, file.read_text()) for file in machine.glob("result-[12]")) == [
        ("result-1", "1.0"),
        ("result-2", "0.5"),
    ]


def test_a_task_can_have_the_name_of_a_program(run: Run) -> None:
    for line in "test printenv CUDA_VISIBLE_DEVICES", "test --gpus 1 printenv CUDA_VISIBLE_DEVICES":
        assert "test runs. To see its output: %gpu_tasks test\n" in run(f"%gpu_launch --background {line}")
        run("%gpu_tasks wait test")


@pytest.mark.parametrize("line", ["python -c 'raise SystemExit(3)'", "torchrun nothing.py", "-n 1 ./program"])
def test_an_error_leaves_no_files(
    run: Run, machine: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """An error holds all that led to it, until the next one."""
    (machine / "program").write_bytes(b"\x7fELF, but no more")
    (machine / "program").chmod(0o755)
    monkeypatch.setattr("tempfile.tempdir", str(machine))
    said = run(f"%gpu_launch {line}")
    assert re.search("exit code 3|no script|Exec format error", said)
    assert list(machine.glob("gpu_magic-*")) == []


def test_an_output_that_fills_its_disk_is_not_kept(
    run: Run, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was kept because it was cut, and the next commands found no space either."""
    folder = machine / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if (mounting := subprocess.run(mount, check=False, capture_output=True, text=True)).returncode:
        missing(mounting.stderr)
    try:
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        said = run("%gpu_launch -n 1 python -c 'print(\"much\\n\" * (4 << 20))'")
        assert "no space is left for its output" in said
        assert list(folder.iterdir()) == []
        assert "\nnext\n" in run("%gpu_launch -n 1 echo next")
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_it_is_explained(run: Run) -> None:
    assert "%gpu_launch torchrun train.py" in run("%gpu_launch --help")
    assert "%gpu_tasks stop NAME" in run("%gpu_tasks --help")
