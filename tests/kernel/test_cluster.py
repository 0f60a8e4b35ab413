"""`%gpu_cluster` and `%%px` in a kernel."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.processes import marked, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel, Reply

MASK = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['RANK'], os.environ['WORLD_SIZE'])"
# It waits in C, as a collective does that waits for other ranks: Python does not come to see the signal.
HANGS = "import ctypes, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nctypes.CDLL(None).pause()"


def run_and_interrupt(kernel: Kernel, folder: Path, cell: str, options: str = "") -> Reply:
    """Run a cell in two engines, and interrupt it once it has begun in both."""
    begin = "import os, pathlib; pathlib.Path('begun-' + os.environ['RANK']).touch()"
    return kernel.run_and_interrupt(
        f"%%px {options}\n{begin}\n{cell}", lambda: len(list(folder.glob("begun-*"))) == 2
    )


def test_each_engine_has_its_gpu_alone_in_the_chosen_order(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0")
    started = kernel.run("%gpu_cluster")
    assert started.stdout == (
        "2 engines: 0 = GPU 2 (NVIDIA A100-SXM4-80GB), 1 = GPU 0 (NVIDIA A100-SXM4-80GB)\n"
    )
    reply = kernel.run(f"%%px\n{MASK}")
    assert "[stdout:0 = GPU 2 (NVIDIA A100-SXM4-80GB)] 2 0 2\n" in reply.shown
    assert "[stdout:1 = GPU 0 (NVIDIA A100-SXM4-80GB)] 0 1 2\n" in reply.shown
    assert kernel.run("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])").stdout == "2,0\n"
    table = kernel.run("%gpu_cluster")
    shown = re.sub(r"for \d+ s", "for … s", table.text)
    assert [re.split(r" {2,}", line) for line in shown.splitlines()] == [
        ["Engine", "GPU", "Memory", "State"],
        ["0", "GPU 2 (NVIDIA A100-SXM4-80GB)", "0.5 / 80.0 GiB", "idle for … s"],
        ["1", "GPU 0 (NVIDIA A100-SXM4-80GB)", "0.5 / 80.0 GiB", "idle for … s"],
    ]
    assert (
        kernel.run("%gpu_cluster 3").stderr
        == "UsageError: Engines run already: %gpu_cluster stop ends them.\n"
    )


def test_outputs_in_the_order_of_engines_name_their_gpus_too(kernel: Kernel) -> None:
    kernel.run("%gpu_cluster 2,0")
    label = "GPU {} (NVIDIA A100-SXM4-80GB)"
    reply = kernel.run(f"%%px --no-stream\n{MASK}")
    assert reply.stdout == f"[stdout:0 = {label.format(2)}] \n2 0 2\n[stdout:1 = {label.format(0)}] \n0 1 2\n"
    value = "Out[1 = GPU 0 (NVIDIA A100-SXM4-80GB):"
    assert value in kernel.run("%%px\n1 + 1").shown
    assert value in kernel.run("%%px --no-stream\n1 + 1").shown
    kernel.run(f"%%px --noblock\n{MASK}")
    assert f"[stdout:1 = {label.format(0)}] \n0 1 2\n" in kernel.run("%pxresult").stdout


def test_engines_start_where_cuda_has_been_initialized(kernel: Kernel) -> None:
    kernel.run("import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)")
    assert kernel.run("%gpu_cluster auto:1").stdout.startswith("1 engine: 0 = GPU 0 ")
    assert "[stdout:0 = GPU 0 (NVIDIA A100-SXM4-80GB)] 0 0 1" in kernel.run(f"%%px\n{MASK}").shown


@pytest.mark.parametrize("options", ["", "--no-stream", "--progress-after -1"])
def test_an_interrupt_reaches_the_engines_and_the_next_cell_runs(
    kernel: Kernel, tmp_path: Path, options: str
) -> None:
    kernel.run("%gpu_cluster -n 2")
    reply = run_and_interrupt(kernel, tmp_path, "import time\ntime.sleep(600)", options)
    assert (reply.status, reply.traceback) == ("error", "KeyboardInterrupt")
    assert kernel.run("%%px\nprint('next')").shown.count("next") == 2


def test_an_engine_that_does_not_answer_an_interrupt_is_named_and_can_be_ended(
    kernel: Kernel, tmp_path: Path
) -> None:
    kernel.run("%gpu_cluster -n 2")
    reply = run_and_interrupt(kernel, tmp_path, f"if os.environ['RANK'] == '1':\n    {HANGS}")
    says = (
        "Engine 1 (GPU 1) runs on what was interrupted, in code that does not ask for interrupts: "
        "%gpu_cluster restart 1 starts it anew."
    )
    assert reply.traceback == f"KeyboardInterrupt\n{says}"
    assert kernel.run("%%px\n1").stderr == f"UsageError: {says}\n"
    assert "next" in kernel.run("%%px --targets 0\nprint('next')").shown
    restarted = kernel.run("%gpu_cluster restart 1").stdout
    assert restarted == "1 = GPU 1 (NVIDIA A100-SXM4-80GB) started anew.\n"
    assert "[stdout:1 = GPU 1 (NVIDIA A100-SXM4-80GB)] 1 1 2" in kernel.run(f"%%px\n{MASK}").shown


@pytest.mark.parametrize("options", ["", "--no-stream", "--no-stream --progress-after -1"])
def test_an_engine_that_fails_is_named_while_another_one_goes_on(kernel: Kernel, options: str) -> None:
    """Ranks wait for one that has failed: for 30 minutes when they meet, and without a word on why."""
    kernel.run("%gpu_cluster -n 2")
    cell = "import os, time\nif os.environ['RANK'] == '0':\n    raise ValueError('no port\\nleft')\ntime.sleep(600)"
    says = (
        "Engine 0 (GPU 0) failed: ValueError: no port. 1 other engine still runs. "
        "If it waits for engine 0, interrupt the kernel.\n"
    )
    reply = kernel.run_and_interrupt(f"%%px {options}\n{cell}", lambda: says in kernel.heard)
    assert reply.stderr.count("still runs") == 1
    assert kernel.run("%%px\nprint('next')").shown.count("next") == 2


def test_output_that_came_before_the_cell_looks_is_shown_for_each_engine(kernel: Kernel) -> None:
    kernel.run("%gpu_cluster -n 2")
    kernel.run("%%px --noblock\nprint('next')")
    reply = kernel.run("late = _\nlate.wait_for_output()\nwith late.stream_output():\n    pass")
    assert reply.shown.count("next") == 2, reply


def test_an_engine_that_dies_is_named_and_the_results_of_others_are_kept(kernel: Kernel) -> None:
    kernel.run("%gpu_cluster -n 2")
    dies = "import ctypes, os\nkept = os.environ['RANK']\nif kept == '1':\n    ctypes.string_at(0)"
    reply = kernel.run(f"%%px\n{dies}\nprint('over')")
    first, second, *frames = reply.stderr.splitlines()
    assert first == "Engine 1 (GPU 1): ended by SIGSEGV; %gpu_cluster restart 1 starts it anew."
    assert second == "Fatal Python error: Segmentation fault"
    assert any(re.search(r"line 4 in <module>$", frame) for frame in frames)
    assert reply.shown == "[stdout:0 = GPU 0 (NVIDIA A100-SXM4-80GB)] over\n"
    assert kernel.run("%%px\nkept").stderr == (
        "UsageError: Engine 1 (GPU 1) has ended: %gpu_cluster restart 1 starts it anew, and "
        "%%px --targets 0 runs on the others.\n"
    )
    assert "ended for" in kernel.run("%gpu_cluster").text.splitlines()[2]
    assert kernel.run("%gpu_cluster restart").stdout.startswith("1 = GPU 1 ")
    assert "'0'" in kernel.run("%%px --targets 0\nkept").shown
    assert "NameError" in kernel.run("%%px --targets 1\nkept").stderr


@pytest.mark.parametrize("end", ["killed", "restarted", "ended", "stopped"])
def test_nothing_is_left_behind(start_kernel: Callable[..., Kernel], end: str, tmp_path: Path) -> None:
    mark, files = f"{uuid4()}", tmp_path / "files"
    files.mkdir()
    kernel = start_kernel(MARK=mark, TMPDIR=str(files))
    kernel.run(
        "%load_ext gpu_magic\n%gpu_cluster -n 2\n%px import subprocess; subprocess.Popen(['sleep', '600'])"
    )
    own = 1 if end in ("restarted", "stopped") else 0
    assert len(marked(mark)) > 8
    assert list(files.glob("gpu_magic-*"))
    if end == "killed":
        kernel.run("import os, threading; threading.Timer(0.1, os.kill, (os.getpid(), 9)).start()")
    elif end == "restarted":
        kernel.restart()
    elif end == "ended":
        kernel.end()
    else:
        assert kernel.run("%gpu_cluster stop").stdout == "2 engines ended.\n"
    until(lambda: len(marked(mark)) == own)
    assert not list(files.glob("gpu_magic-*"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("stop", "No engines run here: %gpu_cluster starts one for each GPU."),
        ("restart 1", "No engines run here: %gpu_cluster starts one for each GPU."),
        ("7", "There is no GPU 7"),
        ("stpo", "There is no %gpu_cluster stpo: try %gpu_cluster alone, restart 1 or stop."),
        ("-n 5", "-n 5 with 4 GPUs: from 1 to 4 of them can be used."),
        ("none", "needs a GPU"),
        ("-n many", "-n is a number of GPUs, and not many."),
        ("restart one", "Engines have numbers: %gpu_cluster restart 0,1, and not one."),
        ("--keap", "There is no --keap"),
        ("stop --force", "%gpu_cluster stop takes no options."),
    ],
)
def test_bad_input_is_one_line(kernel: Kernel, line: str, says: str) -> None:
    reply = kernel.run(f"%gpu_cluster {line}")
    assert reply.status == "error"
    assert says in reply.stderr
    assert reply.stderr.count("\n") == 1


def test_without_engines_px_and_map_are_one_line(kernel: Kernel) -> None:
    kernel.run("import gpu_magic\n%gpu_cluster -n 1\n%gpu_cluster stop")
    says = "No engines run here: %gpu_cluster starts one for each GPU."
    assert kernel.run("%px 1").stderr == f"UsageError: {says}\n"
    assert kernel.run("gpu_magic.map(abs, [1])").errors == [says]


def test_an_interrupt_while_engines_start_leaves_nothing(
    start_kernel: Callable[..., Kernel], tmp_path: Path
) -> None:
    mark = f"{uuid4()}"
    kernel = start_kernel(MARK=mark, TMPDIR=str(tmp_path))
    kernel.run("%load_ext gpu_magic")
    reply = kernel.run_and_interrupt("%gpu_cluster", lambda: len(marked(mark)) > 8)
    assert reply.status == "error"
    assert len(marked(mark)) == 1
    assert not list(tmp_path.glob("gpu_magic-*"))
    assert kernel.run("%gpu_cluster -n 1").stdout.startswith("1 engine: ")


def test_engines_that_can_not_start_are_one_line_with_their_last(
    start_kernel: Callable[..., Kernel], tmp_path: Path
) -> None:
    mark = f"{uuid4()}"
    kernel = start_kernel(MARK=mark, TMPDIR=str(tmp_path))
    kernel.run("%load_ext gpu_magic\n%env PYTHONHOME=/nowhere")
    reply = kernel.run("%gpu_cluster")
    assert re.fullmatch(
        r"UsageError: (The controller|Engine \d): failed with exit code 1 while it started\. .+\n",
        reply.stderr,
    )
    assert len(marked(mark)) == 1
    assert not list(tmp_path.glob("gpu_magic-*"))


def test_a_controller_that_dies_is_told_and_nothing_waits_for_it(
    start_kernel: Callable[..., Kernel], tmp_path: Path
) -> None:
    mark = f"{uuid4()}"
    kernel = start_kernel(MARK=mark)
    kernel.run("%load_ext gpu_magic\n%gpu_cluster -n 2")

    def kill() -> bool:
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in marked(mark)}
        for pid, line in lines.items():
            if b"ipyparallel.controller" in line and b"-I" not in line:
                os.kill(pid, signal.SIGKILL)
        return True

    begun = tmp_path / "begun"
    code = f"%%px\nimport pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(600)"
    reply = kernel.run_and_interrupt(code, lambda: begun.exists() and kill())
    assert (
        "The controller of the engines: ended by SIGKILL; %gpu_cluster stop, and start anew.\n"
        in reply.stderr
    )
    says = "UsageError: The controller of the engines has ended: %gpu_cluster stop, and start anew.\n"
    assert kernel.run("%%px\n1").stderr == says
    assert kernel.run("%gpu_cluster").stderr == says
    assert kernel.run("%gpu_cluster stop").stdout == "2 engines ended.\n"
    assert kernel.run("%gpu_cluster -n 1").stdout.startswith("1 engine: ")
