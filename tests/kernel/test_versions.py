"""What is typed first, without any framework: quick, to be run with many versions of IPython."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conftest import LIMIT
from tests.kernel.test_panel import Page
from tests.kernel.test_restart import save

if TYPE_CHECKING:
    from tests.kernel.conftest import Kernel

MASK = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), end='')"


def test_the_table_and_a_choice(kernel: Kernel) -> None:
    assert "NVIDIA A100-SXM4-80GB" in kernel.run("%gpus").html
    assert "cuda:0 = GPU 3" in kernel.run("%gpus 3,1").said
    assert kernel.run(MASK).stdout == "3,1"
    reply = kernel.run("%gpus 9")
    assert reply.status == "error"
    assert "There is no GPU 9" in reply.stderr + "".join(reply.errors)


def test_a_cell_fails_as_a_plain_one_does(kernel: Kernel) -> None:
    replies = kernel.run_all("%%on_gpu cpu\ndef divide(a):\n    return a / 0\n\ndivide(1)", "print(2)")
    assert [reply.status for reply in replies] == ["error"]
    assert "----> 5 divide(1)" in replies[0].traceback
    assert "----> 3     return a / 0" in replies[0].traceback
    assert "cells.py" not in replies[0].traceback
    reply = kernel.run("%%on_gpu cpu\n\nimport asyncio\nawait asyncio.sleep(0)\n1/0")
    assert reply.status == "error"
    assert "----> 5 1/0" in reply.traceback


def test_a_function_of_a_cell_has_its_lines_later(kernel: Kernel) -> None:
    kernel.run("%%on_gpu cpu\ndef late():\n    return 1 / 0")
    kernel.run("1 / 0")
    assert "----> 3     return 1 / 0" in kernel.run("late()").traceback


def test_a_cell_s_value_is_shown_unless_it_is_silenced(kernel: Kernel) -> None:
    assert kernel.run("%%on_gpu cpu\n6 * 7").text == "42"
    assert kernel.run("%%on_gpu cpu\n'a;'").text == "'a;'"
    assert kernel.run("%%on_gpu cpu\n6 * 7;  # quiet").text == ""
    assert kernel.run("%%on_gpu cpu\nimport asyncio\nawait asyncio.sleep(0, result=42)").text == "42"
    reply = kernel.run("%%on_gpu cpu\nimport asyncio\nawait asyncio.sleep(0, result=42);")
    assert (reply.status, reply.text) == ("ok", "")


def test_what_a_cell_costs(kernel: Kernel) -> None:
    assert kernel.run("%gpu_time x = 6 * 7").text.startswith("Wall ")
    reply = kernel.run("%%gpu_time\nx * 2")
    assert "84" in reply.text
    assert "Wall " in reply.text
    assert kernel.run("%gpu_time on").status == "ok"
    assert kernel.run("1 + 1").status == "ok"
    assert kernel.run("%gpu_time off").status == "ok"


def test_memory_is_given_back(kernel: Kernel) -> None:
    assert kernel.run("1 / 0").status == "error"
    assert kernel.run("%gpu_free").status == "ok"
    assert kernel.run("%where").status == "ok"


def test_tab(kernel: Kernel) -> None:
    for line, offered in (
        ("%gpus au", "auto"),
        ("%gpus auto:", "auto:2"),
        ("%gpus 1,GPU-2", "GPU-2"),
        ("%%on_gpu cuda:", "cuda:1"),
        ("%gpus 1 --gr", "--growth"),
    ):
        found = kernel.client.complete(line, reply=True, timeout=LIMIT)["content"]
        lines = [
            line[: found["cursor_start"]] + match + line[found["cursor_end"] :] for match in found["matches"]
        ]
        assert any(offered in completed for completed in lines), (line, lines)


def test_a_click_chooses(kernel: Kernel) -> None:
    page = Page(kernel)
    page.choose("3,1")
    assert page.hear_said()["text"].startswith("cuda:0 = GPU 3")


def test_a_page_finds_the_kernel_s_comm(kernel: Kernel) -> None:
    comms = kernel.client.comm_info("gpu_magic", reply=True, timeout=LIMIT)["content"]["comms"]
    assert [comm["target_name"] for comm in comms.values()] == ["gpu_magic"]
    kernel.run("%unload_ext gpu_magic")
    assert not kernel.client.comm_info("gpu_magic", reply=True, timeout=LIMIT)["content"]["comms"]


def test_a_choice_outlives_a_restart(kernel: Kernel) -> None:
    save(kernel)
    kernel.restart()
    assert "cuda:0 = GPU 3" in kernel.run("%load_ext gpu_magic").said


def test_it_is_reloaded_and_unloaded(kernel: Kernel) -> None:
    before = kernel.run("%gpus 1")
    assert before.status == "ok"
    assert "is undone" in kernel.run("%reload_ext gpu_magic").said
    autoreload = kernel.run("%load_ext autoreload")
    if autoreload.errors != ["No module named 'imp'"]:  # IPython 7's imports it, and Python 3.12 has none
        assert autoreload.status == kernel.run("%autoreload 2").status == "ok"
    assert "cuda:0 = GPU 2" in kernel.run("%gpus 2").said
    assert "is undone" in kernel.run("%unload_ext gpu_magic").said
    assert kernel.run("%gpus").status != "ok" or "not found" in kernel.run("%gpus").refusal
