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
CUINIT = 'import ctypes; ctypes.CDLL("libcuda.so.1").cuInit(0)'


class Outputs:
    """Runs cells, and keeps what comes for each of them, whenever it comes."""

    def __init__(self, kernel: Kernel) -> None:
        self._client, self._outputs = kernel.client, {}
        self._ended: set[str] = set()

    def run(self, code: str) -> str:
        """Run a cell to its end; return by what its output is known."""
        cell = self.start(code)
        self._listen(lambda: cell in self._ended)
        while self._client.get_shell_msg(timeout=LIMIT)["parent_header"].get("msg_id") != cell:
            pass
        return cell

    def start(self, code: str) -> str:
        cell: str = self._client.execute(code, stop_on_error=False)
        self._outputs[cell] = ""
        return cell

    def of(self, cell: str, ends: str = "") -> str:
        """Return a cell's output, once it ends so."""
        self._listen(lambda: self._outputs[cell].endswith(ends))
        return self._outputs[cell]

    def _listen(self, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            message: dict[str, Any] = self._client.get_iopub_msg(timeout=LIMIT)
            cell, kind, content = (
                message["parent_header"].get("msg_id"),
                message["msg_type"],
                message["content"],
            )
            if kind == "status" and content["execution_state"] == "idle":
                self._ended.add(cell)
            if cell not in self._outputs:
                continue
            if kind == "stream":
                self._outputs[cell] += _ANSI.sub("", content["text"])
            elif kind in ("display_data", "execute_result"):
                self._outputs[cell] += f"<{content['data']['text/plain']}>\n"
            elif kind == "error":
                self._outputs[cell] += _ANSI.sub("", "\n".join(content["traceback"])) + "\n"
            elif kind == "clear_output":
                self._outputs[cell] = ""


def test_an_interrupt_ends_the_waiting_and_not_the_task(kernel: Kernel, tmp_path: Path) -> None:
    outputs = Outputs(kernel)
    # The task sees when the cell waits for it, and then does what the button for an interrupt does.
    outputs.run(
        "%%on_gpu 1 --background eval\nimport os, signal, sys, threading, traceback\n"
        "main = threading.main_thread().ident\n"
        "def steps():\n"
        "    return [step.name for step in traceback.extract_stack(sys._current_frames()[main])]\n"
        "while steps()[-3:] != ['join', 'wait', 'wait']:\n    pass\n"
        f"signal.pthread_kill(main, signal.SIGINT)\n{UNTIL_GO}42"
    )
    said = "KeyboardInterrupt: still running: eval. To stop: %gpu_tasks stop eval\n"
    assert outputs.of(outputs.run("%gpu_tasks wait eval")) == said
    assert "eval: running on cuda:1" in outputs.of(outputs.run("%gpu_tasks"))
    (tmp_path / "go").touch()
    assert outputs.of(outputs.run("%gpu_tasks wait eval"), ">\n").endswith("<42>\n")


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
    cells = "[3], and this process keeps GPU 2" if is_alone else "[3] or [4], and "
    assert f"CUDA was initialized in cell {cells}" in kernel.run("%gpus 1").text


def test_a_kernel_that_is_shut_down_does_not_wait_for_it(kernel: Kernel) -> None:
    kernel.run("%%on_gpu 1 --background\nimport time\ntime.sleep(600)")
    kernel.client.shutdown()
    until(lambda: not kernel.is_alive())


@pytest.mark.timeout(600)  # may install an older ipykernel first
@pytest.mark.parametrize("version", [HERE, "6.17.1", "6.30.1", "7.3.0"])
def test_output_comes_below_its_own_cell_also_in_older_ipykernels(
    start_kernel: Callable[..., Kernel], ipykernel: Callable[[str], str], version: str, tmp_path: Path
) -> None:
    outputs = Outputs(
        start_kernel() if version == HERE else start_kernel(PYTHONPATH=f"{ipykernel(version)}:{ROOT}")
    )
    outputs.run("%load_ext gpu_magic")
    assert outputs.of(outputs.run("import ipykernel; ipykernel.__version__")) == f"<'{version}'>\n"
    cleared = outputs.run(
        f"%%on_gpu cpu --background clear\n{UNTIL_GO}from IPython.display import clear_output\n"
        "clear_output()\nprint('cleared', flush=True)"
    )
    task = outputs.run(
        f"%%on_gpu cpu --background eval\n{UNTIL_GO}print('printed', flush=True)\ndisplay('displayed')\n"
        "import sys\nprint('warned', file=sys.stderr, flush=True)\n1 / 0"
    )
    other = outputs.run(
        "print('begins', flush=True)\nopen('go', 'w').close()\nimport gpu_magic\n"
        "for one in gpu_magic.tasks().values():\n    one.join()\nprint('ends')"
    )
    last = outputs.run("print('last'); display('displayed, too'); 'value'")
    assert outputs.of(cleared, "cleared\n") == "cleared\n"
    text = outputs.of(task, "ZeroDivisionError: division by zero\n")
    assert text.startswith("eval: running on the CPU\nprinted\n<'displayed'>\nwarned\n-----")
    assert outputs.of(other, "ends\n") == "begins\nends\n"
    assert outputs.of(last, "<'value'>\n") == "last\n<'displayed, too'>\n<'value'>\n"
