"""The wait that is begun in a panel: it looks beside all cells, and chooses between them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.claims.holders import stranger
from tests.kernel.test_panel import MASK, START_CUDA, Page
from tests.machine import CARDS
from tests.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kernel.conftest import Kernel

THREADS = (
    "import threading; print(sum(one.name == 'gpu_magic-wait' for one in threading.enumerate()), end='')"
)
HELD = r"Waiting for GPU 3, \d+ s: claimed by \w+, since .+\. Next look in \d+ s\."
CELL = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)\n"


@pytest.fixture
def page(kernel: Kernel) -> Page:
    kernel.run("import sys; sys.modules['gpu_magic.gpus.wait'].FIRST_PAUSE = 0.1")
    return Page(kernel)


def begin(page: Page) -> None:
    """Have it wait for GPU 3; return once it does."""
    page.send({"type": "wait", "request": "3"})
    until_said(page, HELD)


def until_said(page: Page, text: str) -> None:
    """Wait until a text is told on the wait."""
    page.state(lambda state: re.fullmatch(text, state["waiting"]))


def test_it_waits_while_cells_run_and_chooses_between_them(
    kernel: Kernel, page: Page, tmp_path: Path
) -> None:
    free = re.escape("GPU 3: free. Chosen when the kernel is free.")
    with stranger() as other:
        other.run(f"claims.hold({[CARDS[3].uuid]!r})")
        begin(page)
        assert kernel.run(MASK).stdout == "None"
        kernel.client.execute(CELL)
        other.run("claims.hold([])")
        until_said(page, free)
        other.run(f"claims.hold({[CARDS[3].uuid]!r})")  # somebody else is faster
        (tmp_path / "go").touch()
        until_said(page, HELD)
        assert kernel.run(MASK).stdout == "None"
        other.run("claims.hold([])")
    said = page.hear_said()
    assert said["kind"] == "done"
    assert said["text"].startswith("cuda:0 = GPU 3 (")
    assert kernel.run(MASK).stdout == "3"
    until(lambda: kernel.run(THREADS).stdout == "0")


def test_where_cuda_is_initialized_meanwhile_it_ends_and_says_so(kernel: Kernel, page: Page) -> None:
    with stranger() as other:
        other.run(f"claims.hold({[CARDS[3].uuid]!r})")
        begin(page)
        kernel.run(START_CUDA)
        said = page.hear_said()
        assert said["kind"] == "warning"
        assert said["text"].startswith("Too late: ")
        until(lambda: kernel.run(THREADS).stdout == "0")


def test_a_kernel_that_ends_ends_it(kernel: Kernel, page: Page) -> None:
    with stranger() as other:
        other.run(f"claims.hold({[CARDS[3].uuid]!r})")
        begin(page)
        kernel.client.shutdown()
        until(lambda: not kernel.is_alive())
