"""A restart that keeps the choice: the saved file, what may stand in its place, and where nobody restarts a kernel."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets.config import Config

from tests.conftest import LIMIT, ROOT
from tests.machine import CARDS, Driver, clean_environment, environment
from tests.processes import needs_root, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

MASK = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), end='')"
START_CUDA = "import ctypes; _ = ctypes.CDLL('libcuda.so.1').cuInit(0)"


def save(kernel: Kernel, *, request: str = "3,0", options: str = "") -> Path:
    """Keep a choice as a restart does; return its file."""
    kernel.run("%gpus 1")
    kernel.run(START_CUDA)
    assert (
        kernel.run(
            "from gpu_magic.gpus.apply import apply\n"
            "from gpu_magic.process.session import current\n"
            "from gpu_magic.restart.saved import save\n"
            "from gpu_magic.gpus.options import Options\n"
            f"late = apply(current(), {request!r}, Options(growth=True, {options})).too_late; save(late.request, late.devices, late.options.to_save)"
        ).status
        == "ok"
    )
    file = Path(
        kernel.run(
            "from gpu_magic.restart.saved import saved_choice_file; print(saved_choice_file(), end='')"
        ).stdout
    )
    kept = json.loads(file.read_text())
    assert len(kept["request"].split(",")) == 2
    assert file.stat().st_mode & 0o077 == 0
    return file


def test_what_auto_has_picked_within_bounds_is_applied(kernel: Kernel) -> None:
    save(kernel, request="auto:2", options="only_free=True, min_free='20GB'")
    kernel.restart()
    assert "cuda:1 = GPU" in kernel.run("%load_ext gpu_magic").said


def test_no_gpu_is_still_no_gpu_after_a_restart(kernel: Kernel) -> None:
    kernel.run(
        "from gpu_magic.restart.saved import save, saved_choice_file\n"
        "save('none', (), {}, dry_run=False); print(saved_choice_file(), end='')"
    )
    kernel.restart()
    said = kernel.run("%load_ext gpu_magic").said
    assert "was not applied" not in said
    assert kernel.run("import os; os.environ['CUDA_VISIBLE_DEVICES']").text in ("''", "'-1'")


def test_another_kernel_removes_a_choice_that_was_never_used_and_nothing_else(kernel: Kernel) -> None:
    folder = save(kernel).parent
    old, new = folder / "kernel-of-another.json", folder / "kernel-of-a-third.json"
    notes = folder.parent / "kernel-notes.json"  # Jupyter's
    for file in (old, new, notes):
        file.write_text("{}")
    for file in (old, notes):
        os.utime(file, (0, 0))
    kernel.restart()
    kernel.run("%load_ext gpu_magic")
    assert [file.exists() for file in (old, new, notes)] == [False, True, True]


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
    assert first.said.startswith("Applied the choice from before the restart:\ncuda:0 = GPU 3 (")
    assert first.stdout.endswith("3,0")
    assert kernel.run(MASK).stdout == "3,0"
    assert kernel.run(START_CUDA).status == "ok"
    assert "in cell [3]" in kernel.run("gpu_magic = __import__('gpu_magic'); print(gpu_magic.guard())").stdout


def test_a_restart_that_is_only_tried_saves_nothing(kernel: Kernel) -> None:
    kernel.run(f"%gpus 2\n{START_CUDA}; before = 1\nfrom gpu_magic.restart.saved import saved_choice_file")
    would = "Dry run: would restart the kernel. Variables would be lost.\n"
    # A user who types this already knows the way of "Too late".
    assert kernel.run("%gpus 3,0 --restart --dry-run --strict").said == (
        "cuda:0 = GPU 3 (NVIDIA A100-SXM4-80GB, 79 GiB free)\ncuda:1 = GPU 0 (NVIDIA A100-SXM4-80GB, 79 GiB free)\n"
        f"{would}"
    )
    assert kernel.run("%gpus reset --restart --dry-run").said == would
    assert kernel.run("before, saved_choice_file().exists()").text == "(1, False)"


def test_the_button_below_too_late_is_hidden_until_a_page_shows_it(kernel: Kernel) -> None:
    kernel.run(START_CUDA)
    shown = kernel.run("%gpus 3,0 --growth").html
    assert "hidden class='gm-rerun'" in shown
    assert "data-request='3,0 --growth'" in shown
    assert "gm-rerun" not in kernel.run("%gpus 3 --force").html  # an option that a page has not


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
    assert too_late.startswith("Too late for GPU 3: CUDA started in cell [4]")
    assert saved == f"Saved for after a restart: {CARDS[3].uuid}"
    assert restarted == "The kernel is restarted"


def test_where_nobody_has_a_page_the_kernel_ends_itself(kernel: Kernel) -> None:
    kernel.run("%gpus 1")
    kernel.run(START_CUDA)
    reply = kernel.run("import gpu_magic; gpu_magic.choose('3', restart=True); print('not run')")
    assert reply.status == "error"
    assert reply.errors == ["Restarting the kernel. The next %load_ext gpu_magic chooses GPU 3."]
    assert reply.stdout == ""
    until(lambda: not kernel.is_alive())
    kernel.restart()
    assert kernel.run("%load_ext gpu_magic").said.startswith(
        "Applied the choice from before the restart:\ncuda:0 = GPU 3"
    )
    # The cell above the restart, when the cells run again, does not undo it.
    kept = "GPU 3, as chosen with --restart. To choose 1 instead, run this again.\n"
    assert kernel.run("%gpus 1").said == kept
    assert kernel.run("%gpus 1").said.startswith("cuda:0 = GPU 1")


@needs_root
def test_a_folder_of_another_user_s_is_not_written_to(kernel: Kernel) -> None:
    folder = save(kernel).parent
    os.chown(folder, 12345, -1)
    said = kernel.run("%gpus 2 --restart").refusal
    assert said.endswith(f"so nothing was changed: {folder} belongs to another user.")


def test_a_choice_is_saved_in_the_runtime_directory_wherever_the_connection_file_is(
    start_kernel: Callable[..., Kernel], tmp_path: Path
) -> None:
    kernel = start_kernel(connection_file=tmp_path / "kernel-elsewhere.json")
    kernel.run("%load_ext gpu_magic")
    assert save(kernel) == tmp_path / "runtime" / "gpu_magic" / "kernel-elsewhere.json"


def run_notebook(native: Path, sockets: str, folder: Path, *cells: str) -> list[Any]:
    """Run cells as nbclient does, also after an error; return the outputs of each."""
    import nbformat  # over a second, which those who run other tests need not wait for
    from nbclient import NotebookClient

    state = folder / "machine"
    Driver(CARDS).write(state)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/nbclient"}})
    client = NotebookClient(notebook, kernel_name="python3", allow_errors=True, timeout=LIMIT, config=config)
    variables = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
    client.execute(env=clean_environment() | environment(native, state) | variables)
    return [cell.outputs for cell in notebook.cells]


def test_nobody_restarts_a_kernel_that_nbclient_runs(native: Path, sockets: str, tmp_path: Path) -> None:
    click = (
        "import gpu_magic\n"
        "panel = gpu_magic.panel()\n"
        "panel.state.choosing.choose('3', restart=True, page='p')\n"
        "panel.state.choosing.when_idle(before_cell=False)\n"
        "print(panel.state.state()['said']['text'])"
    )
    cells = "%load_ext gpu_magic", START_CUDA, "%gpus 3 --restart", "%gpus 3", click
    *_, restart, refused, clicked = run_notebook(native, sockets, tmp_path, *cells)
    assert [output["text"] for output in restart] == [
        "UsageError: A program runs this notebook (nbclient, papermill),\n"
        "so --restart does not work here. Before the first cell that uses CUDA,\nrun %gpus 3\n"
    ]
    said = refused[0]["data"]["text/plain"]
    assert "To use only GPU 3, run the notebook again. Before CUDA starts: %gpus 3" in said
    assert "--restart" not in said  # nobody would do it
    assert "gm-rerun" not in refused[0]["data"]["text/html"]
    assert clicked[0]["text"].startswith("A program runs this notebook")
