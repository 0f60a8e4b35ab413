"""Asking for a GPU that another process has claimed, and being asked for one: by the panel's buttons."""

from __future__ import annotations

import getpass
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.panel import CLAIMS, MASK, open_panel, picture
from tests.claims.holders import holder
from tests.machine import CARDS

if TYPE_CHECKING:
    from tests.browser.lab import Lab, Notebook

ME = getpass.getuser()
UUID = CARDS[3].uuid
ASKS = f"""
from gpu_magic.claims.folder import Access
from gpu_magic.claims.outbox import Outbox
outbox = Outbox(Access())
outbox.send([{UUID!r}], "until tonight", ())
"""
SAYS_NO = """
import threading
from gpu_magic.claims.folder import Access
from gpu_magic.claims.inbox import Inbox
inbox = Inbox(Access())
def answer():
    while True:
        inbox.answer(inbox.open_notes(), given_up=())
        time.sleep(0.1)
threading.Thread(target=answer, daemon=True).start()
"""


def choose(notebook: Notebook) -> None:
    notebook.row(3).click()
    notebook.button("Use these").click()
    expect(notebook.said).to_contain_text("cuda:0 = GPU 3")


def asked(notebook: Notebook) -> Any:
    return notebook.panel.locator(".gm-asked")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_who_asks_is_shown_and_can_be_told_no(lab: Lab, dark: bool) -> None:
    notebook = open_panel(lab, dark=dark, own_page=True)
    choose(notebook)
    expect(asked(notebook)).to_be_hidden()
    with holder(then=ASKS, GPU_MAGIC_CLAIMS=notebook.ask(CLAIMS), JPY_SESSION_NAME="eval.ipynb"):
        expect(asked(notebook).locator("p")).to_have_text(
            re.compile(rf"^{ME} \(eval.ipynb\) asks for GPU 3, since \d\d:\d\d: until tonight$")
        )
        picture(notebook, f"asked-{'dark' if dark else 'light'}")
        notebook.button("Keep").click()
        expect(notebook.said).to_have_text(f"Kept: GPU 3; {ME} can read that.")
        expect(asked(notebook)).to_be_hidden()
    assert notebook.ask(MASK) == "3"


def test_what_others_ask_for_is_given_up(lab: Lab) -> None:
    notebook = open_panel(lab)
    choose(notebook)
    with holder(then=ASKS, GPU_MAGIC_CLAIMS=notebook.ask(CLAIMS)):
        expect(asked(notebook)).to_be_visible()
        notebook.button("Give it up").focus()
        notebook.page.keyboard.press("Enter")
        expect(notebook.said).to_contain_text(f"Given up: GPU 3; {ME} can read that.")
        expect(notebook.said).to_contain_text("No GPU is visible to CUDA")
        expect(asked(notebook)).to_be_hidden()
        expect(notebook.button("Use these")).to_be_focused()
    assert notebook.ask(MASK) == ""


def test_an_answer_is_shown_to_who_has_asked(lab: Lab) -> None:
    notebook = open_panel(lab)
    with holder(UUID, then=SAYS_NO, GPU_MAGIC_CLAIMS=notebook.ask(CLAIMS), JPY_SESSION_NAME="train.ipynb"):
        expect(notebook.row(3)).to_contain_text("claimed by")
        expect(notebook.button("Ask for it")).to_be_hidden()
        notebook.row(3).click()
        expect(notebook.said).to_have_text(
            re.compile(r"^GPU 3 is claimed by \w+: train.ipynb, since \d\d:\d\d$")
        )
        picture(notebook, "ask-for-it")
        notebook.button("Ask for it").click()
        expect(notebook.said).to_have_text(re.compile("Asked for GPU 3|keeps GPU 3"))
        expect(notebook.said).to_have_text(f"{ME} (train.ipynb) keeps GPU 3.")
    assert notebook.ask(MASK) == f"{ME} (train.ipynb) keeps GPU 3.\nNone"  # the next cell says it, too
