"""`python -m gpu_magic`, which is `gpu-magic` where it is installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

import gpu_magic
from gpu_magic.command_line import main
from gpu_magic.testing import simulate
from tests.conftest import LIMIT, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    Here = Callable[..., tuple[int | str | None, str, str]]


SIMULATED = (
    "SIMULATED GPUs do not exist. The command runs with CUDA_VISIBLE_DEVICES={} and can use real GPUs.\n"
)


def start(*words: str, stdout: IO[str] | int = subprocess.PIPE, **variables: str) -> subprocess.Popen[str]:
    # Unbuffered output would come at once also where nothing has flushed it.
    unset = "CUDA_", "PYTHONUNBUFFERED"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    return subprocess.Popen(
        [sys.executable, "-m", "gpu_magic", *words],
        env=clean | {"GPU_MAGIC_SIMULATE": "4xA100-80GB clock=0", "PYTHONPATH": str(ROOT)} | variables,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*words: str, given: str = "", **variables: Any) -> tuple[int, str, str]:
    """Return the exit status, what was printed, and what was said of errors."""
    process = start(*words, **variables)
    out, err = process.communicate(given, timeout=LIMIT)
    return process.returncode, out, err


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    """Do the same in this process: enough for lines that start nothing."""

    def run(*words: str, machine: str = "4xA100-80GB") -> tuple[int | str | None, str, str]:
        with simulate(machine, clock=lambda: 0.0) as simulated:
            simulated.populate()
            status = main(words)
        return (status, *capsys.readouterr())

    return run


def test_it_shows_the_gpus(here: Here) -> None:
    status, out, _ = here()
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[1:6]] == ["GPU", "0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("doctr", "Did you mean gpu-magic doctor?"),
        ("lanch --gpus 2 -- true", "Did you mean gpu-magic launch?"),
        ("nothing", "There is no gpu-magic nothing. gpu-magic --help lists the actions."),
        ("launch --gpus cuda:1 true", "Use nvidia-smi's numbers. gpu-magic shows both."),
        (
            "--foo",
            "There is no --foo. There are --json and --version. gpu-magic --help explains the options.",
        ),
        ("launch --gpsu 2 -- true", "Did you mean --gpus? gpu-magic launch --help explains the options."),
        ("doctor --jsno", "Did you mean --json? gpu-magic doctor --help explains the options."),
        ("--json 3", "There is no gpu-magic 3. gpu-magic --help lists the actions."),
        ("--json doctr", "There is no gpu-magic doctr. Did you mean gpu-magic doctor?"),
        ("--json --gpus", "There is no --gpus."),
        ("--gpus 2 -- true", "--gpus goes behind launch. Try gpu-magic launch --gpus 2 -- true"),
        ("--gpus 2 launch python x.py", "Try gpu-magic launch --gpus 2 python x.py\n"),
        ("--gpus 2 -- launch x", "Try gpu-magic launch --gpus 2 -- launch x\n"),
        ("--gpus 2", "Try gpu-magic launch --gpus 2 -- torchrun train.py\n"),
        ("launch --gpus auto:9 true", "auto:9 can pick only 4 GPUs. Try --gpus auto:4"),
        ("launch --gpus 0, -- true", "A comma has no GPU beside it. Try --gpus 0"),
        ("launch --gpus 2", "No command is named. Try gpu-magic launch --gpus 2 -- torchrun train.py"),
        (
            "launch --gpus 2 t.py --lr 3",
            "Try gpu-magic launch --gpus 2 -- torchrun t.py --lr 3 or "
            "gpu-magic launch --gpus 2 -- python t.py --lr 3\n",
        ),
        ("launch -n 1 -- torchrun", "No script is named. Try gpu-magic launch -n 1 -- torchrun train.py"),
        ("kernel install --gpus auto:x", "Try --gpus auto:2"),
        ("launch -n x y", "-n x is not a number of GPUs. Try -n 1"),
    ],
)
def test_a_line_that_is_not_understood_gets_one(here: Here, line: str, says: str) -> None:
    status, out, err = here(*line.split())
    assert (status, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_what_a_command_gets_that_nobody_chose_is_said() -> None:
    status, out, err = run("launch", "--", "sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-unset}")
    assert (status, out) == (0, "unset\n")
    assert "The command runs without CUDA_VISIBLE_DEVICES and can use real GPUs.\n" in err
    assert "No GPUs were chosen, so all 4 are used. To choose GPUs, add --gpus 0,1\n" in err
    assert "GPU 2 is in use by aisha: eval.py" in err
    show = "printenv", "CUDA_VISIBLE_DEVICES"
    assert run("launch", "--", *show, CUDA_VISIBLE_DEVICES="3") == (0, "3\n", SIMULATED.format("3"))


def test_the_notes_are_printed_before_the_command_starts() -> None:
    """The command writes to the terminal itself."""
    code = """if True:
        import os, psutil, sys
        from gpu_magic.command_line import main
        class Terminal:
            def write(self, text):
                os.write(1, f"{len(psutil.Process().children())} {text}".encode() if text.strip() else b"\\n")
            def flush(self): ...
        sys.stderr = Terminal()
        main(["launch", "--", "echo", "from the command"])"""
    clean = os.environ | {"GPU_MAGIC_SIMULATE": "4xA100-80GB clock=0", "PYTHONPATH": str(ROOT)}
    out = subprocess.run(
        [sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True, timeout=LIMIT
    ).stdout
    *notes, last = out.splitlines()
    assert "0 No GPUs were chosen, so all 4 are used. To choose GPUs, add --gpus 0,1" in notes
    assert {line[:2] for line in notes} == {"0 "}
    assert last == "from the command"


def test_the_table_loads_nothing_of_other_actions() -> None:
    code = "import sys; from gpu_magic.command_line import main; main([]); print(*sys.modules)"
    clean = os.environ | {"GPU_MAGIC_SIMULATE": "1xA100-80GB", "PYTHONPATH": str(ROOT)}
    out = subprocess.run(
        [sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True
    ).stdout
    modules = set(out.splitlines()[-1].split())
    assert "json" not in modules
    loaded = {name for name in modules if name.startswith("gpu_magic.")}
    folders = {file.parent.name for file in (ROOT / "gpu_magic").glob("*/__init__.py")}
    used = {"claims", "devices", "frameworks", "gpus", "process", "processes", "shell"}
    assert {name.split(".")[1] for name in loaded} & folders == used
    assert {name for name in loaded if name.startswith("gpu_magic.processes.")} == {
        "gpu_magic.processes.tasks"
    }


def test_json_is_in_plain_units(here: Here) -> None:
    found = json.loads(here("--json")[1])
    assert [gpu["index"] for gpu in found] == [0, 1, 2, 3]
    assert {gpu["memory_total"] for gpu in found} == {80 << 30}
    assert all(gpu["simulated"] for gpu in found)
    assert all(0 <= gpu["utilization"] <= 100 for gpu in found)


def test_what_the_driver_would_not_tell_is_null(here: Here) -> None:
    found = json.loads(here("--json", machine="1xA100-80GB(1g.10gb,2g.20gb)")[1])
    assert [one["gpu"] for one in found] == [0, 0, 0]
    assert [one["index"] for one in found] == [0, None, None]
    assert found[1]["utilization"] is None


def test_a_command_has_the_gpus_and_its_exit_status_is_ours() -> None:
    code = "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], input()); print('no', file=sys.stderr); sys.exit(7)"
    status, out, err = run("launch", "--gpus", "2,0", "--", sys.executable, "-c", code, given="yes\n")
    assert (status, out) == (7, "2,0 yes\n")
    # The command writes beside us.
    says = SIMULATED.format("2,0").rstrip()
    assert set(err.splitlines()) == {says, "GPU 2 is in use by aisha: eval.py, 45.1 GiB, for 14 h", "no"}


def test_the_cause_comes_last_where_ranks_fail(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import os\n1 / int(os.environ['GPU_MAGIC_INDEX'])")
    status, _, err = run("launch", "--gpus", "0,1", "--each", "--", "python", str(script))
    assert status == 1
    _, first, *_, error, _, last = err.splitlines()
    assert (first, error) == ("gpu-magic: Process 0:", "ZeroDivisionError: division by zero")
    assert last.startswith(f"python {script}: failed with exit code 1")


def test_nothing_is_left_out_of_what_a_shell_gets(tmp_path: Path) -> None:
    code = "for line in range(60_000): print(line)"
    _, out, _ = run("launch", "--gpus", "0,1", "--each", "--", "python", "-c", code, TMPDIR=str(tmp_path))
    lines = out.splitlines()
    for process in "01":
        assert [line for line in lines if line[1] == process] == [f"[{process}] {n}" for n in range(60_000)]


@pytest.mark.parametrize(
    "words", [[], ["--json"], ["doctor"], ["launch", "--gpus", "0,1", "--each", "--", "echo", "x"]]
)
def test_a_full_disk_is_named_in_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        process = start(*words, stdout=full)
        _, err = process.communicate(timeout=LIMIT)
    said = "gpu-magic: the output cannot be written: No space left on device"
    assert (process.returncode, err.splitlines()[-1]) == (1, said)
    assert "Traceback" not in err


def test_a_reader_that_goes_is_no_error() -> None:
    for words in (["--json"], ["launch", "--gpus", "0,1", "--each", "--", "yes"]):
        process = start(*words)
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        if words[0] == "launch":
            assert process.wait(LIMIT) == 128 + signal.SIGPIPE
        process.wait(LIMIT)
        assert process.stderr.read() == (SIMULATED.format("0 or 1") if words[0] == "launch" else "")


def test_it_has_a_version(here: Here) -> None:
    assert here("--version")[1] == f"gpu-magic {gpu_magic.__version__}\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 30), (signal.SIGTERM, 40)])
def test_signals_are_passed_on(number: int, status: int, tmp_path: Path) -> None:
    code = (
        # At once: what has not ended 2 s after an interrupt gets TERM, on a busy machine.
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, lambda *_: os._exit(30))\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(40))\n"
        "print('there', flush=True)\n"
        "while True: time.sleep(60)\n"
    )
    process = start("launch", "--", sys.executable, "-c", code)
    assert process.stdout
    assert process.stdout.readline() == "there\n"
    process.send_signal(number)
    process.communicate(timeout=LIMIT)
    assert process.returncode == status


def test_an_end_of_its_own_is_reported_as_shells_do(tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run("launch", "--", sys.executable, "-c", code)[0] == 128 + signal.SIGKILL
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF, but no more")
    program.chmod(0o755)
    status, _, err = run("launch", "-n", "1", "--", str(program))
    assert (status, "could not be started: Exec format error" in err) == (127, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["launch", "--gpus", "9", "--", "true"], "There is no GPU 9. This machine has GPUs 0 to 3."),
        (
            ["launch", "--gpus", "auto:4", "--only-free", "--", "true"],
            "Try --gpus auto:3 --only-free, or add --wait 30m",
        ),
        (["launch", "--min-free", "1GB", "--", "true"], "goes with auto. Try --gpus auto --min-free 1GB"),
        (["launch", "--dry-run", "--wait", "1h", "--", "true"], "--wait does not go with --dry-run"),
        (["launch", "--gpus=--", "true"], "--gpus needs a value."),
    ],
)
def test_bad_input_is_said_and_nothing_is_run(here: Here, words: list[str], says: str) -> None:
    status, out, err = here(*words)
    assert (status, out) == (2, "")
    assert says in err.splitlines()[-1]


def test_an_option_of_the_magic_alone_is_the_launcher_s(here: Here, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    out = here("launch", "--dry-run", "-n", "1", "--", "torchrun", "--in", "1", str(script))[1]
    assert f" --in 1 {script}\n" in out


def test_the_doctor_says_what_is_wrong_and_its_status_does() -> None:
    status, out, err = run("doctor", CUDA_VISIBLE_DEVICES='"0,1"')
    assert (status, err) == (1, "")
    assert "Wrong: The quotes in CUDA_VISIBLE_DEVICES=" in out
    assert "      export CUDA_VISIBLE_DEVICES=0,1 CUDA_DEVICE_ORDER=PCI_BUS_ID\n" in out


def test_the_doctor_s_report_and_json(here: Here) -> None:
    assert here("doctor", "--report")[1].startswith(f"gpu_magic {gpu_magic.__version__}, Python 3.")
    for words in (("doctor", "--json"), ("--json", "doctor")):
        found = json.loads(here(*words)[1])
        assert found["facts"]["machine"]["simulated"] == "4xA100-80GB"
    assert here("doctor", "--json", "--report")[0] == 2


@pytest.fixture
def no_driver() -> dict[str, str]:
    return {"GPU_MAGIC_SIMULATE": ""}


def test_without_a_driver_each_action_says_why(no_driver: dict[str, str]) -> None:
    said = "NVML is missing (libnvidia-ml.so.1"
    status, out, _ = run(**no_driver)
    assert (status, said in out) == (1, True)
    assert out.endswith(" To try gpu_magic without a GPU: GPU_MAGIC_SIMULATE=8xA100-80GB gpu-magic\n")
    status, out, err = run("launch", "--gpus", "auto", "true", **no_driver)
    assert (status, out, err.startswith(f"gpu-magic: {said}")) == (2, "", True)
    assert "%env" not in err
    status, out, err = run("--json", **no_driver)
    assert (status, out, err.startswith(f"gpu-magic: {said}")) == (1, "[]\n", True)


def test_a_variable_that_hides_all_gpus_is_named_with_what_shows_them() -> None:
    empty = "it was started with CUDA_VISIBLE_DEVICES empty (no GPU). To see all GPUs, run unset CUDA_VISIBLE_DEVICES"
    assert empty in run("launch", "--gpus", "0,1", "true", CUDA_VISIBLE_DEVICES="")[2]
    by_slurm = run("launch", "true", CUDA_VISIBLE_DEVICES="", SLURM_JOB_ID="7")[2]
    assert "CUDA_VISIBLE_DEVICES empty (no GPU)." in by_slurm  # who has emptied it knows why


def test_a_terminal_that_lacks_characters_gets_others_and_there_is_no_kernel() -> None:
    status, out, err = run(PYTHONIOENCODING="ascii")
    assert (status, err) == (0, "")
    assert " 30?C " in out
    assert "  In this process  " in out


def test_the_usage_has_the_command(here: Here) -> None:
    assert here("launch", "--help")[1].startswith("usage: gpu-magic launch [options] -- COMMAND\n")


def test_a_command_starts_once_its_gpus_are_free() -> None:
    with start(
        "launch", "--gpus", "0,1", "--", sys.executable, "-c", "print('there', flush=True); input()"
    ) as first:
        assert first.stdout
        assert first.stdout.readline() == "there\n"
        assert "Not free: GPU 1 (claimed by you" in run("launch", "--gpus", "1,3", "--only-free", "true")[2]
        show = ["printenv", "CUDA_VISIBLE_DEVICES"]
        waits = [
            start("launch", "--gpus", "auto:3", "--wait", "10m", "--", *show),
            start("launch", "--gpus", "1,3", "-n", "1", "--wait", "10m", "--", *show),
        ]
        said = [process.stderr.readline() for process in waits if process.stderr]
        assert said[0].startswith("Waiting for 3 free SIMULATED GPUs: GPU 0 and GPU 1 (claimed by you")
        assert said[1].startswith("Waiting for SIMULATED GPU 1: claimed by you")
        assert all(line.endswith(". To stop, press Ctrl+C.\n") for line in said)
        first.communicate("\n", timeout=LIMIT)
        outs = [process.communicate(timeout=LIMIT)[0] for process in waits]
    assert outs == ["0,1,3\n", "1\n"]


def test_one_line_of_json_says_what_was_picked_before_the_command_writes() -> None:
    assert run("launch", "--json", "--gpus", "2", "--", "echo", "yes")[1].endswith("}\nyes\n")
    code = "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], input()); sys.exit(7)"
    process = start("launch", "--json", "--gpus", "2,0", "--", sys.executable, "-c", code)
    assert process.stdout
    line = json.loads(process.stdout.readline())  # the command waits for input meanwhile
    assert [(one["index"], one["uuid"][:4]) for one in line["picked"]] == [(2, "GPU-"), (0, "GPU-")]
    assert all(one["simulated"] for one in line["picked"])
    assert line["variables"] == [{"CUDA_VISIBLE_DEVICES": "2,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}]
    assert [(one["index"], one["processes"][0]["owner"]) for one in line["holders"]] == [(2, "aisha")]
    assert (process.communicate("yes\n", timeout=LIMIT)[0], process.returncode) == ("2,0 yes\n", 7)


def test_json_of_each_command_has_its_variables(here: Here) -> None:
    words = ["launch", "--json", "--gpus", "1,0", "--each", "--dry-run", "--env", "A=1", "--", "true"]
    line, *commands = here(*words)[1].splitlines()
    given = json.loads(line)["variables"]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in given] == ["1", "0"]
    assert "A" not in given[0]
    assert len(commands) == 2 + 1  # the last one is a comment


def test_json_says_who_holds_gpus_and_when_to_try_again(here: Here) -> None:
    status, out, err = here("launch", "--gpus", "auto:4", "--only-free", "--json", "--", "true")
    line = json.loads(out)
    assert (status, line["picked"], line["retry_after"]) == (2, None, 60)
    assert err == f"gpu-magic: {line['error']}\n"
    assert [(one["index"], one["processes"][0]["owner"]) for one in line["holders"]] == [(2, "aisha")]
    with start("launch", "--gpus", "1", "--", sys.executable, "-c", "print(1, flush=True); input()") as first:
        assert first.stdout
        first.stdout.readline()
        status, out, _ = run("launch", "--json", "--gpus", "1", "--only-free", "--wait", "1", "true")
        line = json.loads(out)
        assert (status, line["retry_after"]) == (2, 60)
        claim = next(one for one in line["holders"] if one["index"] == 1)["claims"][0]
        assert claim["pid"] == first.pid
        assert claim["idle"] == 0  # the command runs
        first.communicate("\n", timeout=LIMIT)


@pytest.mark.parametrize(
    "line",
    ["--gpus 9 -- true", "--gpsu 2 -- true", "--gpus auto --min-free 100GB true", "-- no-such-program"],
)
def test_what_can_never_be_launched_is_not_to_be_tried_again(here: Here, line: str) -> None:
    status, out, err = here("launch", "--json", *line.split())
    found = json.loads(out)
    assert (status, found["picked"], found["retry_after"], found["holders"]) == (2, None, None, [])
    assert err == f"gpu-magic: {found['error']}\n"


def test_json_behind_the_command_is_the_command_s() -> None:
    assert run("launch", "-n", "1", "--", "echo", "--json")[1] == "--json\n"
    assert run("launch", "--gpus", "9", "--", "echo", "--json")[1] == ""


def test_an_interrupt_ends_a_wait_in_one_line() -> None:
    process = start("launch", "--gpus", "2", "--wait", "10m", "--", "true")
    assert process.stderr
    assert process.stderr.readline().startswith("Waiting for SIMULATED GPU 2: in use by aisha")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (130, "gpu-magic: Interrupted. Nothing was started.\n")
