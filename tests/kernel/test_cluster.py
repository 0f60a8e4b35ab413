"""`%gpu_cluster` and `%%px` in a kernel."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from IPython.core.error import UsageError

from gpu_magic.testing import simulate
from tests.processes import marked, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Typed
    from tests.kernel.conftest import Kernel, Reply

MASK = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['RANK'], os.environ['WORLD_SIZE'])"
# It waits in C, as a collective does that waits for other ranks: Python does not come to see the signal.
HANGS = "import ctypes, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nctypes.CDLL(None).pause()"


# The ways in which ipyparallel shows outputs; the last two are rarer.
SHOWN = [
    "",
    *(pytest.param(one, marks=pytest.mark.nightly) for one in ("--no-stream", "--progress-after -1")),
]
LABEL = "GPU {} (NVIDIA A100-SXM4-80GB)"


def run_and_interrupt(
    kernel: Kernel, cell: str, options: str = "", also: Callable[[], bool] = lambda: True
) -> Reply:
    """Run a cell in two engines, and interrupt it once it has begun in both, and something else is true."""
    for file in kernel.folder.glob("begun-*"):
        file.unlink()
    begin = "import os, pathlib; pathlib.Path('begun-' + os.environ['RANK']).touch()"
    return kernel.run_and_interrupt(
        f"%%px {options}\n{begin}\n{cell}",
        lambda: len(list(kernel.folder.glob("begun-*"))) == 2 and also(),
    )


def test_each_engine_has_its_gpu_alone_in_the_chosen_order(engines: Kernel) -> None:
    reply = engines.run(f"%%px\n{MASK}")
    assert f"[stdout:0 = {LABEL.format(2)}] 2 0 2\n" in reply.shown
    assert f"[stdout:1 = {LABEL.format(0)}] 0 1 2\n" in reply.shown
    assert engines.run("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])").stdout == "2,0\n"
    check = "import os; print('check', os.environ.get('PYTORCH_NVML_BASED_CUDA_CHECK'))"
    assert engines.run(check).stdout == "check 1\n"  # which engines do not need
    assert engines.run(f"%%px\n{check}").shown.count("check None\n") == 2
    shown = engines.run("%gpu_cluster").text
    assert [re.split(r" {2,}", line) for line in shown.splitlines()] == [
        ["Engine", "GPU", "Memory", "State"],
        ["0", LABEL.format(2), "0.5 / 80.0 GiB", "idle"],
        ["1", LABEL.format(0), "0.5 / 80.0 GiB", "idle"],
    ]
    wrong = engines.run("%gpu_cluster restart one").refusal
    assert wrong == "UsageError: one is not an engine's number. Try %gpu_cluster restart 0,1"
    no_word = engines.run("%gpu_cluster stpo").refusal
    assert no_word.endswith("no %gpu_cluster stpo. Did you mean %gpu_cluster stop?")
    again = engines.run("%gpu_cluster 3").refusal
    assert again == "UsageError: Engines already run. To end them: %gpu_cluster stop"


def test_outputs_in_the_order_of_engines_name_their_gpus_too(engines: Kernel) -> None:
    reply = engines.run(f"%%px --no-stream\n{MASK}")
    assert reply.stdout == f"[stdout:0 = {LABEL.format(2)}] \n2 0 2\n[stdout:1 = {LABEL.format(0)}] \n0 1 2\n"
    value = f"Out[1 = {LABEL.format(0)}:"
    assert value in engines.run("%%px\n1 + 1").shown
    assert value in engines.run("%%px --no-stream\n1 + 1").shown
    engines.run(f"%%px --noblock\n{MASK}")
    assert f"[stdout:1 = {LABEL.format(0)}] \n0 1 2\n" in engines.run("%pxresult").stdout
    # What came before the cell looks is shown for each engine.
    engines.run("%%px --noblock\nprint('next')")
    reply = engines.run("late = _\nlate.wait_for_output()\nwith late.stream_output():\n    pass")
    assert reply.shown.count("next") == 2, reply


def test_with_another_ipyparallel_outputs_name_no_gpus_and_cells_run(engines: Kernel) -> None:
    """It would not call what shows outputs by this name."""
    engines.run(
        "from gpu_magic.cluster.px import PxResult\n"
        "shows = PxResult._iopub_streaming_output_callback\n"
        "del PxResult._iopub_streaming_output_callback"
    )
    try:
        reply = engines.run("%%px\nprint('next')")
        # ipyparallel shows what came before it looks, of all engines, in one output, one after another.
        assert (reply.status, reply.text.count("[stdout:0] next")) == ("ok", 1)
    finally:
        engines.run("PxResult._iopub_streaming_output_callback = shows")


def test_what_engines_wrote_is_shown_also_if_it_comes_late(engines: Kernel) -> None:
    """ipyparallel lets a cell end two seconds after its begin, if it has its results by then."""
    engines.run("""
        import functools, threading
        from gpu_magic.cluster.cluster import current_cluster
        client = current_cluster().client
        listen = functools.partial(client._iopub_stream.on_recv, client._dispatch_iopub, copy=False)
        client._io_loop.add_callback(client._iopub_stream.stop_on_recv)
        threading.Timer(3, client._io_loop.add_callback, [listen]).start()
    """)
    assert engines.run("%%px\nprint('late')").shown.count("late") == 2


def test_engines_write_on_when_no_more_of_it_fits_into_a_file(engines: Kernel) -> None:
    """ipykernel's thread that reads what is written then ended at the first error. All that wrote waited forever."""
    reply = engines.run(
        "%%px --targets 0\n"
        "import resource, sys\n"
        "before = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))\n"
        "for _ in range(10):\n"
        "    sys.__stdout__.write('x' * 65535)\n"
        "    sys.__stdout__.flush()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, before)\n"
        "print('over')"
    )
    assert (reply.status, "over" in reply.shown + reply.updated) == ("ok", True)


@pytest.mark.parametrize("options", SHOWN)
def test_an_interrupt_reaches_the_engines_and_the_next_cell_runs(engines: Kernel, options: str) -> None:
    reply = run_and_interrupt(engines, "import time\ntime.sleep(600)", options)
    assert (reply.status, reply.traceback) == ("error", "KeyboardInterrupt")
    assert engines.run("%%px\nprint('next')").shown.count("next") == 2


def test_an_interrupt_that_comes_while_an_engine_replies_does_not_cost_the_engine(engines: Kernel) -> None:
    """ipykernel then sends no reply."""
    reply = run_and_interrupt(
        engines,
        """if os.environ["RANK"] == "1":
            session = get_ipython().kernel.session
            def waits(stream, kind, *args, send=session.send, **options):
                if kind == "execute_reply":
                    session.send = send
                    pathlib.Path("replies").touch()
                    __import__("time").sleep(600)
                return send(stream, kind, *args, **options)
            session.send = waits""",
        also=(engines.folder / "replies").exists,
    )
    assert (reply.status, reply.traceback) == ("error", "KeyboardInterrupt")
    assert engines.run("%%px\nprint('next')").shown.count("next") == 2


def test_a_cell_right_after_an_interrupt_runs_in_all_engines(engines: Kernel) -> None:
    """ipykernel drops cells that arrive while it sends the reply to one that failed."""
    engines.run("""%%px
        kernel = get_ipython().kernel
        def sends(*args, flush=kernel.shell_stream.flush):
            flush(*args)
            if kernel._aborting:
                kernel.shell_stream.flush = flush
                __import__("time").sleep(1)
                flush(*args)
        kernel.shell_stream.flush = sends""")
    assert run_and_interrupt(engines, "import time\ntime.sleep(600)").traceback == "KeyboardInterrupt"
    assert engines.run("%%px\nprint('next')").shown.count("next") == 2


@pytest.mark.parametrize("options", [*SHOWN, "--noblock"])
def test_a_cell_that_an_engine_drops_behind_a_failed_one_is_an_error(engines: Kernel, options: str) -> None:
    engines.run("%%px --noblock --targets 1\nimport time\ntime.sleep(0.5)\nraise ValueError")
    reply = engines.run(f"%%px {options}\nprint('next')")
    if options == "--noblock":
        reply = engines.run("%pxresult")
    else:
        assert f"[stdout:0 = {LABEL.format(2)}]" in reply.shown + reply.stdout
    why = "has not run the cell, because an earlier cell failed or was interrupted."
    assert f"UsageError: Engine 1 (GPU 0) {why}\n" in reply.stderr
    assert engines.run("%%px\nprint('next')").shown.count("next") == 2


def test_an_engine_that_does_not_answer_an_interrupt_is_named_and_can_be_ended(engines: Kernel) -> None:
    cell = f"if os.environ['RANK'] == '0':\n    raise ValueError\n{HANGS}"
    reply = run_and_interrupt(engines, cell, also=lambda: "1 other engine still runs" in engines.heard)
    says = "Engine 1 (GPU 0) does not respond to the interrupt. To restart it: %gpu_cluster restart 1"
    assert reply.traceback == f"KeyboardInterrupt\n{says}"
    assert engines.run("%%px\n1").stderr == f"UsageError: {says}\n"
    assert "next" in engines.run("%%px --targets 0\nprint('next')").shown
    assert engines.run("%gpu_cluster restart 1").said == f"Restarted: 1 = {LABEL.format(0)}.\n"
    assert f"[stdout:1 = {LABEL.format(0)}] 0 1 2" in engines.run(f"%%px\n{MASK}").shown


@pytest.mark.parametrize("options", SHOWN)
def test_an_engine_that_fails_is_named_while_another_one_goes_on(engines: Kernel, options: str) -> None:
    """Ranks wait for one that has failed: for 30 minutes when they meet, and without a word on why."""
    cell = "import os, time\nif os.environ['RANK'] == '0':\n    raise ValueError('no port\\nleft')\ntime.sleep(600)"
    says = (
        "Engine 0 (GPU 2) failed: ValueError: no port. 1 other engine still runs. "
        "If it waits for engine 0, interrupt the kernel.\n"
    )
    reply = engines.run_and_interrupt(f"%%px {options}\n{cell}", lambda: says in engines.heard)
    assert reply.stderr.count("still runs") == 1
    assert engines.run("%%px\nprint('next')").shown.count("next") == 2


def test_an_engine_that_dies_is_named_and_the_results_of_others_are_kept(engines: Kernel) -> None:
    # Its guardian, which tells how it has ended, is late: the controller of the engines knows it before.
    late = "f'kill -STOP {os.getppid()}; (sleep 1; kill -CONT {os.getppid()}) &'"
    dies = f"import ctypes, os\nkept = os.environ['RANK']\nif kept == '1':\n    os.system({late})\n    ctypes.string_at(0)"
    reply = engines.run(f"%%px\n{dies}\nprint('over')")
    first, second, *frames = reply.stderr.splitlines()
    assert first == "Engine 1 (GPU 0): ended by SIGSEGV. To restart it: %gpu_cluster restart 1"
    assert second == "Fatal Python error: Segmentation fault"
    assert any(re.search(r"line 5 in <module>$", frame) for frame in frames)
    assert reply.shown == f"[stdout:0 = {LABEL.format(2)}] over\n"
    assert engines.run("%%px\nkept").stderr == (
        "UsageError: Engine 1 (GPU 0) has ended. To restart it: %gpu_cluster restart 1. "
        "To use the others: %%px --targets 0\n"
    )
    assert engines.run("%gpu_cluster").text.splitlines()[2].endswith("ended")
    assert engines.run("%gpu_cluster restart").said.startswith("Restarted: 1 = GPU 0 ")
    assert "'0'" in engines.run("%%px --targets 0\nkept").shown
    assert "NameError" in engines.run("%%px --targets 1\nkept").stderr


@pytest.mark.parametrize(
    "end",
    ["killed", "stopped", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("restarted", "ended"))],
)
def test_nothing_is_left_behind(start_kernel: Callable[..., Kernel], end: str, tmp_path: Path) -> None:
    mark, files = f"{uuid4()}", tmp_path / "files"
    files.mkdir()
    kernel = start_kernel(MARK=mark, TMPDIR=str(files))
    kernel.load().run(
        "import ctypes, gpu_magic; ctypes.CDLL('libcuda.so.1').cuInit(0)"
    )  # engines start all the same
    kernel.run("%gpu_cluster -n 2\n%px import subprocess; subprocess.Popen(['sleep', '600'])")
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
        assert kernel.run("%gpu_cluster stop").said == "2 engines ended.\n"
        says = "No engines run. To start one for each GPU: %gpu_cluster"
        assert kernel.run("%px 1").stderr == f"UsageError: {says}\n"
        assert kernel.run("gpu_magic.map(abs, [1])").errors == [says]
    until(lambda: len(marked(mark)) == own)
    assert not list(files.glob("gpu_magic-*"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("stop", "No engines run. To start one for each GPU: %gpu_cluster"),
        ("restart 1", "No engines run. To start one for each GPU: %gpu_cluster"),
        ("7", "There is no GPU 7"),
        ("stpo", "There is no %gpu_cluster stpo. To start engines: %gpu_cluster"),
        ("-n 5", "-n 5 does not fit 4 GPUs. Try -n 4"),
        ("none", "A launch needs a GPU. Try %gpu_cluster 0,1"),
        ("-n many", "-n many is not a number of GPUs. Try -n 1"),
        ("--keap", "There is no --keap"),
        (
            "--profile nobodys",
            "There is no IPython profile nobodys. To make one: ipython profile create --parallel",
        ),
        ("2,0 --profile x", "--profile goes only with -n."),
        ("stop --force", "%gpu_cluster stop takes no options."),
    ],
)
def test_bad_input_is_one_line(typed: Typed, line: str, says: str) -> None:
    with simulate("4xA100-80GB"):
        done = typed(f"%gpu_cluster {line}")
    assert isinstance(done.error, UsageError)
    assert says in done.text
    assert done.text.count("\n") == 1


@pytest.mark.nightly  # a race that other tests of interrupts have too
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
    assert kernel.run("%gpu_cluster -n 1").said.startswith("1 engine: ")


@pytest.mark.nightly  # ten seconds
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
        "The controller of the engines: ended by SIGKILL. To start again: %gpu_cluster stop, then %gpu_cluster\n"
        in reply.stderr
    )
    says = "UsageError: The controller of the engines has ended. To start again: %gpu_cluster stop, then %gpu_cluster"
    assert kernel.run("%%px\n1").refusal == says
    assert kernel.run("%gpu_cluster").refusal == says
    assert kernel.run("%gpu_cluster stop").said == "2 engines ended.\n"
    assert kernel.run("%gpu_cluster -n 1").said.startswith("1 engine: ")
