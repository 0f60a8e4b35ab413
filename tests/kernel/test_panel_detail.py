"""What a page is told of a row that is open, and what it can have done about processes and variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ROOT
from tests.kernel.test_panel import Page
from tests.native import SOURCES
from tests.processes import DEAF, WAITS, another_users, running, sees_processes, until, using

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kernel.conftest import Kernel


@pytest.fixture
def page(kernel: Kernel) -> Page:
    return Page(kernel)


def watch(page: Page, *keys: str) -> None:
    page.look("watched", "v", *keys)


def told(page: Page, key: str = "1") -> dict[str, Any]:
    """Return the next detail of a device."""
    detail: dict[str, Any] = page.state(lambda state: key in state["details"])["details"][key]
    return detail


def listed(page: Page, pid: int) -> dict[str, Any]:
    """Return the process as the page is told it."""
    for _ in range(1000):
        for process in told(page)["processes"]:
            if process["pid"] == pid:
                found: dict[str, Any] = process
                return found
    raise TimeoutError


def end(page: Page, process: dict[str, Any], **how: Any) -> None:
    message = {"pid": process["pid"], "started": process["started"], "kill": False}
    page.send({"type": "end_process"} | message | how)


@sees_processes
def test_a_process_of_ones_own_gets_term_and_kill_only_where_that_was_of_no_use(
    page: Page, tmp_path: Path
) -> None:
    with running(DEAF, tmp_path / "deaf.py") as process:
        page.kernel.change_machine(using(process.pid))
        watch(page, "1")
        found = listed(page, process.pid)
        assert found["step"] == "end"
        end(page, found, started=12345)
        assert "is not the one that was shown. Nothing was sent to it." in page.hear_said()["text"]
        end(page, found, pid=1 << 30)
        assert f"Process {1 << 30} has already ended." in page.hear_said()["text"]
        end(page, found)
        steps = ["end"]
        while steps[-1] != "kill":
            steps.append(listed(page, process.pid)["step"])
        assert process.poll() is None
        end(page, found, kill=True)
        assert process.wait() == -9
    with running(WAITS, tmp_path / "train.py") as process:
        page.kernel.change_machine(using(process.pid))
        end(page, listed(page, process.pid))
        assert process.wait() == -15


@sees_processes
def test_what_is_not_ones_own_to_end_is_left_alone(page: Page, tmp_path: Path) -> None:
    # This kernel itself.
    pid = page.kernel.pid
    page.kernel.change_machine(using(pid))
    watch(page, "1")
    found = listed(page, pid)
    assert (found["whose"], found["step"]) == ("this kernel", "")
    end(page, found)
    assert f"Process {pid} is this kernel" in page.hear_said()["text"]
    assert page.kernel.is_alive()
    # What a task has started.
    (tmp_path / "train.py").write_text(f"import os\nopen('pid', 'w').write(str(os.getpid()))\n{WAITS}")
    page.kernel.run("%gpu_launch --background night python train.py")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    page.kernel.change_machine(using(pid))
    found = listed(page, pid)
    assert (found["whose"], found["step"]) == ("started by this kernel", "")
    end(page, found)
    assert f"Process {pid} is task night: %gpu_tasks stop night ends it." in page.hear_said()["text"]
    page.kernel.run("%gpu_tasks stop night")


@sees_processes
def test_a_process_of_another_user_is_never_ended(page: Page) -> None:
    with another_users(JPY_SESSION_NAME="secret.ipynb") as (pid, owner):
        page.kernel.change_machine(using(pid))
        watch(page, "1")
        found = listed(page, pid)
        assert (found["owner"], found["step"], found["notebook"]) == (owner, "", "")
        end(page, found)
        says = f"You have no process {pid} on a GPU."
        assert page.hear_said() == {"text": says, "kind": "error"}


def test_variables_are_told_after_each_cell_and_what_can_be_freed_is_freed_between_cells(
    start_kernel: Callable[..., Kernel],
) -> None:
    """In a kernel in which CuPy has four devices."""
    kernel = start_kernel(PYTHONPATH=f"{ROOT}:{SOURCES / 'standin'}", CUDA_VISIBLE_DEVICES="1,2,3,0")
    kernel.run("%load_ext gpu_magic")
    page = Page(kernel)

    def variables(found: Callable[[Any], object]) -> Any:
        while not (there := told(page)["variables"]) or not found(there):
            pass
        return there

    watch(page, "1", "2")
    make = "import cupy\nsmall = cupy.ones(10)\nlarge = [cupy.ones(1000), small]\n_own = cupy.ones(5)"
    kernel.client.execute(make)
    there = variables(lambda there: there["largest"])
    largest = [["large", "7.9 KiB"], ["small", "80 bytes"]]
    assert there == {"largest": largest, "more": 0, "unfinished": False, "parked": ""}
    kernel.client.execute(
        "del small, large\nglobals().update({f'x{n:02}': cupy.ones(n + 1) for n in range(12)})"
    )
    there = variables(lambda there: there["more"])
    assert [name for name, _ in there["largest"]] == [f"x{n:02}" for n in range(11, 1, -1)]
    assert there["more"] == 2
    kernel.run("for n in range(12): del globals()[f'x{n:02}']\nkept = cupy.ones(100)")
    kernel.run("cupy.ones(1000)")
    reply = kernel.run(
        "import time; panel.state.receive(panel, {'type': 'free'}); time.sleep(0.2); print(len(Out), end='')"
    )
    assert reply.stdout == "1"  # not while a cell runs
    said = page.hear_said()
    assert said["kind"] == "done"
    assert "Dropped Out[" in said["text"]
    assert "Still held by kept (800 bytes)" in said["text"]
    assert kernel.run("print(len(Out), end='')").stdout == "0"
