"""The guard's questions, asked of a real shared library that behaves as the CUDA driver does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.machine import AMD_CARDS, CARDS, MIG, Driver, amd_environment, environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh
    from tests.machine import Card

LOAD = 'import ctypes; cuda = ctypes.CDLL("libcuda.so.1")'
START = f"{LOAD}; cuda.cuInit(0)"
# PyTorch as far as it is asked here; it takes seconds to import.
TORCH = """
import sys, types
sys.modules["torch"] = torch = types.ModuleType("torch")
torch.cuda = torch.Tensor = torch.device = torch.nn = torch.optim = types.SimpleNamespace(is_initialized=bool)
"""
FORKED = """
import json, os

def forked(ask, *given):
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.write(writer, json.dumps(ask(*given)).encode())
        finally:
            os._exit(0)
    os.wait()
    os.close(writer)
    return json.loads(os.read(reader, 10_000))
"""


@pytest.fixture
def drivers(native: Path, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process on a machine of four A100s."""
    Driver(CARDS).write(tmp_path / "machine")
    return environment(native, tmp_path / "machine")


def test_looking_neither_loads_nor_starts_it(fresh: Fresh, drivers: dict[str, str]) -> None:
    code = f"""
import gpu_magic
print(gpu_magic.guard().state.value, "libcuda" in open("/proc/self/maps").read())
{LOAD}
for _ in range(3):
    state = gpu_magic.guard().state
print(state.value, cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int())))
"""
    assert fresh(code, **drivers) == "absent False\nlive 3\n"  # CUDA_ERROR_NOT_INITIALIZED


def test_a_library_is_searched_for_only_where_one_can_have_been_loaded(
    fresh: Fresh, drivers: dict[str, str]
) -> None:
    code = f"""
import sys
from gpu_magic.process.drivers import probe
searches = []
sys.addaudithook(lambda event, _: searches.append(event) if event == "ctypes.dlopen" else None)
for _ in range(1000):
    probe()
print(len(searches) < 1000)
{LOAD}
print(probe().value)
"""
    assert fresh(code, **drivers) == "True\nlive\n"


@pytest.mark.parametrize(
    ("cards", "masks"),
    [
        (
            CARDS,
            {
                "0,1,2": "keeps GPU 0 (cuda:0), GPU 1 (cuda:1), GPU 2 (cuda:2)",
                "2,0": "keeps GPU 2 (cuda:0), GPU 0 (cuda:1)",
                CARDS[3].uuid: "keeps GPU 3 (cuda:0)",
                "": "has no GPU",
                "0,0": "has no GPU",
            },
        ),
        ((replace(CARDS[0], mig=MIG), CARDS[1]), {MIG[1].uuid: "keeps MIG instance 0:1 (cuda:0)"}),
    ],
)
def test_what_the_driver_has_read_stays(
    fresh: Fresh, drivers: dict[str, str], tmp_path: Path, cards: tuple[Card, ...], masks: dict[str, str]
) -> None:
    """Each mask is of a child that is forked before, which can start CUDA without its parent."""
    Driver(cards).write(tmp_path / "machine")
    code = f"""
import gpu_magic
{FORKED}
def start(mask):
    os.environ["CUDA_VISIBLE_DEVICES"] = mask
    exec({START!r})
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    return repr(gpu_magic.guard())

found = {{mask: [gpu_magic.guard().state.value, forked(start, mask)] for mask in {list(masks)}}}
print(json.dumps(found))
"""
    assert json.loads(fresh(code, **drivers)) == {
        mask: ["absent", f"CUDA has started. This process {has}"] for mask, has in masks.items()
    }


@pytest.mark.parametrize("looked", [True, False])
def test_a_child_forked_after_the_start_knows(fresh: Fresh, drivers: dict[str, str], *, looked: bool) -> None:
    """Also if nobody had looked between cuInit and the fork: the driver alone can't tell there."""
    code = f"""
import gpu_magic
{FORKED}
{START}
{"gpu_magic.guard()" if looked else ""}

def ask():
    refused = gpu_magic.choose("none").refusal
    try:
        gpu_magic.choose("1", in_process=True)
    except gpu_magic.ChoiceError as error:
        said = str(error)
    return gpu_magic.guard().state.value, gpu_magic.gpus().notes, "spawn" in refused, said

print(forked(ask), gpu_magic.guard().state.value)
"""
    said = 'CUDA started before this process was forked, so this process cannot use it. Start workers with the "spawn" method.'
    assert fresh(code, **drivers) == f"{['forked', [], True, said]} frozen\n"


def test_a_program_that_is_started_after_cuda_has_a_choice(fresh: Fresh, drivers: dict[str, str]) -> None:
    code = f"""
import subprocess, sys, gpu_magic
{START}
child = "import gpu_magic; print(gpu_magic.guard().state.value, gpu_magic.choose('1').is_applied)"
print(gpu_magic.guard().state.value, subprocess.check_output([sys.executable, "-c", child], text=True))
"""
    assert fresh(code, **drivers).split() == ["frozen", "absent", "True"]


@pytest.mark.parametrize(
    ("before", "child", "says"),
    [
        # Nothing of ours was there to see it.
        (START, "forked(ask)", "CUDA may have started before this process was forked"),
        (LOAD, "ask()", "CUDA not started: the choice can still change"),
    ],
)
def test_a_library_that_is_there_first(
    fresh: Fresh, drivers: dict[str, str], before: str, child: str, says: str
) -> None:
    code = f"{FORKED}\n{before}\ndef ask():\n    import gpu_magic\n    return repr(gpu_magic.guard())\nprint({child})"
    assert fresh(code, **drivers).startswith(says)


def chosen_after_none(more: str) -> str:
    """Return a program that starts CUDA while every GPU is hidden, as a real driver lets it be tried again."""
    return f"""
import gpu_magic{more}
{LOAD}
gpu_magic.choose("none")
print(cuda.cuInit(0), gpu_magic.guard())
print(gpu_magic.choose(0))
print(cuda.cuInit(0))
"""


def test_a_driver_that_was_asked_while_all_gpus_were_hidden_finds_them_later(
    fresh: Fresh, drivers: dict[str, str]
) -> None:
    said = fresh(chosen_after_none(""), PRETEND_CUDA_TRIES_AGAIN="1", **drivers).splitlines()
    assert said[0] == "100 CUDA not started: the choice can still change"
    assert said[1].startswith("cuda:0 = GPU 0 ")
    assert said[2:] == ["0"]


def test_a_framework_that_can_have_counted_while_all_gpus_were_hidden_is_named(
    fresh: Fresh, drivers: dict[str, str]
) -> None:
    said = fresh(chosen_after_none(f"\n{TORCH}"), PRETEND_CUDA_TRIES_AGAIN="1", **drivers)
    assert said.splitlines()[2:] == [
        "Until now every NVIDIA GPU was hidden. If PyTorch has already looked for GPUs, restart.",
        "0",
    ]


def test_a_choice_among_amds_gpus_says_nothing_of_nvidias_that_it_hides(
    fresh: Fresh, drivers: dict[str, str], native_amd: Path, tmp_path: Path
) -> None:
    Driver(AMD_CARDS, version="6.12.12").write(tmp_path / "amd")
    code = f"import gpu_magic\n{TORCH}\n{LOAD}\ngpu_magic.choose('0')\nprint(gpu_magic.choose('1'))"
    said = fresh(code, GPU_MAGIC_VENDOR="amd", **amd_environment(native_amd, tmp_path / "amd", drivers))
    assert said.startswith("cuda:0 = GPU 1 (AMD Instinct")
    assert "hidden" not in said


@pytest.mark.parametrize(("error", "says"), [(803, "different versions"), (34, "stub"), (999, "error 999")])
def test_a_driver_that_does_not_work_is_neither_live_nor_started(
    fresh: Fresh, drivers: dict[str, str], error: int, says: str
) -> None:
    code = f"import gpu_magic\n{START}\nprint(gpu_magic.guard().state.value, gpu_magic.guard(), gpu_magic.choose(1))"
    shown = fresh(code, PRETEND_CUDA_ERROR=str(error), **drivers)
    assert shown.startswith("broken CUDA fails with error ")
    assert shown.partition("cuda:0")[0].count(says) == shown.partition("cuda:0")[2].count(says) > 0


def test_is_available_is_left_to_cuda_where_cuda_does_not_work(fresh: Fresh, drivers: dict[str, str]) -> None:
    """Before the extension is loaded, and found at the end of a cell."""
    code = f"""
import os
from IPython.core.interactiveshell import InteractiveShell
shell, check = InteractiveShell.instance(), lambda: print(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
shell.run_cell("%load_ext gpu_magic")
check()
shell.run_cell({LOAD!r})
check()
shell.run_cell("%unload_ext gpu_magic")
shell.run_cell("%load_ext gpu_magic")
check()
"""
    assert fresh(code, **drivers).split() == ["1"] * 3
    assert fresh(code, PRETEND_CUDA_ERROR="803", **drivers).split() == ["1", "None", "None"]


CHILDREN = """
import multiprocessing, os, sys
import gpu_magic

def try_gpu_0():
    try:
        return str(gpu_magic.choose(0))
    except gpu_magic.ChoiceError as error:
        return str(error).partition(":")[0]

if __name__ == "__main__":
    gpu_magic.choose("1,3")
    started = multiprocessing.get_context(sys.argv[1])
    for _ in range(2):  # the same choice again changes nothing
        with started.Pool(1) as pool:
            print(pool.apply(os.getenv, ["CUDA_VISIBLE_DEVICES"]), pool.apply(try_gpu_0))
        print("fork server" in str(gpu_magic.choose("2")))
"""


@pytest.mark.parametrize(
    ("method", "latest", "is_named"),
    [("fork", "2", False), ("spawn", "2", False), ("forkserver", "1,3", True)],
)
def test_a_child_may_use_what_its_parent_has_chosen(
    fresh: Fresh, tmp_path: Path, method: str, latest: str, *, is_named: bool
) -> None:
    """A fork server that was started before a choice does not have it, which the choice says."""
    (tmp_path / "children.py").write_text(CHILDREN)
    shown = fresh(
        f"import runpy, sys; sys.argv = ['children.py', {method!r}]; "
        f"runpy.run_path({str(tmp_path / 'children.py')!r}, run_name='__main__')",
        GPU_MAGIC_SIMULATE="4xA100-80GB",
        GPU_MAGIC_CLAIMS="off",
    )
    refused = "GPU 0 was not given to this process"
    assert shown.splitlines() == [f"1,3 {refused}", str(is_named), f"{latest} {refused}", "False"]


def test_ipython_in_a_terminal_is_not_told_to_restart_a_kernel(fresh: Fresh, drivers: dict[str, str]) -> None:
    code = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "gpu_magic")
{START}
shell.run_line_magic("gpus", "2")
"""
    shown = fresh(code, CUDA_VISIBLE_DEVICES="0,1,2", **drivers)
    assert "To use only GPU 2, restart IPython. Before CUDA starts: %gpus 2\n" in shown
    assert "kernel" not in shown
