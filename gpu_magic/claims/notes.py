"""Notes: a user asks for GPUs that other processes have claimed, and these answer.

Nobody has to answer, and nothing is done to a claim by anybody but its owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.claims.files import NOTE, SharedFile, read
from gpu_magic.claims.origin import LONGEST_NAME
from gpu_magic.devices.record import record
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AFTER_AN_ANSWER", "BETWEEN_NOTES", "LONGEST_TEXT", "Answer", "Note", "read_notes"]

# Seconds between two notes of one user, and where the first one has been answered.
BETWEEN_NOTES, AFTER_AN_ANSWER = 600.0, 60.0
LONGEST_TEXT = 200  # characters


@record
class Note:
    """What a user asks for.

    Parameters
    ----------
    file
        The name of its file, which answers repeat.
    uid, owner
        The number and the name of the user, as the file system has them.
    since
        When it was written, in seconds since the epoch, as the file system has it.
    uuids
        The devices.
    notebook
        What its owner says that it comes from: a notebook or a script; empty where nothing is said.
    text
        What else its owner says; empty for nothing.

    """

    file: str
    uid: int
    owner: str
    since: float
    uuids: tuple[str, ...]
    notebook: str
    text: str

    @property
    def key(self) -> str:
        """What tells it from all others, also from a later one whose owner gives its file the same name."""
        return f"{self.file} {self.since!r}"


@record
class Answer:
    """What somebody who has claimed a device has answered.

    Parameters
    ----------
    owner, notebook
        The name of the user, and of the notebook that had claimed it.
    given_up, kept
        The UUIDs of the devices that it is about: those whose claim has ended for it, and the others.

    """

    owner: str
    notebook: str
    given_up: tuple[str, ...]
    kept: tuple[str, ...]


def read_notes(folder: int) -> Iterator[tuple[Note, SharedFile]]:
    """Yield the notes of other processes, each with its file."""
    for file in read(folder, NOTE):
        uuids, notebook, text, *_ = (*file.lines, "", "", "")
        # It is shown in parentheses, behind the owner: it is not to look like another owner.
        name = shortened(notebook.replace("(", "").replace(")", ""), LONGEST_NAME)
        named = tuple(filter(None, uuids.split(",")))
        yield (
            Note(file.name, file.uid, file.owner, file.since, named, name, shortened(text, LONGEST_TEXT)),
            file,
        )
