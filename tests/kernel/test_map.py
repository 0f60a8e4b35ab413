"""`gpu_magic.map` in a kernel: functions of cells, errors in their lines, interrupts."""

from __future__ import annotations

import sys
from ast import literal_eval
from typing import TYPE_CHECKING

import IPython
import pytest

if TYPE_CHECKING:
    from tests.kernel.conftest import Kernel

# It waits in C, as a collective does that waits for other ranks: Python does not come to see the signal.
HANGS = "import ctypes, signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); ctypes.CDLL(None).pause()"


def begun(kernel: Kernel) -> int:
    return len(list(kernel.folder.glob("begun-*")))


def test_functions_of_cells_go_there_with_all_that_they_use(engines: Kernel) -> None:
    (engines.folder / "beside.py").write_text("def twice(x):\n    return 2 * x")
    engines.run("offset = 10\nclass Point:\n    def __init__(self, x):\n        self.x = x")
    engines.run("def shift(point):\n    return Point(point.x + offset)")
    assert engines.run("[p.x for p in gpu_magic.map(shift, [Point(1), Point(2)])]").text == "[11, 12]"
    engines.run("def times(factor):\n    return lambda x: x * factor")
    assert engines.run("gpu_magic.map(times(3), range(3))").text == "[0, 3, 6]"
    assert engines.run("import beside\ngpu_magic.map(beside.twice, [1, 2])").text == "[2, 4]"
    engines.run("%%px\nthere = 'of engine ' + __import__('os').environ['RANK']")
    assert engines.run("gpu_magic.map(lambda x: (there, offset + x), [1], gpus=0)").text == (
        "[('of engine 1', 11)]"
    )


def test_an_error_is_shown_in_the_lines_of_its_cell(engines: Kernel) -> None:
    engines.run("def train(rate):\n    print('begins')\n    return check(rate)")
    cell = (
        "def check(rate):\n    if rate > 1:\n        raise ValueError(f'{rate} is too much')\n    return rate"
    )
    number = engines.run(f"{cell}\nlen(In) - 1").text
    files = engines.run("[train.__code__.co_filename, check.__code__.co_filename]").text
    cells = [f"Cell In[{int(number) - 1}]", f"Cell In[{number}]"]
    if IPython.version_info < (8, 1):  # it calls cells in tracebacks by their files
        cells = [f'File "{file}"' for file in literal_eval(files)]
    marks = "           ^^^^^^^^^^^\n" if sys.version_info < (3, 13) else ""
    reply = engines.run("gpu_magic.map(train, [0.1, 3.0], gpus=2)")
    assert reply.traceback == (
        "Item 1 (3.0) failed in engine 0 (GPU 2):\n"
        "Traceback (most recent call last):\n"
        f"  {cells[0]}, line 3, in train\n"
        "    return check(rate)\n"
        f"{marks}  {cells[1]}, line 3, in check\n"
        "    raise ValueError(f'{rate} is too much')\n"
        "ValueError: 3.0 is too much"
    )
    assert reply.stdout == "[0] begins\n[1] begins\n"


def test_an_interrupt_ends_all_and_the_next_cells_run(engines: Kernel) -> None:
    engines.run("%px kept = 1")
    for file in engines.folder.glob("begun-*"):
        file.unlink()
    engines.run("def waits(x):\n    pathlib.Path(f'begun-{x}').touch()\n    time.sleep(600)")
    reply = engines.run_and_interrupt("gpu_magic.map(waits, range(50))", lambda: begun(engines) == 2)
    assert (reply.status, reply.traceback) == ("error", "KeyboardInterrupt")
    assert engines.run("gpu_magic.map(lambda x: kept + x, range(3))").text == "[1, 2, 3]"
    assert engines.run("%%px\nprint('next')").shown.count("next") == 2
    assert begun(engines) == 2


def test_an_engine_that_does_not_answer_an_interrupt_is_started_anew(engines: Kernel) -> None:
    engines.run("%px kept = os.environ['RANK'] if 'os' in globals() else __import__('os').environ['RANK']")
    hangs = (
        "def hangs(x):\n"
        "    pathlib.Path(f'begun-{x}').touch()\n"
        f"    if os.environ['GPU_MAGIC_INDEX'] == '1':\n        {HANGS}\n    time.sleep(600)"
    )
    for file in engines.folder.glob("begun-*"):
        file.unlink()
    engines.run(hangs)
    reply = engines.run_and_interrupt("gpu_magic.map(hangs, range(4))", lambda: begun(engines) == 2)
    assert reply.traceback == "KeyboardInterrupt\nEngine 1 (GPU 0) was restarted without variables."
    again = "gpu_magic.map(lambda x: os.environ['GPU_MAGIC_INDEX'], [0], gpus={})"
    assert [engines.run(again.format(gpu)).text for gpu in (2, 0)] == ["['0']", "['1']"]
    assert "'0'" in engines.run("%%px --targets 0\nkept").shown
    assert "NameError" in engines.run("%%px --targets 1\nkept").stderr


@pytest.mark.nightly  # it takes over a second
def test_a_bar_is_shown_for_what_takes_over_a_second(engines: Kernel) -> None:
    reply = engines.run("gpu_magic.map(lambda x: time.sleep(1.5), range(2)); None")
    assert "/2 [" in reply.text
    assert "call" in reply.text


def test_what_lies_on_a_gpu_does_not_go_there_and_does_not_come_back(engines: Kernel) -> None:
    engines.run("import cupy\nx = cupy.ones(3)")
    engines.run("def first(item):\n    pathlib.Path('begun-first').touch()\n    return item[0]")
    there = "on cuda:0, but can only be handed over on the CPU. Move it there first."
    cases = {
        "gpu_magic.map(first, [[0], [x]])": f"Item 1 is {there}",
        "gpu_magic.map(lambda item: x, [0])": f"<lambda> uses what is {there}",
    }
    for cell, says in cases.items():
        assert engines.run(cell).errors == [says]
    assert not (engines.folder / "begun-first").exists()
    reply = engines.run("gpu_magic.map(lambda item: {'loss': cupy.ones(3)}, [0], gpus=0)")
    assert reply.errors == [f"Item 0 (0) failed in engine 1 (GPU 0):\nThe result is {there}"]
