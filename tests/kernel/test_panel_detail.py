"""What a page is told of a row that is open, and what it can have done about processes and variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ROOT
from tests.kernel.test_panel import Page
from tests.machine import MIG
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


def test_an_open_row_has_its_detail_and_others_have_none(page: Page) -> None:
    watch(page, "2", MIG[0].uuid, "no such device")
    details = page.state(lambda state: state["details"])["details"]
    assert set(details) == {"2"}
    detail = details["2"]
    assert detail["power_limit"] == 400
    assert detail["slowdowns"] == []  # that it is idle is none
    assert detail["processes"] == []
    assert detail["is_listed"] is True
    assert detail["memory"][-1] == 6  # thousandths: half a GiB of 80
    watch(page)
    page.state(lambda state: not state["details"])
    page.look("watched", "w", "1")  # the row of another view
    page.state(lambda state: set(state["details"]) == {"1"})
    page.look("hidden", "w", "1")
    page.state(lambda state: not state["details"])


@sees_processes
def test_a_process_of_ones_own_is_ended(page: Page, tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py") as process:
        page.kernel.change_machine(using(process.pid))
        watch(page, "1")
        found = listed(page, process.pid)
        assert found["step"] == "end"
        end(page, found)
        assert process.wait() == -15


@sees_processes
def test_kill_comes_after_term_and_only_where_that_was_of_no_use(page: Page, tmp_path: Path) -> None:
    with running(DEAF, tmp_path / "deaf.py") as process:
        page.kernel.change_machine(using(process.pid))
        watch(page, "1")
        found = listed(page, process.pid)
        end(page, found)
        steps = ["end"]
        while steps[-1] != "kill":
            steps.append(listed(page, process.pid)["step"])
        assert steps[-2:] == ["wait", "kill"]
        assert process.poll() is None
        end(page, found, kill=True)
        assert process.wait() == -9


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


@sees_processes
def test_a_process_that_is_not_the_one_that_was_shown_is_left_alone(page: Page, tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py") as process:
        page.kernel.change_machine(using(process.pid))
        watch(page, "1")
        found = listed(page, process.pid)
        end(page, found, started=12345)
        assert "is another one than was shown; nothing was sent to it." in page.hear_said()["text"]
        end(page, found, pid=1 << 30)
        assert f"Process {1 << 30} has ended already." in page.hear_said()["text"]
        assert process.poll() is None


@sees_processes
def test_this_kernel_is_marked_and_is_not_ended(page: Page) -> None:
    pid = int(page.kernel.run("import os; print(os.getpid(), end='')").stdout)
    page.kernel.change_machine(using(pid))
    watch(page, "1")
    found = listed(page, pid)
    assert (found["whose"], found["step"]) == ("this kernel", "")
    end(page, found)
    assert f"Process {pid} is this kernel" in page.hear_said()["text"]
    assert page.kernel.is_alive()


@sees_processes
def test_what_a_task_has_started_is_left_to_gpu_tasks(page: Page, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import os\nopen('pid', 'w').write(str(os.getpid()))\n{WAITS}")
    page.kernel.run("%gpu_launch --background night python train.py")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    page.kernel.change_machine(using(pid))
    watch(page, "1")
    found = listed(page, pid)
    assert (found["whose"], found["step"]) == ("started by this kernel", "")
    end(page, found)
    assert f"Process {pid} is task night: %gpu_tasks stop night ends it." in page.hear_said()["text"]
    page.kernel.run("%gpu_tasks stop night")


def test_nothing_is_ended_once_the_extension_is_unloaded(page: Page) -> None:
    page.kernel.run("%unload_ext gpu_magic")
    for message in (
        {"type": "free"},
        {"type": "end_process", "pid": 1, "started": 1, "kill": False},
    ):
        page.send(message)
        while (said := page.hear_said())["kind"] != "error":
            pass
        assert "gpu_magic was unloaded" in said["text"]


@pytest.fixture
def cupy_page(start_kernel: Callable[..., Kernel]) -> Page:
    """Return the page of a kernel in which CuPy has four devices."""
    kernel = start_kernel(PYTHONPATH=f"{ROOT}:{SOURCES / 'standin'}", CUDA_VISIBLE_DEVICES="1,2,3,0")
    kernel.run("%load_ext gpu_magic")
    return Page(kernel)


def test_variables_are_told_of_the_gpu_that_they_are_on(cupy_page: Page) -> None:
    make = "import cupy\nsmall = cupy.ones(10)\nlarge = [cupy.ones(1000), small]\n_own = cupy.ones(5)"
    assert cupy_page.kernel.run(make).status == "ok"
    watch(cupy_page, "1", "2")
    while not (there := told(cupy_page)["variables"]):
        pass
    assert there == {"largest": [["large", "7.9 KiB"], ["small", "80 bytes"]], "more": 0, "unfinished": False}


def test_variables_are_looked_at_again_after_each_cell(cupy_page: Page) -> None:
    watch(cupy_page, "1")
    told(cupy_page)
    cupy_page.kernel.client.execute(
        "import cupy\nglobals().update(\n    {f'x{n:02}': cupy.ones(n + 1) for n in range(12)})"
    )
    while not (there := told(cupy_page)["variables"]) or not there["largest"]:
        pass
    assert [name for name, _ in there["largest"]] == [f"x{n:02}" for n in range(11, 1, -1)]
    assert there["more"] == 2


def test_what_can_be_freed_is_freed_and_said(cupy_page: Page) -> None:
    kernel = cupy_page.kernel
    kernel.run("import cupy\nkept = cupy.ones(100)")
    kernel.run("cupy.ones(1000)")
    watch(cupy_page, "1")
    cupy_page.send({"type": "free"})
    said = cupy_page.hear_said()
    assert said["kind"] == "done"
    assert "Dropped Out[" in said["text"]
    assert "Still held by kept (800 bytes)" in said["text"]
    assert kernel.run("print(len(Out), end='')").stdout == "0"


def test_nothing_is_freed_while_a_cell_runs(cupy_page: Page) -> None:
    kernel = cupy_page.kernel
    kernel.run("import cupy, time\ncupy.ones(1000)")
    reply = kernel.run(
        "panel.state.receive(panel, {'type': 'free'}); time.sleep(0.5); print(len(Out), end='')"
    )
    assert reply.stdout == "1"
    assert "Dropped Out[" in cupy_page.hear_said()["text"]
