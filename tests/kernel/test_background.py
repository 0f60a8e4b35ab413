"""`%%on_gpu --background` and `%gpu_tasks`, in a real kernel on four A100s."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import LIMIT, ROOT
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kernel.conftest import Kernel

HERE = version("ipykernel")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# What a cell in the background does until the test says so, by a file.
UNTIL_GO = "import time, pathlib\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.01)\n"
UNTIL_DONE = UNTIL_GO.replace("'go'", "'done'")
VERSIONS = [HERE, *(pytest.param(old, marks=pytest.mark.nightly) for old in ("6.17.1", "6.30.1", "7.3.0"))]
CUINIT = 'import ctypes; ctypes.CDLL("libcuda.so.1").cuInit(0)'


def test_an_interrupt_ends_the_waiting_and_not_the_task(kernel: Kernel, tmp_path: Path) -> None:
    # The task sees when the cell waits for it, and then does what the button for an interrupt does.
    kernel.run(
        "%%on_gpu 1 --background eval\nimport os, signal, sys, threading, traceback\n"
        "main = threading.main_thread().ident\n"
        "def steps():\n"
        "    return [step.name for step in traceback.extract_stack(sys._current_frames()[main])]\n"
        "while steps()[-3:] != ['join', 'wait', 'wait']:\n    pass\n"
        f"signal.pthread_kill(main, signal.SIGINT)\n{UNTIL_GO}42"
    )
    said = "KeyboardInterrupt: eval still runs. To stop it: %gpu_tasks stop eval"
    assert kernel.run("%gpu_tasks wait eval").traceback == said
    assert "eval: running on cuda:1" in kernel.run("%gpu_tasks").said
    (tmp_path / "go").touch()
    assert kernel.run("%gpu_tasks wait eval").said.endswith("\n42\n")


@pytest.mark.parametrize("is_alone", [True, False])
def test_where_it_starts_cuda_its_cell_is_named_and_one_that_ran_meanwhile(
    kernel: Kernel, tmp_path: Path, *, is_alone: bool
) -> None:
    kernel.run("%gpus 2,0")  # cell 2
    until_end = "" if is_alone else UNTIL_GO.replace("'go'", "'end'")
    kernel.run(f"%%on_gpu cpu --background eval\n{UNTIL_GO}{CUINIT}\nopen('done', 'w').close()\n{until_end}")
    if is_alone:
        kernel.run("1 + 1")
        (tmp_path / "go").touch()
        until((tmp_path / "done").exists)
    else:
        kernel.run(f"open('go', 'w').close()\n{UNTIL_DONE}")
        (tmp_path / "end").touch()
    cells = "[3]" if is_alone else "[3] or [4]"
    assert f"cell {cells} started CUDA. This kernel keeps GPU 2" in kernel.run("%gpus 1").text


def test_a_kernel_that_is_shut_down_does_not_wait_for_it(kernel: Kernel) -> None:
    kernel.run("%%on_gpu 1 --background\nimport time\ntime.sleep(600)")
    kernel.client.shutdown()
    until(lambda: not kernel.is_alive())


@pytest.mark.timeout(600)  # may install an older ipykernel first
@pytest.mark.parametrize("version", VERSIONS)
def test_output_comes_below_its_own_cell_also_in_older_ipykernels(
    start_kernel: Callable[..., Kernel], ipykernel: Callable[[str], str], version: str, tmp_path: Path
) -> None:
    kernel = start_kernel() if version == HERE else start_kernel(PYTHONPATH=f"{ipykernel(version)}:{ROOT}")
    cleared = "from IPython.display import clear_output\nclear_output()\nprint('cleared', flush=True)"
    work = "print('printed', flush=True)\ndisplay('displayed')\nimport sys\nprint('warned', file=sys.stderr, flush=True)\n1 / 0"
    cells = {  # each with the end of what it shows
        "%load_ext gpu_magic": "",
        "import ipykernel; ipykernel.__version__": f"<'{version}'>\n",
        f"%%on_gpu cpu --background clear\n{UNTIL_GO}{cleared}": "cleared\n",
        f"%%on_gpu cpu --background eval\n{UNTIL_GO}{work}": "ZeroDivisionError: division by zero\n",
        "print('begins', flush=True)\nopen('go', 'w').close()\nimport gpu_magic\n"
        "for one in gpu_magic.tasks().values():\n    one.join()\nprint('ends')": "ends\n",
        "print('last'); display('displayed, too'); 'value'": "<'value'>\n",
    }
    ends = {kernel.client.execute(cell, stop_on_error=False): end for cell, end in cells.items()}
    shown = dict.fromkeys(ends, "")
    while not all(shown[cell].endswith(end) for cell, end in ends.items()):
        message: dict[str, Any] = kernel.client.get_iopub_msg(timeout=LIMIT)
        cell, content = message["parent_header"].get("msg_id"), message["content"]
        text = content.get("text") or "".join(f"{line}\n" for line in content.get("traceback", ()))
        text = f"<{content['data']['text/plain']}>\n" if "data" in content else text
        if cell in shown:
            shown[cell] = "" if message["msg_type"] == "clear_output" else shown[cell] + _ANSI.sub("", text)
    _, _, cleared, work, other, last = shown.values()
    assert cleared == "cleared\n"
    assert work.startswith("eval: running on the CPU\nprinted\n<'displayed'>\nwarned\n-----")
    assert other == "begins\nends\n"
    assert last == "last\n<'displayed, too'>\n<'value'>\n"


@pytest.mark.timeout(600)  # may install an older ipykernel first
@pytest.mark.parametrize("version", VERSIONS)
def test_the_kernel_s_senders_are_as_before_once_it_has_ended(
    start_kernel: Callable[..., Kernel], ipykernel: Callable[[str], str], version: str
) -> None:
    kernel = start_kernel() if version == HERE else start_kernel(PYTHONPATH=f"{ipykernel(version)}:{ROOT}")
    senders = "(get_ipython().display_pub, get_ipython().displayhook, sys.stdout, sys.stderr)"
    kernel.run(f"import sys\nsenders = {senders}\nbefore = [*map(type, senders)]")
    kernel.run("%load_ext gpu_magic")
    kernel.run("%%on_gpu cpu --background job\nprint('printed')")
    kernel.run("%gpu_tasks wait job")
    assert kernel.run(f"senders == {senders}").text == "True"
    assert kernel.run("before == [*map(type, senders)]").text == "True"
    shown = kernel.run("print('printed')\ndisplay('displayed')\n'value'")
    assert (shown.stdout, shown.text) == ("printed\n", "'displayed''value'")


def test_its_error_of_one_line_fits_a_page(kernel: Kernel) -> None:
    said = (
        "The cell's own error of one line, which has more words than there is room for in a line of the page."
    )
    kernel.run("%load_ext gpu_magic\nimport gpu_magic\nfrom IPython.core.error import UsageError")
    kernel.run(f"%%on_gpu cpu --background job\nraise UsageError({said!r})")
    shown = kernel.run("gpu_magic.tasks()['job'].wait()").traceback
    lines = shown[shown.index("UsageError: The") :].splitlines()
    assert " ".join(" ".join(lines).split()) == f"UsageError: {said}"
    assert max(map(len, lines)) <= 70
