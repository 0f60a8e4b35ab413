"""The panel's part in a kernel: its comm, its thread, and choices between cells. `tests/panel` has what it decides."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from queue import Empty
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import LIMIT, ROOT, needs_ipykernel
from tests.machine import CARDS, Driver
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

THREADS = "import threading; print(sum(thread.name == 'gpu_magic-panel' for thread in threading.enumerate()), end='')"
MASK = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), end='')"
START_CUDA = "import ctypes; _ = ctypes.CDLL('libcuda.so.1').cuInit(0)"


class Page:
    """What pages do with the panel, and nothing of what they show."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        reply = kernel.run("import gpu_magic\npanel = gpu_magic.panel()\nprint(panel.model_id, end='')")
        assert reply.status == "ok", reply.traceback
        self.key = reply.stdout
        self._state: dict[str, Any] = {}  # the latest
        self._said = 1  # the number of what was heard last: at first, nothing is said

    def send(self, content: Any, method: str = "custom", **data: Any) -> None:
        self.send_data({"method": method, "content": content, **data})

    def send_data(self, data: Any, **header: str) -> None:
        client = self.kernel.client
        message = client.session.msg("comm_msg", {"comm_id": self.key, "data": data})
        message["header"] |= header
        client.session.send(client.shell_channel.socket, message)

    def choose(self, request: str, *, restart: bool = False) -> None:
        self.send({"type": "choose", "request": request, "restart": restart, "page": "p"})

    def look(self, visibility: str = "watched", view: str = "v", *open_rows: str) -> None:
        self.send({"type": "look", "view": view, "visibility": visibility, "open": open_rows})

    def hear(self, seconds: float = LIMIT) -> dict[str, Any]:
        """Return the next message that is for this panel; an empty one where none comes."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                message = self.kernel.client.get_iopub_msg(timeout=left)
            except Empty:
                break
            content = message["content"]
            if message["msg_type"] == "comm_msg" and content["comm_id"] == self.key:
                # Figures stay beside their units in the page.
                data: dict[str, Any] = json.loads(json.dumps(content["data"]).replace("\\u00a0", " "))
                return data.get("content", data)
        return {}

    def state(self, found: Callable[[dict[str, Any]], object] = lambda _state: True) -> dict[str, Any]:
        """Return the next state that is looked for."""
        while message := self.hear():
            kind = message.pop("type", None)
            if kind not in ("state", "same"):
                continue
            state: dict[str, Any] = message["state"] if kind == "state" else self._state | message
            self._state = {name: value for name, value in state.items() if name != "history"}
            if found(state):
                return state
        raise TimeoutError

    def hear_said(self) -> dict[str, str]:
        """Return what the panel is told to say next."""
        state = self.state(lambda state: state["said"]["number"] > self._said and state["said"]["text"])
        self._said = state["said"]["number"]
        return {"text": state["said"]["text"], "kind": state["said"]["kind"]}


def row(state: dict[str, Any], number: int) -> dict[str, Any]:
    found: dict[str, Any] = state["rows"][number]
    return found


@pytest.fixture
def page(kernel: Kernel) -> Page:
    return Page(kernel)


def ends(kernel: Kernel) -> bool:
    """Wait for the thread to end, which it does at its next tick."""
    until(lambda: kernel.run(THREADS).stdout == "0")
    return True


def test_what_no_page_would_send_changes_nothing_and_the_panel_says_so(page: Page) -> None:
    update = {"full_state": {"rows": {}}, "_esm": "alert(1)", "key": "x"}
    for send in (
        lambda: page.send({"type": "delete", "request": "1", "page": "p"}),
        lambda: page.send(None, "update", state=update, buffer_paths=[]),
        lambda: page.send(None, "update", state={}, buffer_paths=None),
        lambda: page.send({}, "backbone"),
        lambda: page.send_data({"method": "custom"}),
        lambda: page.send_data([]),
    ):
        send()
        assert page.hear_said() == {
            "text": "The page sent an invalid message. Nothing was changed.",
            "kind": "error",
        }
    assert page.kernel.run("print('alert(1)' in panel._esm, end='')").stdout == "False"
    assert page.kernel.run(MASK).stdout == "None"


def test_one_thread_while_somebody_looks_and_none_else(page: Page) -> None:
    kernel = page.kernel
    assert kernel.run(THREADS).stdout == "1"
    page.look()
    assert kernel.run(THREADS).stdout == "1"
    page.look("hidden")
    assert ends(kernel)
    page.look()  # the page is in front again
    assert [row["key"] for row in page.state()["rows"]] == ["0", "1", "2", "3"]
    assert kernel.run(THREADS).stdout == "1"
    page.kernel.change_machine(Driver((replace(CARDS[0], util=42), *CARDS[1:])))
    page.state(lambda state: row(state, 0)["utilization"] == 42)
    page.kernel.client.execute("gpu_magic.choose('2')")
    page.state(lambda state: row(state, 2)["visible_as"] == "cuda:0")
    kernel.run("panel.close()")
    assert ends(kernel)
    Page(kernel).look()  # a new one
    assert kernel.run(THREADS).stdout == "1"


def test_a_page_without_a_widget_finds_it_by_its_name(page: Page) -> None:
    client = page.kernel.load().client
    asked = client.comm_info(target_name="gpu_magic")
    while (reply := client.get_shell_msg(timeout=LIMIT))["parent_header"]["msg_id"] != asked:
        pass
    (page.key,) = reply["content"]["comms"]
    page.send_data({"type": "choose", "request": "3", "restart": False, "page": "p"})
    assert page.hear_said()["kind"] == "done"
    assert page.kernel.run(MASK).stdout == "3"


@pytest.mark.parametrize("is_widget", [True, False])
def test_a_page_is_heard_after_another_has_gone_with_its_subshell(page: Page, is_widget: bool) -> None:
    """From 7.4 on ipykernel hands messages to the subshell that was busy when the panel has sent its state."""
    needs_ipykernel("7", "it has subshells")
    client = page.kernel.client

    def ask(channel: Any, request: str, **content: str) -> Any:
        sent = client.session.send(channel.socket, f"{request}_request", content)
        while (reply := channel.get_msg(timeout=LIMIT))["parent_header"]["msg_id"] != sent["msg_id"]:
            pass
        return reply["content"]

    if not is_widget:
        page.kernel.run("%load_ext gpu_magic")
        (page.key,) = ask(client.shell_channel, "comm_info", target_name="gpu_magic")["comms"]

    def send(content: Any, **header: str) -> None:
        page.send_data({"method": "custom", "content": content} if is_widget else content, **header)

    other = ask(client.control_channel, "create_subshell")["subshell_id"]
    send({"type": "look", "view": "v", "visibility": "watched", "open": ()}, subshell_id=other)
    page.state(lambda state: "history" in state)
    page.state(lambda state: "history" not in state)  # a second later, and nothing came after that look
    ask(client.control_channel, "delete_subshell", subshell_id=other)
    send({"type": "choose", "request": "3", "restart": False, "page": "p"})
    assert page.hear_said()["kind"] == "done"
    # After a restart that JupyterLab was not told of, it names a subshell of the process before.
    send({"type": "choose", "request": "1", "restart": False, "page": "p"}, subshell_id=other)
    assert page.hear_said()["kind"] == "done"


def test_unloading_ends_it_and_loading_again_goes_on(page: Page) -> None:
    kernel = page.kernel
    page.look()
    kernel.run(
        CHOOSE.format(request="3", restart=False) + "%reload_ext gpu_magic"
    )  # what was clicked is kept
    assert kernel.run(MASK).stdout == "3"
    assert kernel.run(THREADS).stdout == "1"
    kernel.run("%unload_ext gpu_magic")
    assert kernel.run(THREADS).stdout == "0"
    page.choose("1")
    while (said := page.hear_said())["kind"] != "error":
        pass
    assert said["text"] == "gpu_magic was unloaded. To choose here: %load_ext gpu_magic"
    assert kernel.run(MASK).stdout == "None"
    page.look()
    assert kernel.run(THREADS).stdout == "0"
    kernel.run("%load_ext gpu_magic")
    assert kernel.run(THREADS).stdout == "1"
    events = "ip = get_ipython(); print(sum('IdleCallback' in repr(f) for l in ip.events.callbacks.values() for f in l), end='')"
    assert kernel.run(events).stdout == "2"
    kernel.client.execute("%unload_ext gpu_magic")
    page.state(lambda state: state["is_paused"])
    assert kernel.run(events).stdout == "0"
    kernel.client.execute("panel")  # a new panel wakes the others
    page.state(lambda state: not state["is_paused"])


@pytest.mark.nightly
@pytest.mark.timeout(600)  # may install an older ipykernel first
@pytest.mark.parametrize("version", ["6.30.1", "7.3.0", "7.4.0"])
def test_an_ipykernel_that_can_miss_a_request_is_named_with_its_upgrade(
    start_kernel: Callable[..., Kernel], ipykernel: Callable[[str], str], version: str
) -> None:
    kernel = start_kernel(PYTHONPATH=f"{ipykernel(version)}:{ROOT}")
    notes = kernel.run("import gpu_magic; gpu_magic.panel().state.state()['header']['notes']").text
    says = (
        "['ipykernel 7.3.0 can miss a cell or a click until the next one: pip install --upgrade ipykernel']"
    )
    assert notes == (says if version == "7.3.0" else "[]")


CHOOSE = """
panel.state.choosing.choose({request!r}, restart={restart}, page="p")
"""


def test_a_cell_within_a_cell_is_not_the_end_of_it(page: Page) -> None:
    choose = CHOOSE.format(request="3", restart=False)
    inner = (
        "get_ipython().run_cell('1'); import asyncio; await asyncio.sleep(0.1); get_ipython().run_cell('2')"
    )
    assert page.kernel.run(f"{choose}\n{inner}\n{MASK}").stdout.endswith("None")
    assert page.kernel.run(MASK).stdout == "3"


def test_a_panel_that_nobody_watches_is_read_for_during_cells_alone(page: Page) -> None:
    page.look("unwatched")
    page.state(lambda state: "history" in state)
    while page.hear(1.5):  # what was on its way: it is read every second
        pass
    page.kernel.change_machine(Driver((replace(CARDS[0], util=42), *CARDS[1:])))
    assert page.hear(1.5) == {}
    page.kernel.client.execute(
        "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)"
    )
    page.state(lambda state: row(state, 0)["utilization"] == 42)
    page.kernel.interrupt()


def test_a_panel_made_on_another_thread(kernel: Kernel) -> None:
    kernel.run("import gpu_magic, threading, asyncio")
    kernel.run(
        "async def make():\n    global panel\n    panel = gpu_magic.panel()\n"
        "thread = threading.Thread(target=lambda: asyncio.run(make()))\nthread.start()\nthread.join()"
    )
    page = Page(kernel)
    page.choose("3")
    assert page.hear_said()["kind"] == "done"
    assert kernel.run(MASK).stdout == "3"


def test_a_hanging_driver_keeps_neither_the_thread_nor_the_kernel(page: Page) -> None:
    page.look()
    page.kernel.change_machine(Driver(CARDS, hangs=(("nvmlDeviceGetMemoryInfo_v2", 1, 30.0),)))
    page.state(lambda state: row(state, 1)["usage"] == "problem")
    page.kernel.change_machine(Driver((replace(CARDS[0], util=7), *CARDS[1:])))
    page.state(lambda state: row(state, 0)["utilization"] == 7)


def test_what_stands_in_the_notebook_without_widgets(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(SLURM_JOB_ID="123", SLURM_JOB_GPUS="1,3", CUDA_VISIBLE_DEVICES="1,3")
    kernel.run("%load_ext gpu_magic")
    reply = kernel.run("%gpu_panel")
    assert reply.text.startswith("driver 580.65.06")
    assert "<table" in reply.html
    # The panel says who gave which GPUs, and takes no arguments.
    header = "gpu_magic.panel().state.state()['header']['allotted']"
    assert kernel.run(f"import gpu_magic; {header}").text == "'allotted by Slurm job 123: GPUs 1, 3'"
    for arguments, says in (
        ("1,3", "takes no arguments. To choose by typing: %gpus 1,3"),
        ("--strict", "takes no options"),
    ):
        assert says in kernel.run(f"%gpu_panel {arguments}").refusal
