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
    """What a page does with one panel, and nothing of what it shows."""

    def __init__(self, kernel: Kernel, name: str = "panel") -> None:
        self.kernel = kernel
        reply = kernel.run(f"import gpu_magic\n{name} = gpu_magic.panel()\nprint({name}.model_id, end='')")
        assert reply.status == "ok", reply.traceback
        self.key = reply.stdout

    def send(self, content: Any, method: str = "custom", **data: Any) -> None:
        client = self.kernel.client
        message = {"comm_id": self.key, "data": {"method": method, "content": content, **data}}
        client.session.send(client.shell_channel.socket, "comm_msg", message)

    def do(self, **content: Any) -> None:
        """Send what makes sense."""
        self.send({"page": "p", "version": -1, "click": 1, "number": 0} | content)

    def hear(self, seconds: float = LIMIT) -> dict[str, Any]:
        """Return the next message that is for this panel."""
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

    def hear_said(self) -> dict[str, str]:
        """Return what the panel is told to say next."""
        while message := self.hear():
            if message.get("type") == "notice":
                return {"text": message["text"], "kind": message["kind"]}
        raise TimeoutError


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
    {"type": "choose"},
    {"type": ["choose"], "request": "1", "restart": False, "page": "p"},
    {"type": "choose", "request": 1, "restart": False, "page": "p"},
    {"type": "choose", "request": ["1", "3"], "restart": False, "page": "p"},
    {"type": "choose", "request": None, "restart": False, "page": "p"},
    {"type": "choose", "request": "1", "restart": "no", "page": "p"},
    {"type": "choose", "request": "1", "restart": False, "page": 3},
    {"type": "set_draft", "request": {"1": "3"}, "page": "p", "click": 1, "number": 0},
    {"type": "set_draft", "request": "1", "page": "p", "click": "1", "number": 0},
    {"type": "set_draft", "request": "1", "page": "p", "click": 1, "number": None},
    {"type": "set_draft", "request": "1", "page": "p" * 65, "click": 1, "number": 0},
    {"type": "delete", "request": "1", "page": "p"},
    {"type": "set_visibility", "view": 3, "visibility": "watched", "version": 1},
    {"type": "set_visibility", "view": "v", "visibility": "yes", "version": 1},
    {"type": "set_visibility", "view": "v", "visibility": "watched", "version": "1"},
    {"type": "set_visibility", "view": "", "visibility": "watched", "version": 1},
    {"type": "set_visibility", "view": "v" * 65, "visibility": "watched", "version": 1},
    {"type": "answer_restart", "can": True},
    {"type": "answer_restart", "can": "yes", "page": "p"},
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
@pytest.mark.parametrize(
    "what",
    [{"type": "choose", "restart": False}, {"type": "choose", "restart": True}, {"type": "set_draft"}],
    ids=["choose", "restart", "draft"],
)
def test_what_can_not_be_chosen_changes_nothing(
    page: Page, what: dict[str, Any], request_text: str, says: str
) -> None:
    page.do(**what, request=request_text)
    if what["type"] == "set_draft" and not request_text:  # what was clicked is dropped again
        return
    assert says in page.hear_said()["text"]
    assert page.kernel.run(MASK).stdout == "None"


def test_a_wider_mask_than_the_kernel_was_given_is_refused(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="1,2")
    kernel.run("%load_ext gpu_magic")
    page = Page(kernel)
    page.do(type="choose", restart=False, request="3")
    assert "GPU 3 is outside what this process was given" in page.hear_said()["text"]
    page.do(type="choose", restart=False, request="2")
    assert page.hear_said()["text"].startswith("cuda:0 = GPU 2")
    assert kernel.run(MASK).stdout == "2"


def test_lines_that_warn_are_told_from_those_of_success(page: Page) -> None:
    used = replace(CARDS[2], used=50 * GIB, processes=((1, 49 * GIB),))
    page.kernel.change_machine(Driver((*CARDS[:2], used, CARDS[3])))
    page.do(type="choose", restart=False, request="2,3")
    while (message := page.hear()).get("type") != "notice":
        assert message
    mapped, also_mapped, warning = message["text"].split("\n")
    assert [mapped[:14], also_mapped[:14]] == ["cuda:0 = GPU 2", "cuda:1 = GPU 3"]
    assert warning.startswith("GPU 2 is in use by ")
    assert message["warnings"] == [warning]
    page.do(type="set_visibility", view="v", visibility="watched")
    assert next_of(page, "state")["state"]["said"] == [message["text"], "done", [warning]]


def test_one_thread_while_somebody_looks_and_none_else(page: Page) -> None:
    kernel = page.kernel
    other = Page(kernel, "other")
    assert kernel.run(THREADS).stdout == "1"
    for one in (page, other):
        one.do(type="set_visibility", view="v", visibility="watched")
    assert kernel.run(THREADS).stdout == "1"
    page.do(type="set_visibility", view="v", visibility="hidden")
    time.sleep(1.2)
    assert kernel.run(THREADS).stdout == "1"  # the other one is still looked at
    other.do(type="set_visibility", view="v", visibility="hidden")
    assert ends(kernel)
    page.do(type="set_visibility", view="v", visibility="watched")  # the page is in front again
    while (message := page.hear()).get("type") != "state":
        assert message
    assert set(message["state"]["rows"]) == {"0", "1", "2", "3"}
    assert kernel.run(THREADS).stdout == "1"
    kernel.run("panel.close(); other.close()")
    assert ends(kernel)


def test_a_panel_in_two_places_is_looked_at_until_both_are_gone(page: Page) -> None:
    for view in ("one", "two"):
        page.do(type="set_visibility", view=view, visibility="watched")
    page.do(type="set_visibility", view="one", visibility="hidden")
    time.sleep(1.2)
    assert page.kernel.run(THREADS).stdout == "1"


def test_unloading_ends_it_and_loading_again_goes_on(page: Page) -> None:
    kernel = page.kernel
    page.do(type="set_visibility", view="v", visibility="watched")
    page.do(type="choose", restart=False, request="2")
    assert page.hear_said()["kind"] == "done"
    kernel.run("%reload_ext gpu_magic")
    assert kernel.run(THREADS).stdout == "1"
    assert kernel.run("%unload_ext gpu_magic").stdout.startswith("Your choice is undone") is False
    assert kernel.run(THREADS).stdout == "0"
    page.do(type="choose", restart=False, request="1")
    while (said := page.hear_said())["kind"] != "error":
        pass
    assert said["text"] == "gpu_magic was unloaded, so nothing can be chosen here: %load_ext gpu_magic."
    assert kernel.run(MASK).stdout == "None"
    page.do(type="set_visibility", view="v", visibility="watched")
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
    header = "gpu_magic.panel().state.full_state()['header']['allotted']"
    assert kernel.run(f"import gpu_magic; {header}").text == "'allotted by Slurm job 123: GPUs 1, 3'"


@pytest.mark.timeout(600)  # may install an older ipykernel first
@pytest.mark.parametrize("version", ["6.30.1", "7.3.0", "7.4.0"])
def test_an_ipykernel_that_can_miss_a_request_is_named_with_its_upgrade(
    start_kernel: Callable[..., Kernel], ipykernel: Callable[[str], str], version: str
) -> None:
    kernel = start_kernel(PYTHONPATH=f"{ipykernel(version)}:{ROOT}")
    notes = kernel.run("import gpu_magic; gpu_magic.panel().state.full_state()['header']['notes']").text
    says = (
        "['ipykernel 7.3.0 can miss a cell or a click until the next one: pip install --upgrade ipykernel']"
    )
    assert notes == (says if version == "7.3.0" else "[]")


def test_only_what_changed_is_sent(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    page.hear()
    page.kernel.change_machine(Driver((replace(CARDS[0], util=42), *CARDS[1:])))
    while not (message := page.hear()).get("rows"):
        assert message
    assert message == {
        "type": "changes",
        "second": message["second"],
        "unbroken": message["unbroken"],
        "version": message["version"],
        "header": {"least_busy": "1,2,3,0"},
        "rows": {"0": {"usage": "busy", "users": [IN_USE], "is_held": True}},
        "figures": {"0": [0.5, 6, 42, 31, 56]},
    }
    quiet = page.hear(3.0)  # nothing changes, and nothing is said, but for the beat
    assert quiet.get("type") in (None, "heartbeat")


def test_a_page_that_has_missed_something_is_told_all(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    while (message := page.hear()).get("type") != "state":
        assert message
    version = message["state"]["version"]
    page.do(type="set_visibility", view="v", visibility="watched", version=version)
    assert page.hear()["type"] == "heartbeat"
    page.do(type="set_visibility", view="v", visibility="watched", version=version - 1)
    assert page.hear()["state"]["version"] == version


def test_making_a_panel_keeps_nothing_from_the_others(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    page.hear()
    page.kernel.client.execute("gpu_magic.choose('2'); other = gpu_magic.panel()")
    while "2" not in (message := page.hear()).get("rows", {}):
        assert message
    assert message["rows"]["2"]["visible_as"] == "cuda:0"
    assert message["header"]["hides_devices"] is True


CHOOSE = """
from gpu_magic.widget.page_messages import Choose
panel.state.choices.choose(panel, Choose({request!r}, {restart}, "p"))
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


def test_what_is_clicked_after_a_choice_stays_clicked(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    page.kernel.client.execute("time = __import__('time'); time.sleep(0.5)")
    page.do(type="choose", restart=False, request="3")
    page.do(type="set_draft", request="1,2")
    assert page.hear_said()["kind"] == "done"
    assert page.kernel.run("print(panel.state.full_state()['draft'], end='')").stdout == "1,2"
    assert page.kernel.run(MASK).stdout == "3"


def next_of(page: Page, *types: str) -> dict[str, Any]:
    """Return the next message of these types."""
    while message := page.hear():
        if message.get("type") in types:
            return message
    raise TimeoutError


def test_a_click_on_an_older_draft_is_repeated_on_the_latest(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    page.do(type="set_draft", request="1", page="one", click=1, number=0)
    assert next_of(page, "draft", "outdated")["number"] == 1
    # The other page had not heard of it yet.
    page.do(type="set_draft", request="3", page="other", click=1, number=0)
    message = next_of(page, "draft", "outdated")
    assert message == {"type": "outdated", "request": "1", "number": 1, "clicks": {"one": 1}}
    page.do(type="set_draft", request="1,3", page="other", click=1, number=1)
    message = next_of(page, "draft", "outdated")
    assert (message["request"], message["page"], message["clicks"]["other"]) == ("1,3", "other", 1)
    page.do(type="set_draft", request="1,2", page="one", click=2, number=1)
    assert next_of(page, "draft", "outdated")["type"] == "outdated"


def test_a_page_need_not_wait_for_its_own_clicks_to_be_confirmed(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    for click, request in enumerate(("1", "1,3", "1,3,0"), 1):
        page.do(type="set_draft", request=request, click=click, number=0)
    assert [next_of(page, "draft", "outdated")["clicks"]["p"] for _ in range(3)] == [1, 2, 3]


def test_the_state_tells_of_each_page_which_clicks_it_has(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    page.do(type="set_draft", request="1", page="one", click=4, number=0)
    page.do(type="set_draft", request="1,3", page="other", click=2, number=1)
    page.do(type="set_draft", request="9", page="one", click=5, number=2)  # is refused
    page.do(type="set_draft", request="2", page="other", click=3, number=0)  # is to be repeated
    assert next_of(page, "outdated")["clicks"] == {"one": 5, "other": 2}
    page.do(type="set_visibility", view="v", visibility="watched")
    state = next_of(page, "state")["state"]
    assert (state["draft"], state["clicks"]) == ("1,3", {"one": 5, "other": 2})


def test_a_click_that_is_refused_is_void(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    page.do(type="set_draft", request="9", click=1, number=0)
    message = next_of(page, "draft", "outdated")
    assert (message["type"], message["request"], message["clicks"]) == ("draft", None, {"p": 1})
    assert "There is no GPU 9" in page.hear_said()["text"]


def test_a_panel_that_nobody_watches_is_read_for_during_cells_alone(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="unwatched")
    assert next_of(page, "state")["state"]["figures"]["0"][2] == 0
    while page.hear(1.5):  # what was on its way
        pass
    page.kernel.change_machine(Driver((replace(CARDS[0], util=42), *CARDS[1:])))
    assert page.hear(3.0) == {}
    page.kernel.client.execute(
        "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)"
    )
    while "0" not in (message := page.hear()).get("figures", {}):
        assert message
    assert message["figures"]["0"][2] == 42
    page.kernel.interrupt()


def test_seconds_without_a_reading_are_a_gap(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    page.do(type="set_visibility", view="v", visibility="hidden")
    assert ends(page.kernel)
    time.sleep(2.5)
    page.do(type="set_visibility", view="v", visibility="watched", version=-1)
    page.do(type="set_visibility", view="w", visibility="watched", version=-1)
    state = next_of(page, "state")["state"]
    while None not in state["history"]["0"]:
        page.do(type="set_visibility", view="w", visibility="watched", version=-1)
        state = next_of(page, "state")["state"]
    samples = state["history"]["0"]
    assert len(samples) == state["second"] + 1  # an item each second since the first
    assert samples[0] is not None


def test_what_was_said_is_told_to_a_page_that_comes_later(page: Page) -> None:
    def said() -> list[str]:
        page.do(type="set_visibility", view="v", visibility="watched")
        texts: list[str] = next_of(page, "state")["state"]["said"]
        return texts

    page.do(type="choose", restart=False, request="2")
    assert page.hear_said()["kind"] == "done"
    assert said()[0].startswith("cuda:0 = GPU 2")
    page.kernel.run("_ = gpu_magic.choose('1')")
    while said()[0]:  # until the next reading
        time.sleep(0.1)


def test_what_a_choice_has_done_is_told_to_a_page_that_looked_away(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="hidden")
    page.do(type="choose", restart=False, request="2")
    for _ in range(2):  # a reading of what it has done is no news
        page.do(type="set_visibility", view="v", visibility="watched")
        assert next_of(page, "state")["state"]["said"][0].startswith("cuda:0 = GPU 2")
        time.sleep(2)


def test_unloading_tells_pages_that_what_was_clicked_is_dropped(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    page.do(type="set_draft", request="1")
    assert next_of(page, "draft")["request"] == "1"
    page.kernel.client.execute("%unload_ext gpu_magic")
    assert next_of(page, "draft")["request"] is None


def test_reloading_keeps_what_was_clicked(page: Page) -> None:
    page.kernel.run(CHOOSE.format(request="3", restart=False) + "%reload_ext gpu_magic")
    assert page.kernel.run(MASK).stdout == "3"


def test_unloading_drops_what_was_clicked_and_a_new_panel_wakes_the_others(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    page.do(type="set_draft", request="1,2")
    page.kernel.run("%unload_ext gpu_magic")
    assert page.kernel.run("print(panel.state.full_state()['draft'], end='')").stdout == "None"
    page.kernel.client.execute("other = gpu_magic.panel()")
    while (message := page.hear()).get("type") != "paused":
        assert message
    assert message["is_paused"] is False


def test_a_method_that_there_is_not(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    for method in ("", "backbone", "delete"):
        page.send({}, method)
        assert (
            page.hear_said()["text"] == "The page sent a message that is not understood; nothing was changed."
        )


def test_a_folder_that_can_not_be_written_to(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    page.kernel.run(START_CUDA)
    # A folder stands where the choice would be kept: root could write into any.
    page.kernel.run(
        "from gpu_magic.restart.saved import saved_choice_file; saved_choice_file().with_suffix('.new').mkdir(parents=True)"
    )
    page.do(type="choose", restart=True, request="3")
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
    page = Page(kernel, "other")
    page.do(type="choose", restart=False, request="3")
    assert page.hear_said()["kind"] == "done"
    assert kernel.run(MASK).stdout == "3"


IN_USE = "in use, by whom can't be seen from here"


def test_a_hanging_driver_keeps_neither_the_thread_nor_the_kernel(page: Page) -> None:
    page.do(type="set_visibility", view="v", visibility="watched")
    page.kernel.change_machine(Driver(CARDS, hangs=(("nvmlDeviceGetMemoryInfo_v2", 1, 30.0),)))
    while "1" not in (message := page.hear()).get("rows", {}):
        assert message
    assert message["rows"]["1"]["usage"] == "problem"
    page.kernel.change_machine(Driver((replace(CARDS[0], util=7), *CARDS[1:])))
    while "0" not in (message := page.hear()).get("figures", {}):
        assert message
    assert message["figures"]["0"][2] == 7


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
