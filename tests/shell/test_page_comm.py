"""The comm by which pages find gpu_magic."""

from __future__ import annotations

import time
from threading import Event, Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.panel.state import PageViewer, panel_state
from gpu_magic.shell.page_comm import PageComm
from gpu_magic.testing import simulate
from tests.conftest import needs_ipykernel

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module", autouse=True)
def in_process() -> None:
    needs_ipykernel("6.18", "comms of an older one are a kernel's, and tests/kernel has those")


def message(kind: str = "attach", **values: Any) -> dict[str, Any]:
    return {"content": {"data": {"type": kind, **(values or {"page": "p"})}}}


def test_messages_that_come_at_once_are_for_one_receiver() -> None:
    """JupyterLab has a subshell of the kernel for them: the first ones came to two panels' states."""
    made, heard = [], []

    def make(send: Callable[[Any], None]) -> Any:
        made.append(send)
        time.sleep(0.2)  # what answers is imported
        return SimpleNamespace(receive=heard.append, close=list)

    page = PageComm(SimpleNamespace(), make)
    page.open()
    threads = [Thread(target=page._comm.handle_msg, args=(message(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(heard)) == (1, 3)


def test_a_page_that_closes_the_comm_takes_it_from_no_other() -> None:
    page = PageComm(SimpleNamespace(), lambda _: None)  # type: ignore[arg-type, return-value]
    page.open()
    manager, key = page._manager, page._comm.comm_id
    manager.comm_close(None, None, {"content": {"comm_id": key, "data": {}}})
    assert manager.comms[key] is page._comm
    del manager.comms[key]  # as after another comm with this name has failed
    page.close()
    page.open()
    assert manager.comms[key] is page._comm


def test_a_message_that_crosses_the_end_does_not_begin_again() -> None:
    """The chip hides as it hears of the end, and says so on the kernel's subshell."""
    heard: list[str] = []
    look = message("look", view="v", visibility="watched", open=[])
    crossing = Thread(target=lambda: page._comm.handle_msg(look))

    def tell(sent: dict[str, Any]) -> None:
        is_paused = sent["type"] == "state" and sent["state"]["is_paused"]
        heard.append("paused" if is_paused else sent["type"])
        if sent["type"] == "closed":
            crossing.start()

    with simulate("2xA100-80GB"):
        page = PageComm(SimpleNamespace(), lambda _: PageViewer(tell))
        page.open()
        page._comm.handle_msg(message())
        page._comm.handle_msg(look)
        page.close()
        crossing.join()
        assert panel_state().state()["is_paused"]
        assert "gpu_magic was unloaded" in panel_state().state()["said"]["text"]
    assert heard[-2:] == ["paused", "closed"]
    panel_state().resume(None)


def test_the_end_waits_for_a_message_that_is_being_handled() -> None:
    order, begun = [], Event()

    def receive(_: object) -> None:
        begun.set()
        time.sleep(0.2)
        order.append("received")

    receiver = SimpleNamespace(receive=receive, close=lambda: order.append("closed"))
    page = PageComm(SimpleNamespace(), lambda _: receiver)
    page.open()
    handling = Thread(target=page._comm.handle_msg, args=(message(),))
    handling.start()
    begun.wait()
    page.close()
    handling.join()
    assert order == ["received", "closed"]
