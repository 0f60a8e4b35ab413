"""What other users write into the folder of claims: a claim, a note and an answer, of a process that lives."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.claims.files import ANSWER, NOTE
from gpu_magic.claims.folder import Access
from gpu_magic.claims.held import Claims
from gpu_magic.claims.inbox import Inbox
from gpu_magic.claims.outbox import Outbox
from gpu_magic.devices.claim import Claim
from gpu_magic.devices.owner import owner_name
from gpu_magic.display.notes import note_text, reply_text
from gpu_magic.process.news import Reply
from gpu_magic.process.notes import OpenNote, devices_of
from tests.fuzzing.machines import MACHINES
from tests.fuzzing.target import Target, check_line

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OURS", "TARGETS", "THEIRS"]

_MACHINE = MACHINES[0]
OURS, THEIRS = (str(gpu.uuid) for gpu in _MACHINE.gpus[:2])

# A process that is no relative of ours, and keeps three files: it ends with us, when its input does.
_HOLDER = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
from gpu_magic.claims.files import publish
for folder, about in ((sys.argv[1], sys.argv[3]), (sys.argv[1], "note"), (sys.argv[2], "answer")):
    publish(os.open(folder, os.O_RDONLY), f"{about}.{'0' * 16}", "")
print(os.getpid(), flush=True)
sys.stdin.read()
"""


class Others(NamedTuple):
    """The files of another process, and its number: a claim and a note in one folder, an answer in another."""

    pid: int
    claim: Path
    note: Path
    answer: Path


@cache
def others() -> Others:
    """Start the other process."""
    folders = [Path(tempfile.mkdtemp(prefix="gpu_magic-fuzzing-")) for _ in range(2)]
    for folder in folders:
        folder.chmod(0o1777)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    root = Path(__file__).parent.parent.parent.parent
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, *map(str, folders), THEIRS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert process.stdout
    pid = int(process.stdout.readline())
    process.wait()
    atexit.register(process.communicate)
    zeros = "0" * 16
    first, second = folders
    return Others(pid, first / f"{THEIRS}.{zeros}", first / f"{NOTE}.{zeros}", second / f"{ANSWER}.{zeros}")


@contextmanager
def _folder_of(file: Path) -> Iterator[Access]:
    before = os.environ.get("GPU_MAGIC_CLAIMS")
    os.environ["GPU_MAGIC_CLAIMS"] = str(file.parent)
    try:
        yield Access()
    finally:
        if before is None:
            del os.environ["GPU_MAGIC_CLAIMS"]
        else:
            os.environ["GPU_MAGIC_CLAIMS"] = before


def _write(file: Path, data: bytes) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)


def check_claims(data: bytes) -> None:
    """Check what stands in files of others. Before it stands `claim`, `note` or `answer`, and a line feed.

    Without the line that says again what the file is about, it is not believed.
    """
    kind, _, text = data.partition(b"\n")
    checks = {b"claim": _check_claim, b"note": _check_note, b"answer": _check_answer}
    if check := checks.get(kind):
        check(text)


def _check_claim(text: bytes) -> None:
    there = others()
    _write(there.claim, text)
    with _folder_of(there.claim) as access:
        found = Claims(access=access).others()
    assert found.keys() <= {THEIRS}
    for claim in found.get(THEIRS, ()):
        assert claim.pid == there.pid
        check_line(str(claim), 200)
    assert bool(found) == (text.split(b"\n")[0] == THEIRS.encode()), "it says that it is about another GPU"


def _check_note(text: bytes) -> None:
    there = others()
    _write(there.note, text)
    with _folder_of(there.note) as access:
        ours, inbox = Claims(access=access), Inbox(access)
        ours.hold([OURS])
        notes = inbox.open_notes()
        try:
            assert len(notes) <= 1
            for note in notes:
                assert note.uuids == (OURS,), "it asks for what is not claimed here"
                assert note.owner == owner_name(os.getuid())
                shown = note_text(OpenNote(note, devices_of(note.uuids, _MACHINE), can_give_up=True))
                check_line(shown, 500)
                assert shown.count("(") <= note.text.count("(") + bool(note.notebook), (
                    "it seems to have another owner"
                )
                assert inbox.answer(notes, given_up=[OURS])
        finally:
            inbox.close()
            ours.release()


def _check_answer(text: bytes) -> None:
    there = others()
    with _folder_of(there.answer) as access:
        outbox = Outbox(access)
        claim = Claim(owner_name(os.getuid()), 0.0, there.pid, "train.ipynb")
        outbox.send([OURS, THEIRS], "soon?", [claim])
        try:
            note = outbox._sent.file
            _write(there.answer, text.replace(b"NOTE", note.encode()))
            replies = outbox.replies("test", frozenset(), [OURS])
        finally:
            outbox.withdraw()
    for reply in replies:
        assert {*reply.given_up, *reply.kept} <= {OURS, THEIRS}, "others are given up than were asked for"
        given, kept = devices_of(reply.given_up, _MACHINE), devices_of(reply.kept, _MACHINE)
        check_line(reply_text(Reply(reply.owner, reply.notebook, given, kept)), 500)


TARGETS = (
    Target(
        "claims",
        check_claims,
        "claims, notes and answers of other users",
        (
            "claim",
            "note",
            "answer",
            "NOTE",
            OURS,
            THEIRS,
            ",",
            "(",
            ")",
            "train.ipynb",
            "\\x1b[31m",
            "\\xe2\\x80\\xae",
        ),
        (
            f"claim\n{THEIRS}\ntrain.ipynb",
            "claim\nGPU-other\ntrain.ipynb",
            f"note\nnote\n{OURS},{THEIRS}\neval.ipynb\nmy deadline is tonight",
            f"note\nnote\n{OURS}\na) (b\n",
            f"answer\nanswer\nNOTE\n{OURS}\n{THEIRS}",
            "answer\nanswer\nNOTE\n\n",
        ),
    ),
)
