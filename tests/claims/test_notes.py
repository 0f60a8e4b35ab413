"""Notes and answers between processes of two users: what each can say, and what is believed."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from gpu_magic.claims.files import publish
from gpu_magic.claims.folder import Access
from gpu_magic.claims.held import Claims
from gpu_magic.claims.inbox import Inbox
from gpu_magic.claims.notes import LONGEST_TEXT
from gpu_magic.claims.outbox import NotSentError, Outbox, Unclaimed
from tests.claims.holders import GPU, OTHER, STAYS, as_nobody, end, holder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 and not os.environ.get("CI"), reason="another user's process is started as root"
)

ASKS = (
    "from gpu_magic.claims.folder import Access\n"
    "from gpu_magic.claims.outbox import Outbox\n"
    "outbox = Outbox(Access())\n"
    "outbox.send({uuids!r}, {text!r}, ())\n"
)


@contextmanager
def nobody(code: str, folder: Path) -> Iterator[None]:
    """Let another user's process do something and live on."""
    pid = int(as_nobody(code + STAYS, folder))
    try:
        yield
    finally:
        end(pid)


@pytest.fixture
def claims(open_folder: Path) -> Iterator[Claims]:
    """Return the claims of this process, on one GPU."""
    claims = Claims()
    assert not claims.hold([GPU])
    assert open_folder.exists()
    yield claims
    claims.release()


@pytest.mark.usefixtures("claims")
def test_a_note_names_its_owner_as_the_file_system_does(open_folder: Path) -> None:
    with nobody(ASKS.format(uuids=[OTHER, GPU], text="until tonight"), open_folder):
        (note,) = Inbox(Access()).open_notes()
        assert (note.owner, note.uuids, note.text) == ("nobody", (GPU,), "until tonight")
    assert Inbox(Access()).open_notes() == ()


@pytest.mark.usefixtures("claims")
def test_a_note_about_what_is_not_claimed_here_is_for_others(open_folder: Path) -> None:
    with nobody(ASKS.format(uuids=[OTHER], text=""), open_folder):
        assert Inbox(Access()).open_notes() == ()


@pytest.mark.usefixtures("claims")
def test_a_text_is_one_line_of_bounded_length(open_folder: Path) -> None:
    raw = (
        "from gpu_magic.claims.files import publish\n"
        "from gpu_magic.claims.folder import Access\n"
        "with Access().folder() as folder:\n"
        f"    kept = publish(folder, 'note', {GPU!r}, 'a\\x1b[31m', '\\x1b]0;title\\u202e' + 'x' * 9999)\n"
    )
    with nobody(raw, open_folder):
        (note,) = Inbox(Access()).open_notes()
    assert note.text.isprintable()
    assert note.notebook.isprintable()
    assert len(note.text) == LONGEST_TEXT


@pytest.mark.usefixtures("claims")
def test_of_one_user_one_note_is_let_through(open_folder: Path) -> None:
    inbox = Inbox(Access())
    code = "from gpu_magic.claims.files import publish\nfrom gpu_magic.claims.folder import Access\n"
    many = code + (
        "with Access().folder() as folder:\n"
        f"    kept = [publish(folder, 'note', {GPU!r}, '', str(number)) for number in range(50)]\n"
    )
    with nobody(many, open_folder):
        (first,) = inbox.open_notes()
        assert inbox.open_notes() == (first,)
        inbox.answer([first], given_up=())
        assert inbox.open_notes() == ()
    with nobody(ASKS.format(uuids=[GPU], text="once more"), open_folder):
        assert inbox.open_notes() == ()  # it is too soon


@pytest.mark.usefixtures("claims")
def test_what_is_no_note_is_not_read(open_folder: Path) -> None:
    name = f"note.{'0' * 16}"
    (open_folder / name).write_text(f"note\n{GPU}\n\nnobody keeps this one locked")
    (open_folder / f"note.{'1' * 16}").symlink_to("/etc/passwd")
    os.mkfifo(open_folder / f"note.{'2' * 16}")
    with nobody(ASKS.format(uuids=[GPU], text=""), open_folder):
        (note,) = Inbox(Access()).open_notes()
    assert note.owner == "nobody"
    assert not (open_folder / name).exists()  # this user's own, and its process has ended


def test_an_answer_is_believed_of_those_who_were_asked_and_of_nobody_else(open_folder: Path) -> None:
    outbox, others = Outbox(Access()), Claims()
    with holder(GPU):
        asked = others.others()[GPU]
        outbox.send([GPU], "", asked)
        (note,) = (file.name for file in open_folder.glob("note.*"))
        answers = (
            "from gpu_magic.claims.files import publish\n"
            "from gpu_magic.claims.folder import Access\n"
            "with Access().folder() as folder:\n"
            f"    kept = publish(folder, 'answer', {note!r}, {GPU!r}, '')\n"
        )
        with nobody(answers, open_folder):
            assert outbox.replies("cell", frozenset(), others.others()) == ()
        with Access().folder() as folder:
            assert publish(folder, "answer", note, "", GPU)
        # This process's own file is none that it reads.
        assert outbox.replies("cell", frozenset(), others.others()) == ()
    assert outbox.replies("cell", frozenset(), others.others()) == (Unclaimed((GPU,)),)
    assert outbox.replies("panel", frozenset(), others.others()) == (Unclaimed((GPU,)),)
    assert outbox.replies("cell", frozenset(), others.others()) == ()
    assert not outbox.is_open


def test_a_folder_that_can_not_be_used_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", "off")
    with pytest.raises(NotSentError, match=r"^Notes can't be shared here\.$"):
        Outbox(Access()).send([GPU], "", ())
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", "/proc/claims")
    with pytest.raises(NotSentError, match=r"^Notes can't be shared here: /proc/claims can't be made"):
        Outbox(Access()).send([GPU], "", ())
