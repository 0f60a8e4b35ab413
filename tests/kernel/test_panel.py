"""The panel's kernel side: what a page can send, and when the machine is read."""

from __future__ import annotations

import time
from dataclasses import replace
from queue import Empty
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import LIMIT, ROOT
from tests.machine import CARDS, GIB, Driver

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
        self._said = 1  # the number of what was heard last: at first, nothing is said

    def send(self, content: Any, method: str = "custom", **data: Any) -> None:
        client = self.kernel.client
        message = {"comm_id": self.key, "data": {"method": method, "content": content, **data}}
        client.session.send(client.shell_channel.socket, "comm_msg", message)

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
                data: dict[str, Any] = content["data"]
                return data.get("content", data)
        return {}

    def state(self, found: Callable[[dict[str, Any]], object] = lambda _state: True) -> dict[str, Any]:
        """Return the next state that is looked for."""
        while message := self.hear():
            if message.get("type") == "state" and found(message["state"]):
                state: dict[str, Any] = message["state"]
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
    deadline = time.monotonic() + LIMIT
    while kernel.run(THREADS).stdout != "0" and time.monotonic() < deadline:
        time.sleep(0.2)
    return kernel.run(THREADS).stdout == "0"


NONSENSE: list[Any] = [
    None,
    [],
    "choose",
    {},
    {"type": "delete", "request": "1", "page": "p"},
    {"type": "attach", "page": ""},
]


def test_nonsense_changes_nothing_and_the_panel_says_so(page: Page) -> None:
    for content in NONSENSE:
        page.send(content)
        assert page.hear_said() == {
            "text": "The page sent a message that is not understood; nothing was changed.",
            "kind": "error",
        }, content
    page.send(
        None, "update", state={"full_state": {"rows": {}}, "_esm": "alert(1)", "key": "x"}, buffer_paths=[]
    )
    assert page.hear_said()["text"].startswith("The page sent a message that is not understood")
    assert page.kernel.run("print('alert(1)' in panel._esm, end='')").stdout == "False"
    assert page.kernel.run(MASK).stdout == "None"


@pytest.mark.parametrize(
    ("request_text", "says"),
    [
        ("9", "There is no GPU 9: this machine has GPUs 0 to 3."),
        ("1,1", "names 1 twice"),
        ("-1", "GPUs are numbered from 0"),
        ("", "No GPU is named"),
        ("1;import os", "separated by commas"),
        (",".join(map(str, range(100_000))), "is too long for a list of GPUs"),
        ("GPU-ffff", "No GPU here has a UUID that begins with GPU-ffff"),
        ("auto:9", "only 4 can be picked"),
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_what_can_not_be_chosen_changes_nothing(
    page: Page, restart: bool, request_text: str, says: str
) -> None:
    page.choose(request_text, restart=restart)
    assert says in page.hear_said()["text"]
    assert page.kernel.run(MASK).stdout == "None"


def test_a_wider_mask_than_the_kernel_was_given_is_refused(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="1,2")
    kernel.run("%load_ext gpu_magic")
    page = Page(kernel)
    page.choose("3")
    assert "GPU 3 is outside what this process was given" in page.hear_said()["text"]
    page.choose("2")
    assert page.hear_said()["text"].startswith("cuda:0 = GPU 2")
    assert kernel.run(MASK).stdout == "2"


def test_lines_that_warn_are_told_from_those_of_success(page: Page) -> None:
    used = replace(CARDS[2], used=50 * GIB, processes=((1, 49 * GIB),))
    page.kernel.change_machine(Driver((*CARDS[:2], used, CARDS[3])))
    page.choose("2,3")
    said = page.state(lambda state: state["said"]["kind"] == "done")["said"]
    mapped, also_mapped, warning = said["text"].split("\n")
    assert [mapped[:14], also_mapped[:14]] == ["cuda:0 = GPU 2", "cuda:1 = GPU 3"]
    assert warning.startswith("GPU 2 is in use by ")
    assert said["warnings"] == [warning]


def test_one_thread_while_somebody_looks_and_none_else(page: Page) -> None:
    kernel = page.kernel
    assert kernel.run(THREADS).stdout == "1"
    for view in ("v", "w"):
        page.look("watched", view)
    assert kernel.run(THREADS).stdout == "1"
    page.look("hidden", "v")
    time.sleep(1.2)
    assert kernel.run(THREADS).stdout == "1"  # the other view is still looked at
    page.look("hidden", "w")
    assert ends(kernel)
    page.look()  # the page is in front again
    assert [row["key"] for row in page.state()["rows"]] == ["0", "1", "2", "3"]
    assert kernel.run(THREADS).stdout == "1"
    kernel.run("panel.close()")
    assert ends(kernel)
    Page(kernel).look()  # a new one
    assert kernel.run(THREADS).stdout == "1"


def test_unloading_ends_it_and_loading_again_goes_on(page: Page) -> None:
    kernel = page.kernel
    page.look()
    page.choose("2")
    assert page.hear_said()["kind"] == "done"
    kernel.run("%reload_ext gpu_magic")
    assert kernel.run(THREADS).stdout == "1"
    assert kernel.run("%unload_ext gpu_magic").stdout.startswith("Your choice is undone") is False
    assert kernel.run(THREADS).stdout == "0"
    page.choose("1")
    while (said := page.hear_said())["kind"] != "error":
        pass
    assert said["text"] == "gpu_magic was unloaded, so nothing can be chosen here: %load_ext gpu_magic."
    assert kernel.run(MASK).stdout == "None"
    page.look()
    assert kernel.run(THREADS).stdout == "0"
    kernel.run("%load_ext gpu_magic")
    assert kernel.run(THREADS).stdout == "1"
    events = "ip = get_ipython(); print(sum('IdleCallback' in repr(f) for l in ip.events.callbacks.values() for f in l), end='')"
    assert kernel.run(events).stdout == "2"
    kernel.run("%unload_ext gpu_magic")
    assert kernel.run(events).stdout == "0"


def test_the_panel_says_who_gave_which_gpus(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(SLURM_JOB_ID="123", SLURM_JOB_GPUS="1,3", CUDA_VISIBLE_DEVICES="1,3")
    kernel.run("%load_ext gpu_magic")
    header = "gpu_magic.panel().state.state()['header']['allotted']"
    assert kernel.run(f"import gpu_magic; {header}").text == "'allotted by Slurm job 123: GPUs 1, 3'"


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


def test_a_reading_is_sent_whole_once_a_second(page: Page) -> None:
    page.look()
    first = page.state(lambda state: "history" in state)
    assert first["history"]["0"][-1] == 0
    page.kernel.change_machine(Driver((replace(CARDS[0], util=42), *CARDS[1:])))
    state = page.state(lambda state: row(state, 0)["utilization"] == 42)
    assert state["header"]["least_busy"] == "1,2,3,0"
    assert state["second"] > first["second"]
    assert "history" not in state  # pages keep it
    assert row(state, 0) == {
        "key": "0",
        "label": "0",
        "name": "NVIDIA A100-SXM4-80GB",
        "total": "80.0 GiB",
        "total_gib": 80.0,
        "used": 0.5,
        "shares": [0, 0, 6],
        "utilization": 42,
        "temperature": 31,
        "power": 56,
        "users": [IN_USE],
        "usage": "busy",
        "visible_as": "cuda:0",
        "is_held": True,
        "unavailable": "",
        "parent": "",
    }


def test_what_is_typed_is_seen(page: Page) -> None:
    page.look()
    page.kernel.client.execute("gpu_magic.choose('2')")
    state = page.state(lambda state: row(state, 2)["visible_as"] == "cuda:0")
    assert state["header"]["hides_devices"] is True


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


def test_a_restart_does_not_kill_the_cells_that_wait_their_turn(page: Page) -> None:
    kernel = page.kernel
    kernel.run(f"import time\n{START_CUDA}")
    choose = CHOOSE.format(request="3", restart=True)
    for code in (
        f"time.sleep(0.5)\n{choose}",
        "time.sleep(0.5)",
        "open('ran', 'w').close(); time.sleep(0.5)",
    ):
        kernel.client.execute(code)
    while (message := page.hear()).get("type") != "restart":
        assert message
    assert kernel.run("import pathlib; print(pathlib.Path('ran').exists(), end='')").stdout == "True"


def test_a_panel_that_nobody_watches_is_read_for_during_cells_alone(page: Page) -> None:
    page.look("unwatched")
    assert row(page.state(lambda state: "history" in state), 0)["utilization"] == 0
    while page.hear(1.5):  # what was on its way
        pass
    page.kernel.change_machine(Driver((replace(CARDS[0], util=42), *CARDS[1:])))
    assert page.hear(3.0) == {}
    page.kernel.client.execute(
        "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)"
    )
    page.state(lambda state: row(state, 0)["utilization"] == 42)
    page.kernel.interrupt()


def test_seconds_without_a_reading_are_a_gap(page: Page) -> None:
    page.look()
    page.look("hidden")
    assert ends(page.kernel)
    time.sleep(2.5)
    page.look()
    state = page.state(lambda state: None in state.get("history", {}).get("0", ()) or page.look())
    samples = state["history"]["0"]
    assert len(samples) == state["second"] + 1  # an item each second since the first
    assert samples[0] is not None


def test_what_was_said_is_told_to_a_page_that_comes_later(page: Page) -> None:
    page.look("hidden")
    page.choose("2")
    page.kernel.run("pass")
    for _ in range(2):  # a reading of what it has done is no news
        page.look()
        assert page.state()["said"]["text"].startswith("cuda:0 = GPU 2")
        time.sleep(2)
    page.kernel.run("_ = gpu_magic.choose('1')")
    page.state(lambda state: not state["said"]["text"])


def test_reloading_keeps_what_was_clicked(page: Page) -> None:
    page.kernel.run(CHOOSE.format(request="3", restart=False) + "%reload_ext gpu_magic")
    assert page.kernel.run(MASK).stdout == "3"


def test_a_new_panel_wakes_the_others(page: Page) -> None:
    page.look()
    page.kernel.client.execute("%unload_ext gpu_magic")
    page.state(lambda state: state["is_paused"])
    page.kernel.client.execute("panel")
    page.state(lambda state: not state["is_paused"])


def test_a_method_that_there_is_not(page: Page) -> None:
    page.look()
    for method in ("", "backbone", "delete"):
        page.send({}, method)
        assert (
            page.hear_said()["text"] == "The page sent a message that is not understood; nothing was changed."
        )


def test_a_folder_that_can_not_be_written_to(page: Page) -> None:
    page.look()
    page.kernel.run(START_CUDA)
    # A folder stands where the choice would be kept: root could write into any.
    page.kernel.run(
        "from gpu_magic.restart.saved import saved_choice_file; saved_choice_file().with_suffix('.new').mkdir(parents=True)"
    )
    page.choose("3", restart=True)
    assert page.hear_said()["text"].startswith(
        "The choice can't be saved for a restart, so nothing was changed"
    )
    said = page.kernel.run("%gpus 3 --restart").stderr
    assert said.startswith("UsageError: The choice can't be saved for a restart")


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


IN_USE = "in use, by whom can't be seen from here"


def test_a_hanging_driver_keeps_neither_the_thread_nor_the_kernel(page: Page) -> None:
    page.look()
    page.kernel.change_machine(Driver(CARDS, hangs=(("nvmlDeviceGetMemoryInfo_v2", 1, 30.0),)))
    page.state(lambda state: row(state, 1)["usage"] == "problem")
    page.kernel.change_machine(Driver((replace(CARDS[0], util=7), *CARDS[1:])))
    page.state(lambda state: row(state, 0)["utilization"] == 7)


def test_what_stands_in_the_notebook_without_widgets(kernel: Kernel) -> None:
    reply = kernel.run("%gpu_panel")
    assert reply.text.startswith("driver 580.65.06")
    assert "<table" in reply.html
    says = "UsageError: %gpu_panel takes no arguments; %gpus 1,3 chooses by typing.\n"
    assert kernel.run("%gpu_panel 1,3").stderr == says
    assert (
        kernel.run("%gpu_panel --strict").stderr
        == "UsageError: There is no --strict: %gpu_panel takes no options.\n"
    )
