"""Notes and answers between processes of two users: what each can say, and what is believed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from gpu_magic.claims.files import new_name, publish
from gpu_magic.claims.folder import Access
from gpu_magic.claims.held import Claims
from gpu_magic.claims.inbox import Inbox
from gpu_magic.claims.notes import LONGEST_TEXT
from gpu_magic.claims.outbox import NotSentError, Outbox, Unclaimed
from tests.claims.holders import GPU, OTHER, STAYS, as_nobody, end, holder
from tests.conftest import LIMIT
from tests.processes import needs_root, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_root

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
        "from gpu_magic.claims.files import new_name, publish\n"
        "from gpu_magic.claims.folder import Access\n"
        "with Access().folder() as folder:\n"
        f"    kept = publish(folder, new_name('note'), {GPU!r}, 'a\\x1b[31m', '\\x1b]0;title\\u202e' + 'x' * 9999)\n"
    )
    with nobody(raw, open_folder):
        (note,) = Inbox(Access()).open_notes()
    assert note.text.isprintable()
    assert note.notebook.isprintable()
    assert len(note.text) == LONGEST_TEXT


@pytest.mark.usefixtures("claims")
def test_of_one_user_one_note_is_let_through(open_folder: Path) -> None:
    inbox = Inbox(Access())
    code = (
        "from gpu_magic.claims.files import new_name, publish\nfrom gpu_magic.claims.folder import Access\n"
    )
    many = code + (
        "with Access().folder() as folder:\n"
        f"    kept = [publish(folder, new_name('note'), {GPU!r}, '', str(number)) for number in range(50)]\n"
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
            "from gpu_magic.claims.files import new_name, publish\n"
            "from gpu_magic.claims.folder import Access\n"
            "with Access().folder() as folder:\n"
            f"    kept = publish(folder, new_name('answer'), {note!r}, {GPU!r}, '')\n"
        )
        with nobody(answers, open_folder):
            assert outbox.replies("cell", frozenset(), others.others()) == ()
        with Access().folder() as folder:
            assert publish(folder, new_name("answer"), note, "", GPU)
        # This process's own file is none that it reads.
        assert outbox.replies("cell", frozenset(), others.others()) == ()
    assert outbox.replies("cell", frozenset(), others.others()) == (Unclaimed((GPU,)),)
    outbox.note_told("cell", 1)
    assert outbox.replies("panel", frozenset(), others.others()) == (Unclaimed((GPU,)),)
    assert outbox.replies("cell", frozenset(), others.others()) == ()


def test_a_folder_that_can_not_be_used_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", "off")
    with pytest.raises(NotSentError, match=r"^Notes can't be shared here\.$"):
        Outbox(Access()).send([GPU], "", ())
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", "/proc/claims")
    with pytest.raises(NotSentError, match=r"^Notes can't be shared here: /proc/claims can't be made"):
        Outbox(Access()).send([GPU], "", ())


@pytest.mark.usefixtures("claims")
def test_a_name_that_is_used_again_is_another_note(open_folder: Path) -> None:
    inbox = Inbox(Access())
    name = f"note.{'a' * 16}"
    again = (
        "from gpu_magic.claims.files import publish\nfrom gpu_magic.claims.folder import Access\n"
        f"with Access().folder() as folder:\n    kept = publish(folder, {name!r}, {GPU!r}, '', 'once more')\n"
    )
    with nobody(again, open_folder):
        assert len(inbox.open_notes()) == 1
    assert inbox.open_notes() == ()
    (open_folder / name).unlink(missing_ok=True)
    with nobody(again, open_folder):
        assert inbox.open_notes() == ()  # it is too soon


def test_of_many_answers_one_is_told(open_folder: Path) -> None:
    outbox, others = Outbox(Access()), Claims()
    answers = (
        "from gpu_magic.claims.files import new_name, publish\n"
        "from gpu_magic.claims.folder import Access\n"
        "claims = Claims()\n"
        f"claims.hold([{GPU!r}])\n"
        "while not (notes := [name for name in os.listdir(os.environ['GPU_MAGIC_CLAIMS']) if name.startswith('note')]):\n"
        "    time.sleep(0.01)\n"
        "with Access().folder() as folder:\n"
        f"    kept = [publish(folder, new_name('answer'), notes[0], '', {GPU!r}) for _ in range(100)]\n"
        "time.sleep(600)\n"
    )
    # It prints its number when it has answered, so it waits for the note in a thread.
    code = "import threading\ndef answer():\n" + "".join(f"    {line}\n" for line in answers.splitlines())
    with nobody(f"{code}threading.Thread(target=answer, daemon=True).start()\n", open_folder):
        until(lambda: GPU in others.others())
        outbox.send([GPU], "", others.others()[GPU])
        until(lambda: outbox.replies("cell", frozenset(), others.others()))
        (answer,) = outbox.replies("cell", frozenset(), others.others())
        assert (answer.owner, answer.kept) == ("nobody", (GPU,))
        outbox.note_told("cell", 1)
        assert not outbox.has_news("cell")


def test_an_answer_that_can_not_be_written_is_said(
    claims: Claims, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox(Access())
    with nobody(ASKS.format(uuids=[GPU], text=""), open_folder):
        notes = inbox.open_notes()
        monkeypatch.setenv("GPU_MAGIC_CLAIMS", "/proc/claims")
        assert not inbox.answer(notes, given_up=())
        monkeypatch.setenv("GPU_MAGIC_CLAIMS", str(open_folder))
        assert inbox.answer(notes, given_up=claims.held)


def test_a_folder_whose_owner_closes_it_again_and_again_keeps_nobody(open_folder: Path) -> None:
    closing = (
        "folder = os.environ['GPU_MAGIC_CLAIMS']\nos.mkdir(folder)\n"
        "import threading\n"
        "def close():\n    while True:\n        os.chmod(folder, 0o700); os.chmod(folder, 0o701)\n"
        "threading.Thread(target=close, daemon=True).start()\n"
    )
    with nobody(closing, open_folder):
        claims = Claims()
        assert claims.others() == {}
        assert "is not open to all users" in claims.hold([GPU]) or "can't be opened" in claims.hold([GPU])


def test_an_interrupt_leaves_no_file_that_nobody_knows(claims: Claims, open_folder: Path) -> None:
    assert open_folder.exists()
    script = r"""
import signal, sys, itertools
from gpu_magic.claims.folder import Access
from gpu_magic.claims.own_files import OwnFiles
files, access = OwnFiles(Access()), Access()
left = 0
for step in itertools.count(1):
    calls = 0
    # Python looks for signals where a function begins, and behind a call.
    def interrupt(frame, event, argument):
        global calls
        if "gpu_magic/claims/" in frame.f_code.co_filename and event in ("call", "c_return"):
            calls += 1
            if calls == step:
                raise KeyboardInterrupt
    done = False
    with access.folder() as folder:
        sys.setprofile(interrupt)
        try:
            files.add(folder, "key", "note", "text")
            done = True
        except KeyboardInterrupt:
            pass
        sys.setprofile(None)
    known = {one.name for one in files.by_key.values()}
    import os
    there = {name.lstrip(".") for name in os.listdir(os.environ["GPU_MAGIC_CLAIMS"]) if "note" in name}
    left += len(there - known)
    files.keep(())
    if done:
        break
print(step > 10, left)
"""
    shown = subprocess.check_output([sys.executable, "-c", script], text=True, timeout=LIMIT)
    assert shown == "True 0\n"
    assert claims.held == {GPU}
