"""The wait that is begun in a panel: it looks beside all cells, and chooses between them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.kernel.test_panel import MASK, START_CUDA, Page
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kernel.conftest import Kernel

THREADS = (
    "import threading; print(sum(one.name == 'gpu_magic-wait' for one in threading.enumerate()), end='')"
)
WAITS = "print(panel.state.state()['waiting'], end='')"
HELD = r"Waiting for GPU 3, \d+ s: claimed by \w+: train.ipynb, since .+\. Next look in \d+ s\."
CELL = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)\n"


@pytest.fixture
def holder(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return another kernel, which has chosen GPU 3."""
    kernel = start_kernel(JPY_SESSION_NAME="/home/maria/train.ipynb")
    kernel.run("%load_ext gpu_magic")
    kernel.run("%gpus 3")
    return kernel


@pytest.fixture
def page(holder: Kernel, start_kernel: Callable[..., Kernel]) -> Page:
    """Return a panel in a kernel beside that one."""
    kernel = start_kernel()
    kernel.run("%load_ext gpu_magic")
    return Page(kernel)


def begin(page: Page) -> None:
    """Have it wait for GPU 3; return once it does."""
    page.send({"type": "wait", "request": "3"})
    page.state(lambda state: re.fullmatch(HELD, state["waiting"]))


def ends(page: Page) -> bool:
    """Wait until nothing is waited for, and no thread looks."""
    until(lambda: page.kernel.run(THREADS).stdout == "0")
    return page.kernel.run(WAITS).stdout == ""


def test_it_chooses_when_nobody_else_has_the_gpu_and_cells_run_meanwhile(holder: Kernel, page: Page) -> None:
    begin(page)
    assert page.kernel.run(MASK).stdout == "None"
    holder.run("%gpus 0")
    said = page.hear_said()
    assert said["kind"] == "done"
    assert said["text"].startswith("cuda:0 = GPU 3 (")
    assert page.kernel.run(MASK).stdout == "3"
    assert ends(page)


@pytest.mark.parametrize(
    ("act", "mask"),
    [
        ({"type": "stop_waiting"}, "None"),
        ({"type": "choose", "request": "1", "restart": False, "page": "p"}, "1"),
        ("%gpus 1", "1"),
        ("%unload_ext gpu_magic", "None"),
        ("panel.close()", "None"),
    ],
    ids=["cancel", "use", "typed", "unload", "close"],
)
def test_what_ends_it_changes_nothing_of_its_own(
    holder: Kernel, page: Page, act: str | dict[str, Any], mask: str
) -> None:
    begin(page)
    assert "1 waits for GPUs" in holder.run("%gpus").text
    if isinstance(act, str):
        assert page.kernel.run(act).status == "ok"
    else:
        page.send(act)
    assert ends(page)
    assert "for GPUs" not in holder.run("%gpus").text
    holder.run("%gpus reset")
    assert page.kernel.run(MASK).stdout == mask


def test_during_a_cell_it_waits_for_its_end(holder: Kernel, page: Page, tmp_path: Path) -> None:
    begin(page)
    page.kernel.client.execute(CELL)
    holder.run("%gpus reset")
    assert until_said(page, "free") == "GPU 3: free, and chosen when the kernel is."
    (tmp_path / "go").touch()
    assert page.hear_said()["text"].startswith("cuda:0 = GPU 3 (")


def test_it_goes_on_where_somebody_else_was_faster(holder: Kernel, page: Page, tmp_path: Path) -> None:
    begin(page)
    page.kernel.client.execute(CELL)
    holder.run("%gpus 0")
    assert until_said(page, "free") == "GPU 3: free, and chosen when the kernel is."
    holder.run("%gpus 3")
    (tmp_path / "go").touch()
    assert re.fullmatch(HELD, until_said(page, "Waiting"))
    assert page.kernel.run(MASK).stdout == "None"
    holder.run("%gpus 0")
    assert page.hear_said()["text"].startswith("cuda:0 = GPU 3 (")


def until_said(page: Page, word: str) -> str:
    """Return the next text on the wait that has a word."""
    text: str = page.state(lambda state: word in state["waiting"])["waiting"]
    return text


def test_of_two_that_wait_one_gets_it(
    holder: Kernel, page: Page, start_kernel: Callable[..., Kernel]
) -> None:
    third = start_kernel()
    third.run("%load_ext gpu_magic")
    other = Page(third)
    begin(page)
    begin(other)
    holder.run("%gpus reset")
    until(lambda: [one.kernel.run(MASK).stdout for one in (page, other)].count("3") == 1)
    late = page if page.kernel.run(MASK).stdout == "None" else other
    assert "claimed by" in until_said(late, "Waiting")
    assert late.kernel.run(MASK).stdout == "None"


def test_where_cuda_is_initialized_meanwhile_it_ends_and_says_so(holder: Kernel, page: Page) -> None:
    begin(page)
    page.kernel.run(START_CUDA)
    said = page.hear_said()
    assert said["kind"] == "warning"
    assert "Nothing was changed." in said["text"]
    assert ends(page)


@pytest.mark.parametrize(
    ("request_text", "says"),
    [
        ("none", "--wait goes with auto and with GPUs by number"),
        ("9", "There is no GPU 9"),
        ("", "No GPU is named"),
    ],
)
def test_what_can_not_be_waited_for_is_refused(page: Page, request_text: str, says: str) -> None:
    page.send({"type": "wait", "request": request_text})
    assert says in page.hear_said()["text"]
    assert page.kernel.run(THREADS).stdout == "0"


def test_a_kernel_that_ends_ends_it(page: Page) -> None:
    begin(page)
    page.kernel.client.shutdown()
    until(lambda: not page.kernel.is_alive())
