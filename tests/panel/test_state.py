"""What pages get of a panel and can ask of it: `PanelState` in this process, on a simulated machine."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import gpu_magic
from gpu_magic.panel.machine import History, find_variables
from gpu_magic.panel.state import PageViewer, PanelState, panel_state
from gpu_magic.testing import Machine, simulate, start_cuda
from tests.conftest import LIMIT
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from IPython.core.interactiveshell import InteractiveShell

NOT_UNDERSTOOD = "The page sent an invalid message. Nothing was changed."
UNLOADED = "gpu_magic was unloaded. To choose here: %load_ext gpu_magic"


class Pages:
    """The pages of a panel, and what they have heard."""

    is_widget = True

    def __init__(self, machine: Machine, now: Callable[[], float] = time.monotonic) -> None:
        self.machine = machine
        self.heard: list[dict[str, Any]] = []
        self.kernel = PanelState(now)
        self.kernel.add(self, None)
        self.look()

    def tell(self, message: dict[str, Any]) -> None:
        self.heard.append(message)

    def hear(self) -> list[dict[str, Any]]:
        """Return what it was told since this was asked last."""
        heard, self.heard = self.heard, []
        return heard

    def send(self, kind: object, **values: Any) -> str:
        """Send a message, and let no cell run after it; return what is said."""
        self.kernel.receive(self, {"type": kind, **values})
        self.kernel._when_idle(before_cell=False)
        return self.said

    def look(self, visibility: str = "watched", view: str = "v", *keys: str) -> None:
        self.send("look", view=view, visibility=visibility, open=list(keys))

    def choose(self, request: str, *, restart: bool = False) -> str:
        return self.send("choose", request=request, restart=restart, page="p")

    @property
    def state(self) -> dict[str, Any]:
        """What it is told after a reading."""
        self.kernel.read()
        return self.kernel.state(self)

    @property
    def said(self) -> str:
        return str(self.kernel.state()["said"]["text"]).replace("\u00a0", " ")  # see `page_text`

    @property
    def waiting(self) -> str:
        return self.kernel.choosing.waiting


@pytest.fixture
def pages(request: pytest.FixtureRequest) -> Iterator[Pages]:
    """Return the pages of four GPUs, whose clock a test with the fixture `clock` turns."""
    has_clock = "clock" in request.fixturenames
    now = request.getfixturevalue("clock").monotonic if has_clock else time.monotonic
    with simulate("4xA100-80GB", clock=0) as machine:
        pages = Pages(machine, now)
        yield pages
        pages.kernel.pause()


def mask() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


# What is chosen.


def test_of_two_readings_that_overlap_the_one_that_began_later_stays(pages: Pages) -> None:
    has_read, goes_on = threading.Event(), threading.Event()

    def wait_after_the_reading(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "serialize":
            has_read.set()
            goes_on.wait(LIMIT)

    def read_slowly() -> None:
        sys.setprofile(wait_after_the_reading)
        pages.kernel.read()

    slow = threading.Thread(target=read_slowly)
    slow.start()
    assert has_read.wait(LIMIT)
    pages.machine.gpus[0].run("train.py", "maria", 20 << 30)
    later = pages.state["rows"]
    goes_on.set()
    slow.join(LIMIT)
    assert pages.kernel.state(pages)["rows"] == later
    assert "train.py" in str(later)


@pytest.mark.parametrize(
    "message", [None, [], "choose", {}, {"type": "delete", "request": "1"}, {"type": "attach", "page": ""}]
)
def test_nonsense_changes_nothing_and_the_panel_says_so(pages: Pages, message: Any) -> None:
    pages.kernel.receive(pages, message)
    assert (pages.said, pages.state["said"]["kind"]) == (NOT_UNDERSTOOD, "error")
    assert mask() is None


@pytest.mark.parametrize(
    ("request_text", "says"),
    [
        ("9", "There is no GPU 9. This machine has GPUs 0 to 3."),
        ("", "No GPU is named"),
        (",".join(map(str, range(100_000))), "is too long for a list of GPUs"),
    ],
    ids=lambda text: text[:10],
)
def test_what_can_not_be_chosen_changes_nothing(pages: Pages, request_text: str, says: str) -> None:
    for restart in (False, True):
        assert says in pages.choose(request_text, restart=restart)
    assert mask() is None


def test_what_is_chosen_is_said_until_something_else_is(pages: Pages) -> None:
    pages.machine.gpus[2].run("train.py", "maria", 50 << 30)
    said = pages.choose("2,3")
    mapped, also_mapped, warning = said.split("\n")
    assert [mapped[:14], also_mapped[:14]] == ["cuda:0 = GPU 2", "cuda:1 = GPU 3"]
    assert warning.startswith("GPU 2 is in use by ")
    told = pages.state["said"]
    assert (told["kind"], told["text"].split("\n")[2:]) == ("done", told["warnings"])
    assert mask() == "2,3"
    pages.look("hidden")
    pages.look()  # a page that comes later
    assert pages.said == said  # and a reading of what it has done is no news
    gpu_magic.choose("1")
    state = pages.state
    assert (state["said"]["text"], state["rows"][1]["visible_as"]) == ("", "cuda:0")
    assert state["header"]["hides_devices"] is True


def test_what_other_code_sets_in_place_of_a_choice_is_among_the_notes_and_for_the_chip(pages: Pages) -> None:
    pages.choose("2,0")
    assert pages.state["header"]["replaced"] == ""
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    header = pages.state["header"]
    assert "CUDA_VISIBLE_DEVICES=1" in header["replaced"]
    assert header["notes"].count(header["replaced"]) == 1
    pages.choose("2,0")
    assert pages.state["header"]["replaced"] == ""


def test_a_wider_mask_than_was_given_is_refused() -> None:
    with simulate("4xA100-80GB", mask="1,2") as machine:
        pages = Pages(machine)
        assert "GPU 3 was not given to this process" in pages.choose("3")
        assert pages.choose("2").startswith("cuda:0 = GPU 2")
        assert mask() == "2"
        pages.kernel.pause()


def test_once_cuda_has_started_a_choice_is_refused_or_needs_a_kernel_to_restart(pages: Pages) -> None:
    start_cuda()
    assert "restart" in pages.choose("3")
    assert pages.state["said"]["kind"] == "warning"
    assert "--restart needs a Jupyter kernel" in pages.choose("3", restart=True)
    assert mask() is None


def test_a_restart_waits_for_the_end_of_a_cell_that_begins(pages: Pages) -> None:
    start_cuda()
    pages.kernel.receive(pages, {"type": "choose", "request": "3", "restart": True, "page": "p"})
    pages.kernel._when_idle(before_cell=True)
    assert pages.said == ""
    pages.kernel._when_idle(before_cell=False)
    assert "--restart needs a Jupyter kernel" in pages.said


def test_each_page_that_asks_for_a_restart_is_told_that_there_is_none(pages: Pages) -> None:
    def refused() -> list[tuple[str, str]]:
        return [(one["page"], one["text"]) for one in pages.hear() if one["type"] == "refused"]

    start_cuda()
    for page in ("p", "q"):
        asks = {"type": "choose", "request": "3", "restart": True, "page": page}
        pages.kernel.receive(pages, asks)
    assert refused() == [("p", "Another choice was made meanwhile.")]
    pages.kernel._when_idle(before_cell=False)
    assert refused() == [("q", pages.said)]
    pages.kernel.say("Freed nothing.", "done")
    assert refused() == []
    pages.kernel.pause()
    pages.kernel.receive(pages, asks)
    assert refused() == [("q", pages.said)]


def test_nothing_is_done_once_the_extension_is_unloaded(pages: Pages) -> None:
    pages.kernel.pause()
    pages.choose("1")
    pages.send("free")
    assert (pages.said, pages.state["said"]["kind"]) == (UNLOADED, "error")
    assert pages.send("end_process", pid=1, started=1, kill=False) == UNLOADED
    assert mask() is None
    pages.kernel.resume(None)
    assert pages.said == ""
    assert pages.choose("1").startswith("cuda:0 = GPU 1")


def test_variables_that_can_not_be_found_stop_no_choice(shell: InteractiveShell, pages: Pages) -> None:
    """They are looked for after the choice, which needs none of them."""
    masks: list[str | None] = []

    class Name(str):
        __slots__ = ()

        def startswith(self, *_: Any) -> bool:
            masks.append(mask())
            raise RuntimeError

    shell.user_ns[Name("x")] = 1
    pages.kernel.add(pages, shell)
    shell.run_cell("1")
    pages.kernel.receive(pages, {"type": "look", "view": "v", "visibility": "watched", "open": ["1"]})
    assert pages.choose("3").startswith("cuda:0 = GPU 3")
    assert masks == ["3"]
    assert pages.state["details"]["1"]["variables"] is None


# What is read.


def test_a_row_has_all_that_is_shown_of_a_device(pages: Pages) -> None:
    pages.machine.gpus[0].run("train.py", "maria", 10 << 30, work=42)
    pages.machine.gpus[1].run("ipykernel", "maria", 2 << 30, pid=os.getpid(), work=0)
    state = pages.state
    assert [user[-1] for user in state["rows"][1]["users"]] == [True]
    assert state["header"]["least_busy"] == "2,3,1,0"
    assert "history" not in state  # pages keep it
    assert pages.kernel.state(with_history=True)["history"]["1"] == [0]
    row = state["rows"][0]
    figures = [row.pop(name) for name in ("utilization", "temperature", "power")]
    assert all(isinstance(figure, int) for figure in figures)
    assert row == {
        "key": "0",
        "label": "0",
        "name": "NVIDIA A100-SXM4-80GB",
        "total": "80.0 GiB",
        "total_gib": 80.0,
        "used": 10.5,
        "shares": [0, 125, 131],
        "users": [["maria", "train.py", "10.0\u00a0GiB", "", False]],
        "usage": "busy",
        "visible_as": "cuda:0",
        "is_held": True,
        "unavailable": "",
        "parent": "",
    }


def test_a_reading_that_fails_is_said_until_one_succeeds_and_hides_no_choice(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))  # it has no version
        assert pages.kernel.tick()
        text, number = pages.said, pages.kernel.state()["said"]["number"]
        assert text.startswith("The GPUs could not be read: AttributeError: ")
        assert pages.kernel.tick()
        assert pages.kernel.state()["said"]["number"] == number  # a page shows it once
        assert pages.choose("3").startswith("cuda:0 = GPU 3")
        assert pages.kernel.tick()
    assert pages.said == text
    assert pages.kernel.tick()
    assert pages.said == ""


def test_the_machine_is_read_while_somebody_looks_and_during_cells_for_who_does_not(
    pages: Pages, shell: InteractiveShell
) -> None:
    tick = pages.kernel.tick
    assert tick()
    pages.look("watched", "w")
    pages.look("hidden", "v")
    assert tick()  # the other view is still looked at
    pages.look("unwatched", "w")
    assert not tick()
    pages.kernel.idle.attach(shell)

    def cell() -> None:
        assert tick()
        pages.look("hidden", "w")
        assert not tick()

    shell.user_ns["cell"] = cell
    shell.run_cell("cell()").raise_error()
    pages.kernel.pause()


# What is sent of a cell, which can take days, to pages that may have vanished: a server keeps it all for them.

LEASE = 40  # seconds: two reports were missed
DAY = 24 * 3600


class Clock:
    """The clock of a panel's kernel. The test turns it."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def during(
    shell: InteractiveShell, clock: Clock
) -> Iterator[Callable[..., list[tuple[float, dict[str, Any]]]]]:
    """Return a way to run a cell of many seconds; it returns what pages hear of it, and at which second."""
    begun: list[Pages] = []

    def run(
        pages: Pages, seconds: int, act: Callable[[], object] = lambda: None
    ) -> list[tuple[float, dict[str, Any]]]:
        heard: list[tuple[float, dict[str, Any]]] = []

        def cell() -> None:
            begin = clock.now
            pages.hear()
            for second in (*range(1, min(seconds, 1000) + 1), *range(1010, seconds + 1, 10)):
                clock.now = begin + second
                act()
                pages.kernel.tick()
                heard.extend((second, message) for message in pages.hear())

        begun.append(pages)
        pages.kernel.idle.attach(shell)
        shell.user_ns["cell"] = cell
        shell.run_cell("cell()").raise_error()
        return heard

    yield run
    for pages in begun:
        pages.kernel.pause()


def by_subshell(look: Callable[[], object]) -> None:
    """Send a page's message as JupyterLab does if the kernel has subshells: it comes on another thread."""
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()


def report(pages: Pages, visibility: str) -> None:
    pages.kernel.receive(pages, {"type": "look", "view": "v", "visibility": visibility, "open": []})


@pytest.mark.parametrize("visibility", ["watched", "unwatched"])
@pytest.mark.parametrize("has_subshell", [True, False])
def test_a_page_that_vanished_is_sent_less_than_5_mb_in_a_day_and_none_if_it_would_report(
    clock: Clock, during: Callable[..., Any], visibility: str, has_subshell: bool
) -> None:
    """The panel and the chip of a page are sent the same, so each may be sent half of it."""
    with simulate("64xA100-80GB", clock=clock.monotonic) as machine:
        machine.populate()
        pages = Pages(machine, clock.monotonic)
        pages.look("hidden")
        (by_subshell if has_subshell else lambda look: look())(lambda: report(pages, visibility))
        heard = during(pages, DAY)
    later = [message for when, message in heard if when > LEASE]
    assert len(heard) - len(later) >= LEASE - 1
    assert sum(len(json.dumps(message)) for _, message in heard) < 2_500_000
    if has_subshell and visibility == "watched":
        assert later == []
    # The others can't report, or did not know that a cell runs.
    assert len(later) < 80


def test_a_panel_that_no_page_shows_is_sent_little(
    clock: Clock, pages: Pages, shell: InteractiveShell, during: Callable[..., Any]
) -> None:
    """As in nbclient: a page was expected."""
    del clock
    pages.look("hidden")
    shell.kernel = object()  # type: ignore[attr-defined]
    pages.kernel.add(pages, shell)
    assert len(during(pages, DAY)) < LEASE + 80


def test_a_page_that_is_not_heard_in_a_cell_is_told_how_long_no_state_comes(
    clock: Clock, pages: Pages, during: Callable[..., Any]
) -> None:
    report(pages, "watched")
    told = [(when, message.get("state", message)["pause"]) for when, message in during(pages, 1000)]
    assert all(then - when <= pause + 1 for (when, pause), (then, _) in itertools.pairwise(told))
    # The panel's own thread can add another message of a second.
    assert sorted({when for when, pause in told if not pause}) == list(range(1, LEASE))
    later = sorted({when for when, _ in told if when >= LEASE})
    assert later[:3] == [LEASE, LEASE + 60, LEASE + 120]
    # Between cells it gets all again, and in the next cell once it has reported.
    for _ in range(5):
        clock.now += 1
        pages.kernel.tick()
        assert pages.hear()
    report(pages, "watched")
    assert {when for when, _ in during(pages, LEASE)} == set(range(1, LEASE + 1))


@pytest.mark.parametrize("visibility", ["watched", "unwatched"])
def test_a_page_that_reports_during_a_cell_misses_no_second_of_it(
    clock: Clock, pages: Pages, during: Callable[..., Any], visibility: str
) -> None:
    by_subshell(lambda: report(pages, visibility))

    def live() -> None:
        if clock.now % 15 == 0:
            by_subshell(lambda: report(pages, visibility))

    assert {when for when, _ in during(pages, 900, live)} == set(range(1, 901))


def test_a_page_that_nobody_watches_is_told_that_a_cell_runs(
    clock: Clock, pages: Pages, during: Callable[..., Any]
) -> None:
    """It reports only then. So a server can end an idle kernel."""
    by_subshell(lambda: report(pages, "unwatched"))
    pages.hear()
    clock.now += DAY
    assert not pages.kernel.tick()
    assert pages.hear() == []
    (_, told), *_ = during(pages, 1)
    assert (told["state"]["is_busy"], told["state"]["pause"]) == (True, 0)


def test_a_chip_alone_is_read_for_every_five_seconds_and_after_a_cell(
    clock: Clock, pages: Pages, during: Callable[..., Any]
) -> None:
    def heard_of(messages: list[dict[str, Any]]) -> int:
        """Count the seconds: the panel's own thread can add another message of one."""
        return len({message.get("state", message)["second"] for message in messages})

    def read_in(seconds: int) -> int:
        pages.hear()
        begin = pages.kernel.state()["second"]
        for _ in range(seconds):
            clock.now += 1
            assert pages.kernel.tick()
        return heard_of([one for one in pages.hear() if one.get("state", one)["second"] > begin])

    def glance() -> None:
        chip = {"type": "look", "view": "chip", "visibility": "watched", "open": None}
        by_subshell(lambda: pages.kernel.receive(pages, chip))

    glance()
    assert read_in(20) == 20  # the panel is also open
    pages.look("hidden")
    glance()
    assert read_in(20) == 4
    glance()
    assert heard_of([message for _, message in during(pages, 20)]) == 4
    assert read_in(1) == 1
    assert read_in(4) == 0


def test_a_state_that_equals_the_last_is_not_sent(clock: Clock, pages: Pages) -> None:
    def told() -> list[dict[str, Any]]:
        clock.now += 1
        pages.kernel.tick()
        return pages.hear()

    told()
    for message in told():
        assert message == {"type": "same", "second": message["second"], "pause": 0}
    pages.machine.gpus[1].run("train.py", "maria", 10 << 30)
    changed = [message["state"] for message in told() if message["type"] == "state"]
    assert [state["rows"][1]["usage"] for state in changed] == ["busy"]
    assert {message["type"] for message in told()} == {"same"}


def test_an_open_row_has_its_detail_and_others_have_none(pages: Pages) -> None:
    def details() -> dict[str, Any]:
        found: dict[str, Any] = pages.state["details"]
        return found

    pages.look("watched", "v", "2", "no such device")
    assert set(details()) == {"2"}
    detail = details()["2"]
    facts = {name: detail[name] for name in ("power_limit", "slowdowns", "processes", "is_listed")}
    assert facts == {"power_limit": 400, "slowdowns": [], "processes": [], "is_listed": True}
    assert detail["memory"][-1] == 6  # thousandths: half a GiB of 80
    pages.look()
    assert details() == {}
    pages.look("watched", "w", "1")  # the row of another view
    assert set(details()) == {"1"}
    pages.look("hidden", "w", "1")
    assert details() == {}


def test_instances_stand_behind_their_gpu_and_the_least_busy_one_alone_can_be_picked() -> None:
    for others, first in (
        ("", "MIG-"),
        ("+1xA100-80GB", "1"),
    ):  # what is split can't be while a whole one can
        with simulate(f"1xA100-80GB(3g.40gb,4g.40gb){others}") as machine:
            pages = Pages(machine)
            header, rows = pages.state["header"], pages.state["rows"]
            assert [row["key"][:4] for row in rows][:3] == ["0", "MIG-", "MIG-"]
            assert [row["parent"] for row in rows][:3] == ["", "0", "0"]
            assert re.fullmatch(rf"{first}[^,]*", header["least_busy"])
            pages.kernel.pause()


def test_seconds_without_a_reading_are_a_gap() -> None:
    now = 100.0
    history = History(lambda: now)
    for now in (100.0, 101.1, 104.0, 104.2):
        history.add([{"key": "0", "utilization": round(now * 10), "used": 1, "shares": (0, 0, 6)}])
    assert history.utilization() == {"0": [1000, 1011, None, None, 1042]}
    assert (history.memory("0"), history.second) == ([6, 6, None, None, 6], 4)


def test_what_lies_in_the_cpu_s_memory_is_on_no_gpu() -> None:
    names = {"tensor": torch.zeros(1000), "array": np.zeros(1000)}
    with simulate("2xA100-80GB"):
        found = find_variables(SimpleNamespace(user_ns=names, user_ns_hidden={}))
    assert found == {"": {"largest": [], "more": 0, "unfinished": False, "parked": ""}}


# What is waited for.

HELD = r"Waiting for SIMULATED GPU 3, \d+ s: in use by maria.*\. Next look in \d+ s\."


def begin(pages: Pages) -> None:
    """Have it wait for GPU 3, which maria uses; return once it does."""
    pages.machine.gpus[3].run("train.py", "maria", 60 << 30)
    pages.send("wait", request="3")
    until(lambda: re.fullmatch(HELD, pages.waiting))


def test_it_chooses_between_cells_when_nobody_else_has_the_gpu(pages: Pages) -> None:
    begin(pages)
    users = pages.machine.gpus[3].processes
    was, users[:] = users[:], []
    until(lambda: pages.waiting == "SIMULATED GPU 3: free. Chosen when the kernel is free.")
    assert mask() is None  # a cell runs
    users[:] = was  # and somebody else is faster
    pages.kernel._when_idle(before_cell=False)
    until(lambda: re.fullmatch(HELD, pages.waiting))
    assert mask() is None
    users.clear()
    until(lambda: pages.waiting.startswith("SIMULATED GPU 3: free"))
    pages.kernel._when_idle(before_cell=False)
    assert pages.said.startswith("cuda:0 = GPU 3 (")
    assert (mask(), pages.waiting) == ("3", "")


def test_a_wait_for_memory_ends_on_a_gpu_that_is_in_use(pages: Pages) -> None:
    for gpu in pages.machine.gpus:
        gpu.run("train.py", "maria", 60 << 30)
    pages.send("wait", request="auto --min-free 40GB")
    until(lambda: "less than 40 GB" in pages.waiting)
    pages.machine.gpus[2].processes[:] = []
    pages.machine.gpus[2].run("train.py", "maria", 10 << 30)
    until(lambda: pages.waiting.startswith("1 SIMULATED GPU --min-free 40GB: free"))
    pages.kernel._when_idle(before_cell=False)
    assert pages.said.startswith("cuda:0 = GPU 2 (")
    assert (mask(), pages.waiting) == ("2", "")


def test_a_wait_that_is_cancelled_once_the_gpu_is_free_chooses_nothing(pages: Pages) -> None:
    begin(pages)
    pages.machine.gpus[3].processes.clear()
    until(lambda: pages.waiting.startswith("SIMULATED GPU 3: free"))
    pages.send("stop_waiting")
    assert (mask(), pages.waiting) == (None, "")


def test_a_wait_that_is_asked_for_again_goes_on(pages: Pages) -> None:
    """It keeps its place in line."""

    def threads() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == "gpu_magic-wait"]

    begin(pages)
    [thread] = threads()
    pages.send("wait", request="3")
    assert threads() == [thread]
    assert re.fullmatch(HELD, pages.waiting)
    pages.send("wait", request="2,3")
    thread.join()
    assert len(threads()) == 1


@pytest.mark.parametrize(
    ("end", "chosen"),
    [
        (lambda pages: pages.send("stop_waiting"), None),
        (lambda pages: pages.choose("1"), "1"),
        (lambda _pages: gpu_magic.choose("1"), "1"),
        (lambda pages: pages.kernel.pause(), None),
        (lambda pages: pages.kernel.remove(pages), None),
        (lambda _pages: start_cuda(), None),
    ],
    ids=["cancel", "use", "typed", "unload", "close", "cuda"],
)
def test_what_ends_a_wait_changes_nothing_of_its_own(
    pages: Pages, end: Callable[[Pages], object], chosen: str | None
) -> None:
    begin(pages)
    end(pages)
    pages.machine.gpus[3].processes.clear()

    def has_ended() -> bool:
        pages.kernel._when_idle(before_cell=False)
        return not pages.waiting

    until(has_ended)
    assert mask() == chosen


@pytest.mark.parametrize(
    ("request_text", "says"),
    [
        ("none", "--wait goes with auto or GPU numbers"),
        ("9", "There is no GPU 9"),
        ("", "No GPU is named"),
    ],
)
def test_what_can_not_be_waited_for_is_refused(pages: Pages, request_text: str, says: str) -> None:
    pages.send("wait", request=request_text)
    until(lambda: says in pages.said)
    assert pages.waiting == ""


def test_a_page_that_nobody_sees_learns_why_it_has_no_kernel_any_more() -> None:
    """It can't ask later: it has no comm then."""
    heard: list[dict[str, Any]] = []
    with simulate("2xA100-80GB"):
        page = PageViewer(heard.append)
        page.receive({"type": "attach", "page": "p"})
        page.receive({"type": "look", "view": "v", "visibility": "hidden", "open": []})
        page.close()
    *_, state, closed = heard
    assert (state["state"]["said"]["text"], closed["type"]) == (UNLOADED, "closed")
    panel_state().resume(None)
