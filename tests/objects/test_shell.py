"""`%where`, `%gpu_free` and an out-of-memory error in a shell, on a simulated machine with a framework of the tests."""

from __future__ import annotations

import contextlib
import gc
import importlib
import subprocess
import sys
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pynvml
import pytest

import gpu_magic
from gpu_magic.frameworks.target import CPU
from gpu_magic.objects.memory import shortage_lines
from gpu_magic.objects.walk import Budget
from gpu_magic.on_gpu.background import ThreadTask
from gpu_magic.process.tasks import tasks
from gpu_magic.testing import Machine, simulate
from tests.eight_gpus import COUNT, Array, EightGpus, NoMemoryError, registered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

MIB = 1 << 20
A100 = "(SIMULATED NVIDIA A100-SXM4-80GB)"


@pytest.fixture
def machine() -> Iterator[Machine]:
    with simulate(f"{COUNT}xA100-80GB", clock=lambda: 0.0) as machine:
        yield machine


@pytest.fixture
def framework(tmp_path: Path, machine: Machine) -> Iterator[EightGpus]:
    with registered(tmp_path) as framework:
        yield framework


@pytest.fixture
def run(
    framework: EightGpus, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[str]]:
    """Return a way to run a cell in a shell that has the extension; the lines that it printed."""
    shell.run_cell("%load_ext gpu_magic\n%xmode Minimal")
    shell.push({"Array": Array, "NoMemoryError": NoMemoryError})

    def run(cell: str) -> list[str]:
        capsys.readouterr()
        shell.run_cell(cell, store_history=True)
        return capsys.readouterr().out.splitlines()

    return run


def reads() -> float:
    """Return how often the machine was read: each time every GPU is asked for its memory."""
    calls = pynvml.nvmlLib.calls
    return sum(count for name, count in calls.items() if name.startswith("nvmlDeviceGetMemoryInfo")) / COUNT


# Where


def test_where_reads_the_machine_once_for_all_variables(run: Callable[[str], list[str]]) -> None:
    run("x, y, _private, z = Array(3), [Array(1), Array(None)], Array(1), 3")
    found = [
        f"x  cuda:3 = GPU 3 {A100}: 1.0 MiB",
        "y  the CPU: 1.0 MiB",
        f"   cuda:1 = GPU 1 {A100}: 1.0 MiB",
    ]
    assert run("%where") == found
    assert reads() == 1
    assert run("%where x y z") == [*found, "z  no arrays"]
    assert reads() == 2


def test_where_reads_nothing_for_arrays_on_the_cpu(run: Callable[[str], list[str]]) -> None:
    run("x = Array(None)")
    assert run("%where") == ["x  the CPU: 1.0 MiB"]
    assert reads() == 0


def test_devices_of_is_a_mapping_and_reads_once(framework: EightGpus) -> None:
    devices = gpu_magic.devices_of([Array(0), Array(1)], Array(None))
    assert dict(devices) == {"cuda:0": MIB, "cuda:1": MIB, "cpu": MIB}
    assert repr(devices).count("GPU") == 2
    assert reads() == 1


def test_where_without_pytorch_does_not_load_what_is_about_it() -> None:
    code = "import sys, gpu_magic; gpu_magic.devices_of([1]); print('gpu_magic.frameworks.pytorch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout.strip() == "False"


def test_what_was_looked_at_is_kept_by_nothing(framework: EightGpus) -> None:
    array = Array(0)
    held, living = [array], weakref.ref(array)
    gc.disable()
    try:
        gpu_magic.devices_of(held)
        del held, array
        assert living() is None
    finally:
        gc.enable()


def test_a_saved_error_holds_what_its_functions_had(run: Callable[[str], list[str]]) -> None:
    run("kept = Array(1)\ndef f():\n    big = Array(2, 16 << 20)\n    1 / 0")
    run("try:\n    f()\nexcept ZeroDivisionError as e:\n    err = e")
    assert run("%where")[1:] == [f"err   cuda:2 = GPU 2 {A100}: 16 MiB"]
    run("raise err")
    assert run("%gpu_free --dry-run") == [
        "No output and no traceback holds GPU memory.",
        "Still held by err (16 MiB) and kept (1.0 MiB).",
    ]


# Free


@pytest.mark.parametrize(("reserved", "dry_run", "count"), [(MIB, False, 2), (MIB, True, 1), (0, False, 0)])
def test_gpu_free_reads_no_more_than_it_needs(
    framework: EightGpus, reserved: int, dry_run: bool, count: int
) -> None:
    framework.reserved = reserved
    freed = gpu_magic.gpu_free(dry_run=dry_run)
    assert len(freed.before) == (COUNT if reserved else 0)
    assert reads() == count


def test_outputs_and_the_last_error_are_dropped_and_variables_are_named(
    run: Callable[[str], list[str]], shell: InteractiveShell
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


@pytest.mark.parametrize("cell", ["made()", "def fails():\n    one = made()\n    1 / 0\nfails()"])
def test_what_is_dropped_is_gone_before_caches_are_emptied(
    shell: InteractiveShell, run: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    run(
        "import weakref\nliving = []\ndef made():\n    one = Array(1)\n    living.append(weakref.ref(one))\n    return one"
    )
    run(cell)
    found: list[object] = []
    monkeypatch.setattr(EightGpus, "empty_cache", lambda _: found.append(shell.user_ns["living"][0]()) or "")
    run("%gpu_free")
    assert found == [None]


@pytest.mark.parametrize("fails", [False, True])
def test_what_tasks_that_have_ended_keep_is_dropped(run: Callable[[str], list[str]], fails: bool) -> None:
    def work() -> Array:
        made = Array(1)
        return made if not fails else made.missing

    scope = contextlib.nullcontext(SimpleNamespace(devices=(CPU,), machine=None))
    task = ThreadTask("job", work, scope, cell=1, call=lambda run: run(), at_begin=bool, at_end=bool)
    tasks.add(task)
    try:
        task.start()
        assert task.join(60)
        what = "error" if fails else "result"
        assert run("%gpu_free")[0] == f"Dropped the {what} of job (1.0 MiB)."
        assert run("%gpu_free --dry-run") == ["No output and no traceback holds GPU memory."]
        assert task.has_failed == fails
    finally:
        tasks._tasks.clear()


def test_what_no_variable_leads_to_is_said(framework: EightGpus, run: Callable[[str], list[str]]) -> None:
    framework.reserved = MIB
    run("kept = Array(1)")
    said = run("%gpu_free")
    assert f"cuda:7 = GPU 7 {A100}: 1.0 MiB → 1.0 MiB in use" in said
    assert any(line.startswith("7.0 MiB more that no variable was seen to hold") for line in said)


def test_without_a_shell_no_variable_is_known(framework: EightGpus) -> None:
    framework.reserved = MIB
    freed = gpu_magic.gpu_free()
    assert (freed.dropped, freed.held, freed.unnamed) == ({}, {}, 0)


def test_an_error_of_cuda_that_comes_again_is_said(framework: EightGpus) -> None:
    framework.reserved, framework.sticky = (
        MIB,
        "CUDA error: an illegal memory access was encountered\nCompile",
    )
    freed = gpu_magic.gpu_free()
    assert str(freed).endswith(f"EightGpus can't empty its cache: {framework.sticky[:52]}")


# Budget


def test_what_holds_too_much_is_named(run: Callable[[str], list[str]]) -> None:
    run("class Record: pass\nmuch, x = [Record() for _ in range(60_000)], Array(0)")
    assert run("%where")[1:] == ["Not looked at in full, as that would take too long: much."]
    assert run("%where much") == ["much  no arrays"]


def test_what_is_freed_is_found_beside_what_holds_too_much(run: Callable[[str], list[str]]) -> None:
    run("class Record: pass\nmuch, x = [Record() for _ in range(60_000)], Array(0)")
    run("[Record() for _ in range(60_000)]")
    run("Array(1)")
    assert run("%gpu_free --dry-run") == [
        "Would drop Out[3] (1.0 MiB).",
        "Still held by x (1.0 MiB).",
        "Not looked at in full, as that would take too long: much and Out[2].",
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


# Out of memory


def test_who_holds_what_and_what_would_come_back(run: Callable[[str], list[str]], machine: Machine) -> None:
    machine.gpus[2].run("train.py", "maria", 18 << 30, work=90)
    run("model, pair, elsewhere = Array(2, 64 << 20), [Array(2)] * 2, Array(1, 1 << 30)")
    run("Array(2, 8 << 20)")
    said = run("def take():\n    within = Array(2, 16 << 20)\n    raise NoMemoryError(2, 4 << 30)\ntake()")
    head, ours, others, back = said[-4:]
    assert head.startswith(f"Out of memory on cuda:2 = GPU 2 {A100}: 4.0 GiB more were asked for, 6")
    assert ours == "  this kernel  model (64 MiB) and pair (1.0 MiB)"
    assert others == "  others       maria: train.py, 18.0 GiB"
    assert back == (
        "  %gpu_free    would give back the last error's traceback (16 MiB) and Out[2] (8.0 MiB)."
    )


@pytest.mark.parametrize(
    ("cell", "is_told"),
    [
        (
            "try:\n    raise NoMemoryError(2, 1)\nexcept NoMemoryError as error:\n    raise KeyError from error",
            True,
        ),
        ("raise ExceptionGroup('tasks', [ValueError(), NoMemoryError(2, 1)])", True),
        ("try:\n    raise NoMemoryError(2, 1)\nexcept NoMemoryError:\n    {}['key']", False),
        ("raise MemoryError('host memory')", False),
        ("1 / 0", False),
        ("class Bad(Exception):\n    def __str__(self): raise ValueError\nraise Bad", False),
        ("%unload_ext gpu_magic\nraise NoMemoryError(2, 1)", False),
    ],
)
def test_it_is_told_of_no_other_error(run: Callable[[str], list[str]], cell: str, is_told: bool) -> None:
    assert any(line.startswith("Out of memory") for line in run(cell)) == is_told


def test_a_gpu_that_is_not_known_is_not_named(framework: EightGpus, shell: InteractiveShell) -> None:
    shell.user_ns["x"] = Array(5)
    assert shortage_lines(NoMemoryError(None, 1 << 30), shell) == [
        "Out of memory: 1.0 GiB more were asked for.",
        "  this kernel  x (1.0 MiB)",
        "  %gpu_free    would give nothing back.",
    ]


def test_the_memory_of_two_frameworks_on_a_gpu_is_added(
    tmp_path: Path, machine: Machine, shell: InteractiveShell
) -> None:
    importlib.import_module("tests.machine")
    with registered(tmp_path, second=True) as framework:
        framework.reserved = 3 * MIB
        said = shortage_lines(NoMemoryError(2, 1), shell)
    assert "  this kernel  no variable leads to 5.0 MiB" in said


def test_an_error_of_memory_reads_once(framework: EightGpus, shell: InteractiveShell) -> None:
    shell.user_ns["x"], framework.reserved = Array(2), MIB
    assert shortage_lines(NoMemoryError(2, 1 << 30), shell)[0].startswith("Out of memory on cuda:2 = GPU 2")
    assert reads() == 1
