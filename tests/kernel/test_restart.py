"""A restart that keeps the choice: the saved file, what may stand in its place, and where nobody restarts a kernel."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from tests.conftest import LIMIT, ROOT
from tests.machine import CARDS, Driver, clean_environment, environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

MASK = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), end='')"
START_CUDA = "import ctypes; _ = ctypes.CDLL('libcuda.so.1').cuInit(0)"
NOT_APPLIED = "The choice that was saved before the restart was not applied"


def save(
    kernel: Kernel, changes: dict[str, Any] | None = None, *, request: str = "3,0", options: str = ""
) -> Path:
    """Keep a choice as a restart does, with changes to what is kept; return its file."""
    kernel.run("%gpus 1")
    kernel.run(START_CUDA)
    assert (
        kernel.run(
            "from gpu_magic.process.choosing import apply\n"
            "from gpu_magic.process.session import current\n"
            "from gpu_magic.restart.saved_choice import save\n"
            "from gpu_magic.selection.options import Options\n"
            f"save(apply(current(), {request!r}, Options(growth=True, {options})))"
        ).status
        == "ok"
    )
    file = Path(
        kernel.run(
            "from gpu_magic.restart.kernel import saved_choice_file; print(saved_choice_file(), end='')"
        ).stdout
    )
    kept = json.loads(file.read_text())
    assert len(kept["request"].split(",")) == 2
    assert file.stat().st_mode & 0o077 == 0
    file.write_text(json.dumps(kept | (changes or {})))
    return file


def test_a_saved_choice_is_applied_once_with_its_options(kernel: Kernel) -> None:
    file = save(kernel)
    assert json.loads(file.read_text())["request"] == f"{CARDS[3].uuid},{CARDS[0].uuid}"
    kernel.restart()
    reply = kernel.run("%load_ext gpu_magic")
    assert reply.stdout.startswith("As chosen before the restart:\ncuda:0 = GPU 3 (")
    assert "take memory as they need it" in reply.stdout
    assert kernel.run(MASK).stdout == "3,0"
    assert kernel.run("print(os.environ['TF_FORCE_GPU_ALLOW_GROWTH'], end='')").stdout == "true"
    assert not file.exists()


def test_what_auto_has_picked_within_bounds_is_applied(kernel: Kernel) -> None:
    save(kernel, request="auto:2", options="only_free=True, min_free='20GB'")
    kernel.restart()
    assert "cuda:1 = GPU" in kernel.run("%load_ext gpu_magic").stdout


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"saved": time.time() - 601}, "it is older than 10 minutes"),
        ({"saved": time.time() + 7200}, "it is older than 10 minutes"),
        ({"saved": "now"}, "its file can't be read"),
        ({"options": {"by": "colour"}}, "by='colour' is neither"),
        ({"options": []}, "its file can't be read"),
        ({"request": "GPU-ffffffff"}, "No GPU here has a UUID that begins with GPU-ffffffff"),
        ({"kernel": "/run/of-another.json"}, "it was saved for another kernel"),
        ({"saved": 10**400}, "its file can't be read"),
        ({"saved": float("inf")}, "it is older than 10 minutes"),
        ({"options": {"memory_limit": 10**400}}, "is not a size"),
    ],
)
def test_what_is_no_good_is_dropped_and_told(kernel: Kernel, changes: dict[str, Any], says: str) -> None:
    file = save(kernel, changes)
    kernel.restart()
    reply = kernel.run("%load_ext gpu_magic")
    assert reply.status == "ok"
    assert reply.stdout.startswith("The choice that was saved before the restart was not applied")
    assert says in reply.stdout
    assert kernel.run(MASK).stdout == "None"
    assert not file.exists()


def test_what_is_kept_is_no_text(kernel: Kernel) -> None:
    file = save(kernel)
    file.write_bytes(b"\xff\xfe{")
    kernel.restart()
    assert kernel.run("%load_ext gpu_magic").stdout.endswith("its file can't be read.\n")
    assert not file.exists()


def test_a_choice_that_was_made_since_is_the_newer_one(kernel: Kernel) -> None:
    save(kernel)
    kernel.restart()
    kernel.run("import gpu_magic; gpu_magic.choose('2')")
    assert "as another choice was made since" in kernel.run("%load_ext gpu_magic").stdout
    assert kernel.run(MASK).stdout == "2"


def test_a_choice_that_was_never_used_goes_when_another_kernel_loads_the_extension(kernel: Kernel) -> None:
    folder = save(kernel).parent
    left = folder / "kernel-of-another.json"
    left.write_text("{}")
    os.utime(left, (0, 0))
    kernel.restart()
    kernel.run("%load_ext gpu_magic")
    assert not left.exists()


def test_a_choice_that_another_kernel_saved_just_now_stays(kernel: Kernel) -> None:
    left = save(kernel).parent / "kernel-of-another.json"
    left.write_text("{}")
    kernel.restart()
    kernel.run("%load_ext gpu_magic")
    assert left.exists()


def test_other_files_of_jupyter_stay(kernel: Kernel) -> None:
    notes = save(kernel).parent.parent / "kernel-notes.json"
    notes.write_text("{}")
    os.utime(notes, (0, 0))
    kernel.restart()
    kernel.run("%load_ext gpu_magic")
    assert notes.exists()


def test_a_saved_choice_is_for_its_own_kernel_alone(
    kernel: Kernel, start_kernel: Callable[..., Kernel]
) -> None:
    file = save(kernel)
    other = start_kernel()
    assert other.run("%load_ext gpu_magic").stdout == ""
    assert file.exists()


def test_a_gpu_that_is_gone_by_then(kernel: Kernel) -> None:
    save(kernel)
    kernel.change_machine(Driver(CARDS).losing(3))
    kernel.restart()
    assert "not applied" in (said := kernel.run("%load_ext gpu_magic").stdout)
    assert "GPU 3" in said or CARDS[3].uuid in said


def test_too_late_after_the_restart_too(kernel: Kernel) -> None:
    save(kernel)
    kernel.restart()
    kernel.run(START_CUDA)
    said = kernel.run("%load_ext gpu_magic").stdout
    assert said.startswith(
        "The choice that was saved before the restart was not applied. CUDA was initialized"
    )


def test_from_the_configuration_it_is_there_before_any_cell(
    start_kernel: Callable[..., Kernel], tmp_path: Path
) -> None:
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_config.py").write_text("c.InteractiveShellApp.extensions = ['gpu_magic']\n")
    kernel = start_kernel()
    assert kernel.run(MASK).stdout == "None"
    save(kernel)
    kernel.restart()
    first = kernel.run(MASK)
    assert first.stdout.startswith("As chosen before the restart:\ncuda:0 = GPU 3 (")
    assert first.stdout.endswith("3,0")
    assert kernel.run(MASK).stdout == "3,0"
    assert kernel.run(START_CUDA).status == "ok"
    assert "in cell [3]" in kernel.run("gpu_magic = __import__('gpu_magic'); print(gpu_magic.guard())").stdout


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%gpus 9 --restart", "There is no GPU 9"),
        ("%gpus 1 --restart --in-process", "An in-process choice needs no restart: use one of the two."),
        ("%gpus 1 --in-process --memory-limit 8 GB", "nor memory limits: omit --memory-limit."),
        ("%gpus --restart", "--restart goes with GPUs; try %gpus 1,3 --restart"),
    ],
)
def test_bad_input_restarts_nothing(kernel: Kernel, line: str, says: str) -> None:
    kernel.run(START_CUDA)
    kernel.run("before = 1")
    assert says in kernel.run(line).stderr
    assert kernel.run("before").text == "1"


def test_a_dry_run_of_a_restart(kernel: Kernel) -> None:
    kernel.run("%gpus 1")
    kernel.run(START_CUDA)
    assert "keeps GPU 1" in kernel.run("%gpus 3 --restart --dry-run").text
    assert (
        kernel.run(
            "from gpu_magic.restart.kernel import saved_choice_file; print(saved_choice_file().exists(), end='')"
        ).stdout
        == "False"
    )
    assert os.environ.get("CUDA_VISIBLE_DEVICES") is None


def test_a_restart_is_logged(kernel: Kernel, tmp_path: Path) -> None:
    log = tmp_path / "log"
    kernel.run(
        "import logging\n"
        f"logging.getLogger('gpu_magic').addHandler(logging.FileHandler({str(log)!r}))\n"
        "logging.getLogger('gpu_magic').setLevel(logging.INFO)"
    )
    kernel.run("%gpus 1")
    kernel.run(START_CUDA)
    kernel.run("%gpus 3 --restart")
    claimed, chosen, too_late, saved, restarted = log.read_text().splitlines()
    assert claimed == f"Claimed: {CARDS[1].uuid}"
    assert chosen.startswith("Chosen: GPU 1 · CUDA_VISIBLE_DEVICES=1")
    assert too_late.startswith("Too late for GPU 3: CUDA initialized in cell [4]")
    assert saved == f"Saved for after a restart: {CARDS[3].uuid}"
    assert restarted == "The kernel is restarted"


def test_where_nobody_has_a_page_the_kernel_ends_itself(kernel: Kernel) -> None:
    kernel.run("%gpus 1")
    kernel.run(START_CUDA)
    reply = kernel.run("import gpu_magic; gpu_magic.choose('3', restart=True); print('not run')")
    assert reply.status == "error"
    assert reply.errors == ["Restarting the kernel; the next %load_ext gpu_magic chooses GPU 3."]
    assert reply.stdout == ""
    deadline = time.monotonic() + LIMIT
    while kernel.is_alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not kernel.is_alive()
    kernel.restart()
    assert kernel.run("%load_ext gpu_magic").stdout.startswith(
        "As chosen before the restart:\ncuda:0 = GPU 3"
    )


def put_fifo(file: Path) -> None:
    os.mkfifo(file)


def put_link(file: Path) -> None:
    kept = file.with_name("kept").rename(file.with_name("elsewhere"))
    file.symlink_to(kept)


def put_file_of_another(file: Path) -> None:
    file.with_name("kept").rename(file)
    os.chown(file, 12345, -1)


# Only root can give a file to another user.
OF_ANOTHER = [put_file_of_another] if os.geteuid() == 0 else []


@pytest.mark.parametrize("put", [put_fifo, put_link, *OF_ANOTHER])
def test_what_is_not_a_file_of_this_user_s_is_removed_unread(
    kernel: Kernel, put: Callable[[Path], None]
) -> None:
    file = save(kernel)
    file.rename(file.with_name("kept"))
    put(file)
    kernel.restart()
    reply = kernel.run("%load_ext gpu_magic")
    assert (
        reply.stdout == f"{NOT_APPLIED}: what stands in the place of its file is not a file of this user's.\n"
    )
    assert kernel.run(MASK).stdout == "None"
    assert not os.path.lexists(file)


def test_deep_json_is_no_traceback(kernel: Kernel) -> None:
    file = save(kernel)
    file.write_text("[" * 60_000)
    kernel.restart()
    reply = kernel.run("%load_ext gpu_magic")
    assert reply.stdout == f"{NOT_APPLIED}: its file can't be read.\n"


if os.geteuid() == 0:  # nobody else can give a folder to another user

    def test_a_folder_of_another_user_s_is_not_written_to(kernel: Kernel) -> None:
        folder = save(kernel).parent
        os.chown(folder, 12345, -1)
        said = kernel.run("%gpus 2 --restart").stderr
        assert said.endswith(f"so nothing was changed: {folder} belongs to another user.\n")


def test_a_choice_is_saved_in_the_runtime_directory_wherever_the_connection_file_is(
    start_kernel: Callable[..., Kernel], tmp_path: Path
) -> None:
    kernel = start_kernel(connection_file=tmp_path / "kernel-elsewhere.json")
    kernel.run("%load_ext gpu_magic")
    assert save(kernel) == tmp_path / "runtime" / "gpu_magic" / "kernel-elsewhere.json"


def run_notebook(native: Path, sockets: str, folder: Path, *cells: str) -> list[Any]:
    """Run cells as nbclient does, also after an error; return the outputs of each."""
    state = folder / "machine"
    Driver(CARDS).write(state)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/nbclient"}})
    client = NotebookClient(notebook, kernel_name="python3", allow_errors=True, timeout=LIMIT, config=config)
    variables = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
    client.execute(env=clean_environment() | environment(native, state) | variables)
    return [cell.outputs for cell in notebook.cells]


def test_nobody_restarts_a_kernel_that_nbclient_runs(native: Path, sockets: str, tmp_path: Path) -> None:
    cells = "%load_ext gpu_magic", START_CUDA, "%gpus 3 --restart", "print('the next cell')"
    *_, restart, after = run_notebook(native, sockets, tmp_path, *cells)
    assert [output["text"] for output in restart] == [
        "UsageError: --restart needs somebody to start the kernel again, and a program runs this notebook (nbclient, "
        "papermill): place %gpus 3 before the first cell that uses CUDA.\n"
    ]
    assert [output["text"] for output in after] == ["the next cell\n"]


def test_the_panel_restarts_no_kernel_of_a_program(native: Path, sockets: str, tmp_path: Path) -> None:
    click = (
        "import gpu_magic\n"
        "from gpu_magic.widget.pending import WaitingChoice, carry_out\n"
        "from gpu_magic.widget.page_messages import Choose\n"
        "print(carry_out(WaitingChoice(Choose('3', True, 'p'), None))[0])"
    )
    *_, said = run_notebook(native, sockets, tmp_path, START_CUDA, click)
    assert said[0]["text"].startswith("--restart needs somebody to start the kernel again")


def test_where_nobody_restarts_a_kernel_no_restart_is_advised(
    native: Path, sockets: str, tmp_path: Path
) -> None:
    *_, refused = run_notebook(native, sockets, tmp_path, "%load_ext gpu_magic", START_CUDA, "%gpus 3")
    said = refused[0]["data"]["text/plain"]
    assert "start the notebook anew and run %gpus 3 before anything starts CUDA" in said
    assert "--restart" not in said
