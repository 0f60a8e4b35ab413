"""The guard's questions, asked of a real shared library that behaves as the CUDA driver does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import LIMIT, ROOT
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh

START = 'import ctypes; cuda = ctypes.CDLL("libcuda.so.1"); cuda.cuInit(0)'


@pytest.fixture
def drivers(native: Path, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process on a machine of four A100s."""
    Driver(CARDS).write(tmp_path / "machine")
    return environment(native, tmp_path / "machine")


def ask(fresh: Fresh, code: str, **variables: str) -> Any:
    return json.loads(
        fresh(
            f"import json\nfrom gpu_magic.process import driver\nfrom gpu_magic.process.state import probe\n{code}",
            **variables,
        )
    )


def test_absent_until_somebody_loads_it(fresh: Fresh, drivers: dict[str, str]) -> None:
    code = """
import ctypes
seen = [probe().value]
loaded = "libcuda" in open("/proc/self/maps").read()
ctypes.CDLL("libcuda.so.1")
seen.append(probe().value)
print(json.dumps([seen, loaded]))
"""
    assert ask(fresh, code, **drivers) == [["absent", "live"], False]


def test_looking_starts_nothing(fresh: Fresh, drivers: dict[str, str]) -> None:
    code = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
for _ in range(3):
    driver().devices()
print(json.dumps(cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))))
"""
    assert ask(fresh, code, **drivers) == 3  # CUDA_ERROR_NOT_INITIALIZED


@pytest.mark.parametrize(
    ("mask", "sees"), [(None, [0, 1, 2, 3]), ("2,0", [2, 0]), (CARDS[3].uuid, [3]), ("", []), ("0,0", [])]
)
def test_frozen_to_what_the_driver_read(
    fresh: Fresh, drivers: dict[str, str], mask: str | None, sees: list[int]
) -> None:
    code = f"""
import os
{START}
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
state = probe()
print(json.dumps([state.value, driver().devices()]))
"""
    variables = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    expected = [CARDS[number].uuid.removeprefix("GPU-") for number in sees]
    assert ask(fresh, code, **drivers, **variables) == ["frozen", expected]


@pytest.mark.parametrize("looked", [True, False])
def test_a_forked_child_knows_that_cuda_is_unusable(
    fresh: Fresh, drivers: dict[str, str], *, looked: bool
) -> None:
    """Also where nobody had looked between cuInit and the fork: the driver alone can't tell there."""
    code = f"""
import os
probe()
{START}
{"probe()" if looked else ""}
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, probe().value.encode())
    os._exit(0)
os.wait()
print(json.dumps([probe().value, os.read(reader, 100).decode()]))
"""
    assert ask(fresh, code, **drivers) == ["frozen", "forked"]


def test_importing_the_package_is_enough_to_know_a_forked_child(
    fresh: Fresh, drivers: dict[str, str]
) -> None:
    shown = fresh(
        f"""
import os, gpu_magic
{START}
reader, writer = os.pipe()
if os.fork() == 0:
    gpus, choice = gpu_magic.gpus(), gpu_magic.choose("none")
    said = gpu_magic.guard().state.value, gpus.kernel.notes, bool(choice.refusal)
    os.write(writer, repr(said).encode())
    os._exit(0)
os.wait()
print(os.read(reader, 1000).decode())
""",
        **drivers,
    )
    assert shown.strip() == "('forked', (), True)"


def test_a_child_forked_before_is_free(fresh: Fresh, drivers: dict[str, str]) -> None:
    code = f"""
import os
probe()
reader, writer = os.pipe()
if os.fork() == 0:
    first = probe().value
    {START}
    os.write(writer, f"{{first}} {{probe().value}}".encode())
    os._exit(0)
os.wait()
print(json.dumps([probe().value, os.read(reader, 100).decode()]))
"""
    assert ask(fresh, code, **drivers) == ["absent", "absent frozen"]


def test_a_mig_instance_is_itself(fresh: Fresh, native: Path, tmp_path: Path) -> None:
    from tests.machine import MIG

    Driver((replace(CARDS[0], mig=MIG), CARDS[1])).write(tmp_path / "machine")
    code = f"{START}\nprint(json.dumps(driver().devices()))"
    variables = environment(native, tmp_path / "machine") | {"CUDA_VISIBLE_DEVICES": MIG[1].uuid}
    assert ask(fresh, code, **variables) == [MIG[1].uuid.removeprefix("MIG-")]


def test_outside_ipython_it_says_as_much_as_is_known(fresh: Fresh, drivers: dict[str, str]) -> None:
    shown = fresh(f"import gpu_magic\n{START}\nprint(gpu_magic.guard())", CUDA_VISIBLE_DEVICES="1", **drivers)
    assert shown.strip() == "CUDA initialized; this process keeps GPU 1 (cuda:0)"


FORK = f"""
import os
{START}
reader, writer = os.pipe()
if os.fork() == 0:
    import gpu_magic
    os.write(writer, repr(gpu_magic.guard()).encode())
    os._exit(0)
os.wait()
print(os.read(reader, 1000).decode())
"""


def test_a_forked_child_that_can_not_know_says_so(fresh: Fresh, drivers: dict[str, str]) -> None:
    """Its parent has started CUDA, and nothing of ours was there to see it."""
    assert "may have been started before this process was forked off" in fresh(FORK, **drivers)


def test_a_library_that_is_there_first_is_no_doubt_where_nothing_was_forked(
    fresh: Fresh, drivers: dict[str, str]
) -> None:
    code = """
import ctypes
ctypes.CDLL("libcuda.so.1")
import gpu_magic
print(gpu_magic.guard())
"""
    assert fresh(code, **drivers).startswith("CUDA loaded and not started")


@pytest.mark.parametrize(
    ("error", "says"), [(803, "different versions"), (34, "stub"), (999, "CUDA error 999")]
)
def test_a_driver_that_does_not_work_is_neither_live_nor_initialized(
    fresh: Fresh, drivers: dict[str, str], error: int, says: str
) -> None:
    code = f"""
import gpu_magic
{START}
print(gpu_magic.guard().state.value, gpu_magic.guard(), gpu_magic.choose(1))
"""
    shown = fresh(code, PRETEND_CUDA_ERROR=str(error), **drivers)
    assert shown.startswith("broken CUDA can't be used here: ")
    assert shown.partition("cuda:0")[0].count(says) == shown.partition("cuda:0")[2].count(says) > 0


CHILD = """
import multiprocessing, gpu_magic

def try_gpu_0(queue):
    try:
        queue.put(str(gpu_magic.choose(0)))
    except gpu_magic.ChoiceError as error:
        queue.put(str(error))

if __name__ == "__main__":
    gpu_magic.choose("1-3")
    context = multiprocessing.get_context({method!r})
    queue = context.Queue()
    child = context.Process(target=try_gpu_0, args=(queue,))
    child.start()
    print(queue.get())
    child.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_may_use_what_its_parent_has_chosen(
    drivers: dict[str, str], tmp_path: Path, method: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHILD.format(method=method))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    done = subprocess.run(
        [sys.executable, program],
        env=clean | drivers | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.stdout.startswith("GPU 0 is outside what this process was given")


def test_ipython_in_a_terminal_is_not_told_to_restart_a_kernel(fresh: Fresh, drivers: dict[str, str]) -> None:
    code = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "gpu_magic")
{START}
shell.run_line_magic("gpus", "2")
"""
    shown = fresh(code, CUDA_VISIBLE_DEVICES="0,1,2", **drivers)
    assert "To have exactly GPU 2: start Python anew and run %gpus 2 before anything starts CUDA." in shown
    assert "kernel" not in shown
