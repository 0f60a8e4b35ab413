"""`%where`, `%gpu_free` and an out-of-memory error in a shell, on a simulated machine with a framework of the tests."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import weakref
from typing import TYPE_CHECKING

import pynvml
import pytest

import gpu_magic
from gpu_magic.devices.model import UNKNOWN
from gpu_magic.objects.memory import shortage_lines
from gpu_magic.objects.walk import Budget, Walker
from tests.eight_gpus import COUNT, Array, EightGpus, NoMemoryError, registered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.testing import Machine
    from tests.conftest import Fresh, Typed

    Run = Callable[[str], list[str]]

MIB = 1 << 20
A100 = "(SIMULATED NVIDIA A100-SXM4-80GB)"


pytestmark = pytest.mark.machine(f"{COUNT}xA100-80GB")


@pytest.fixture
def framework(tmp_path: Path, machine: Machine) -> Iterator[EightGpus]:
    with registered(tmp_path) as framework:
        yield framework


@pytest.fixture
def run(framework: EightGpus, shell: InteractiveShell, typed: Typed) -> Run:
    """Return a way to run a cell in a shell that has the extension; the lines that it printed."""
    shell.run_line_magic("xmode", "Minimal")
    shell.push({"Array": Array, "NoMemoryError": NoMemoryError, "EightGpus": framework})
    return lambda cell: typed(cell).text.splitlines()


def reads() -> float:
    """Return how often the machine was read: each time every GPU is asked for its memory."""
    calls = pynvml.nvmlLib.calls
    return sum(count for name, count in calls.items() if name.startswith("nvmlDeviceGetMemoryInfo")) / COUNT


MOVED = "SIMULATED NVIDIA A100-SXM4-80GB"
ON_GPU = f"--only {EightGpus.module}"


@pytest.mark.parametrize(
    ("cell", "times", "said"),
    [
        ("gpu_magic.devices_of(cpu)", 0, "the CPU: 1.0 MiB"),
        ("gpu_magic.devices_of([x, y], cpu)", 1, MOVED),
        ("dict(gpu_magic.devices_of(x, cpu))", 1, f"{{'cpu': {MIB}, 'cuda:3': {MIB}}}"),
        ("%where cpu", 0, "the CPU: 1.0 MiB"),
        ("%where", 1, MOVED),
        ("%where x y", 1, MOVED),
        *(
            (f"%to_gpu cpu y {options}", 1, MOVED)
            for options in ("", "--device 3", "--device smi:3", "--dry-run")
        ),
        ("%to_gpu --all", 1, MOVED),
        ("%to_cpu x", 0, "1.0 MiB moved to the CPU."),
        ("gpu_magic.to_gpu(cpu, 2).ordinal", 1, "2"),
        ("EightGpus.free = 1 << 30\ngpu_magic.to_gpu(cpu, 2).ordinal", 0, "2"),
        # Other tests of this process may have imported PyTorch, which has no GPU here.
        (f"with gpu_magic.on_gpu('smi:3', only={EightGpus.module!r}): print('there')", 1, "there"),
        (f"%%on_gpu smi:3 {ON_GPU} -v\n1", 1, MOVED),
        (f"%%on_gpu smi:3 {ON_GPU} --background b\n1", 1, MOVED),
        ("%gpu_free", 2, f"cuda:0 = GPU 0 {A100}: 1.0 MiB → 1.0 MiB in use"),
        ("%gpu_free --dry-run", 1, "Still held by"),
        ("EightGpus.reserved = 0\n%gpu_free", 1, "No framework has memory on a GPU here."),
        ("raise NoMemoryError(2, 1 << 30)", 1, "Out of memory on cuda:2 = GPU 2"),
    ],
)
def test_the_machine_is_read_as_seldom_as_can_be(
    run: Run, framework: EightGpus, cell: str, times: int, said: str
) -> None:
    framework.reserved = MIB
    run("import gpu_magic\nx, y, cpu = Array(3), [Array(1)], Array(None)")
    with subprocess.Popen(["sleep", "600"]) as child:  # which could have memory
        assert said in "\n".join(run(cell))
        child.kill()
    assert reads() == times


# Where


def test_where_lists_what_holds_arrays_or_what_is_named(run: Run) -> None:
    assert run("%where") == ["No variable holds arrays of an imported framework."]
    run("x, y, _private, z = Array(3), [Array(1), Array(None)], Array(1), [3, globals()]")
    found = [
        f"x  cuda:3 = GPU 3 {A100}: 1.0 MiB",
        "y  the CPU: 1.0 MiB",
        f"   cuda:1 = GPU 1 {A100}: 1.0 MiB",
    ]
    assert run("%where") == found
    assert run("%where x y z") == [*found, "z  no arrays"]
    assert run("%where [x,x]") == [f"[x,x]  {found[0][3:]}"]
    for line, error in (
        ("nothing", "nothing is not a variable here. %where lists all."),
        ("1 +", "+ is not an expression. Separate several by spaces or commas. %where lists"),
    ):
        (said,) = run(f"%where {line}")
        assert said.startswith(f"UsageError: {error}")


def test_where_without_pytorch_does_not_load_what_is_about_it(fresh: Fresh) -> None:
    code = "import sys, gpu_magic; gpu_magic.devices_of([1]); print('gpu_magic.frameworks.pytorch' in sys.modules)"
    assert fresh(code) == "False\n"


def test_what_was_looked_at_is_kept_by_nothing_and_the_collector_stays_off(framework: EightGpus) -> None:
    array = Array(0)
    held, living = [array], weakref.ref(array)
    gc.disable()
    try:
        gpu_magic.devices_of(held)
        del held, array
        assert living() is None
        assert not gc.isenabled()
    finally:
        gc.enable()


# Free


def test_outputs_and_the_last_error_are_dropped_and_variables_are_named(
    run: Run, shell: InteractiveShell
) -> None:
    run("x = Array(0)")
    run("Array(1, 4 << 20)")
    run("x")
    run("def f():\n    big = Array(2, 2 << 20)\n    1 / 0\nf()")
    told = "Out[2] (4.0 MiB) and the last error's traceback (2.0 MiB)."
    assert run("%gpu_free --dry-run") == [f"Would drop {told}", "Still held by x (1.0 MiB)."]
    assert run("%gpu_free")[0] == f"Dropped {told}"
    assert 2 not in shell.user_ns["Out"]
    assert "_2" not in shell.user_ns
    assert shell.user_ns["Out"][3] is shell.user_ns["x"]
    assert run("%gpu_free --dry-run")[0] == "No output and no traceback holds GPU memory."


@pytest.mark.parametrize("later", ["%gpu_free typo", "1 +"])
def test_the_traceback_that_ipython_keeps_behind_a_typo_is_dropped(run: Run, later: str) -> None:
    """IPython shows a wrong line of a magic, and wrong syntax, without a traceback, and keeps the one before."""
    run("def f():\n    big = Array(2, 2 << 20)\n    1 / 0\nf()")
    run(later)
    assert run("%gpu_free")[0] == "Dropped the last error's traceback (2.0 MiB)."
    assert run("%gpu_free --dry-run") == ["No output and no traceback holds GPU memory."]


def test_what_ipython_keeps_after_a_reset_of_the_outputs_is_dropped(
    run: Run, shell: InteractiveShell
) -> None:
    run("x = Array(0)")
    run("Array(1, 4 << 20)")
    run("%reset -f out")
    assert shell.user_ns["_oh"] == {}
    assert run("%gpu_free")[0] == "Dropped _ (4.0 MiB)."
    assert run("%gpu_free --dry-run") == [
        "No output and no traceback holds GPU memory.",
        "Still held by x (1.0 MiB).",
    ]


@pytest.mark.parametrize("cell", ["made()", "def fails():\n    one = made()\n    1 / 0\nfails()"])
def test_what_is_dropped_is_gone_before_caches_are_emptied(
    shell: InteractiveShell, run: Run, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    run(
        "import weakref\nliving = []\ndef made():\n    one = Array(1)\n    living.append(weakref.ref(one))\n    return one"
    )
    run(cell)
    found: list[object] = []
    monkeypatch.setattr(EightGpus, "empty_cache", lambda _: found.append(shell.user_ns["living"][0]()) or "")
    run("%gpu_free")
    assert found == [None]


def test_the_result_of_a_task_that_has_ended_is_dropped(run: Run) -> None:
    run("import gpu_magic\ndef ended(): return gpu_magic.tasks()['job'].join()")
    run(f"%%on_gpu cpu --only {EightGpus.module} --background job\nArray(1)")
    run("ended();")  # what it shows at its end is not of the next cell
    assert run("%gpu_free")[0] == "Dropped the result of job (1.0 MiB)."
    assert run("%gpu_free --dry-run") == ["No output and no traceback holds GPU memory."]
    assert run("print(gpu_magic.tasks()['job'])")[0].startswith("done")


def test_what_no_variable_leads_to_is_said(framework: EightGpus, run: Run) -> None:
    framework.reserved = MIB
    run("kept = Array(1)")
    assert any(line.startswith("7.0 MiB more that no variable holds") for line in run("%gpu_free"))
    assert run("%gpu_free x")[0].startswith("UsageError: %gpu_free takes no names")
    framework.sticky = "CUDA error: an illegal memory access was encountered\nCompile"
    assert run("%gpu_free")[8] == f"EightGpus cannot empty its cache: {framework.sticky[:52]}"


def test_without_a_shell_no_variable_is_known(framework: EightGpus) -> None:
    framework.reserved = MIB
    freed = gpu_magic.gpu_free()
    assert (freed.dropped, freed.held, freed.unnamed, len(freed.before)) == ({}, {}, 0, COUNT)


# Budget


def test_what_holds_too_much_is_named(run: Run) -> None:
    run("class Record: pass\nmuch, x = [Record() for _ in range(60_000)], Array(0)")
    too_long = "Not searched in full because that takes too long"
    assert run("%where")[1:] == [f"{too_long}: much."]
    assert run("%where much") == ["much  no arrays"]
    run("[Record() for _ in range(60_000)]")
    run("Array(1)")
    assert run("%gpu_free --dry-run") == [
        "Would drop Out[5] (1.0 MiB).",
        "Still held by x (1.0 MiB).",
        f"{too_long}: much and Out[4].",
    ]


def test_a_large_variable_leaves_most_of_it_for_those_after_it() -> None:
    budget, looked_at = Budget(objects=100_000, seconds=600), []
    for name in "abc":
        with budget.variable(name):
            looked_at.append(0)
            while budget.allows():
                looked_at[-1] += 1
    assert sum(looked_at) < 70_000
    assert looked_at[2] > looked_at[0] / 2
    with budget.variable("small"):
        assert budget.allows(3)
    assert budget.unfinished == ["a", "b", "c"]


def test_a_large_container_of_plain_values_is_left_when_the_time_is_over() -> None:
    budget = Budget(objects=10**9, seconds=0)
    for name, rows in ("small", 100), ("large", 20_000):
        with budget.variable(name):
            list(Walker(budget=budget).walk([[{"id": row} for row in range(rows)]]))
    assert budget.unfinished == ["large"]


# Out of memory


def test_who_holds_what_and_what_would_come_back(run: Run, machine: Machine) -> None:
    machine.gpus[2].run("train.py", "maria", 18 << 30, work=90)
    run("model, pair, elsewhere = Array(2, 64 << 20), [Array(2)] * 2, Array(1, 1 << 30)")
    run("Array(2, 8 << 20)")
    said = run("def take():\n    within = Array(2, 16 << 20)\n    raise NoMemoryError(2, 4 << 30)\ntake()")
    head, ours, others, back = said[-4:]
    assert head.startswith(f"Out of memory on cuda:2 = GPU 2 {A100}: 4.0 GiB more were requested, 6")
    assert ours == "  this kernel  model (64 MiB) and pair (1.0 MiB)"
    assert others == "  others       maria: train.py, 18.0 GiB"
    assert back == ("  %gpu_free    would free the last error's traceback (16 MiB) and Out[2] (8.0 MiB).")


def test_an_error_with_several_causes_is_told_of_only_if_a_gpu_is_full(
    framework: EightGpus, machine: Machine, shell: InteractiveShell
) -> None:
    error = RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`")
    framework.reserved = MIB
    assert shortage_lines(error, shell) == []
    machine.gpus[2].run("train.py", "maria", 79 << 30)
    assert shortage_lines(error, shell)[0].startswith(f"Probably out of memory on cuda:2 = GPU 2 {A100}: ")
    machine.gpus[3].run("train.py", "maria", 79 << 30)
    assert shortage_lines(error, shell)[0] == "Probably out of memory."
    framework.reserved = 0
    assert shortage_lines(error, shell)[0] == "Probably out of memory."


def test_in_a_container_no_process_is_called_another_user_s(run: Run, machine: Machine) -> None:
    """The driver gives the host's PIDs there, so this kernel's own memory is listed under an unknown PID."""
    machine.gpus[2].run("", UNKNOWN, 70 << 30, pid=31337)
    machine.gpus[2].run("", UNKNOWN, None, pid=os.getpid())  # another process with this number, by chance
    *_, unknown, _ = said = run("raise NoMemoryError(2, 4 << 30)")
    ours = f"process 31337, 70.0 GiB; process {os.getpid()}, ?"
    assert unknown == f"  unknown      {ours}: of this kernel or of others"
    assert not any("others  " in line for line in said)


def test_memory_that_variables_share_is_counted_once_in_all(run: Run) -> None:
    run("model = Array(2, 64 << 20)\noptimizer = [model, Array(2, 8 << 20)]")
    held = "optimizer (72 MiB) and model (64 MiB), 72 MiB in all"
    assert run("%gpu_free")[-1] == f"Still held by {held}."
    assert run("raise NoMemoryError(2, 4 << 30)")[-2] == f"  this kernel  {held}"


CAUGHT = "try:\n    raise NoMemoryError(2, 1)\nexcept NoMemoryError as error:\n    "


@pytest.mark.parametrize(
    ("cell", "is_told"),
    [
        (f"{CAUGHT}raise KeyError from error", True),
        ("raise ExceptionGroup('tasks', [ValueError(), NoMemoryError(2, 1)])", True),
        (f"{CAUGHT}{{}}['key']", False),
        ("raise MemoryError('host memory')", False),
        ("1 / 0", False),
        ("class Bad(Exception):\n    def __str__(self): raise ValueError\nraise Bad", False),
        ("%unload_ext gpu_magic\nraise NoMemoryError(2, 1)", False),
    ],
)
def test_it_is_told_of_no_other_error(run: Run, cell: str, is_told: bool) -> None:
    assert any(line.startswith("Out of memory") for line in run(cell)) == is_told


def test_a_gpu_that_is_not_known_is_not_named(framework: EightGpus, shell: InteractiveShell) -> None:
    shell.user_ns["x"] = Array(5)
    assert shortage_lines(NoMemoryError(None, 1 << 30), shell) == [
        "Out of memory: 1.0 GiB more were requested.",
        "  this kernel  x (1.0 MiB)",
        "  %gpu_free    would free nothing.",
    ]


def test_the_memory_of_two_frameworks_on_a_gpu_is_added(
    tmp_path: Path, machine: Machine, shell: InteractiveShell
) -> None:
    importlib.import_module("tests.machine")
    with registered(tmp_path, second=True) as framework:
        framework.reserved = 3 * MIB
        said = shortage_lines(NoMemoryError(2, 1), shell)
    assert "  this kernel  no variable holds 5.0 MiB" in said
