"""Claims that other users can't see any more: the owner of the folder, or a cleaner of files, took them away."""

from __future__ import annotations

import re
import shutil
import sys
import time
from typing import TYPE_CHECKING

import pytest
from IPython.utils.capture import capture_output

import gpu_magic
from gpu_magic.claims.held import Claims
from gpu_magic.process.session import current
from tests.claims.holders import GPU, OTHER, stranger
from tests.processes import needs_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from tests.conftest import Typed

    Way = Callable[[Path], object]


def only(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def replace(folder: Path) -> None:
    name = only(folder).name
    only(folder).rename(folder / "x")
    (folder / name).touch()


# What whoever owns the folder can do to a claim. Others can still claim there afterwards.
WAYS: dict[str, Way] = {
    "removed": lambda folder: only(folder).unlink(),
    "renamed": lambda folder: only(folder).rename(f"{only(folder)}0"),
    "another": lambda folder: only(folder).rename(folder / f"{OTHER}.{'0' * 16}"),
    "replaced": replace,
    "moved": lambda folder: folder.rename(folder.with_name("elsewhere")),
    "emptied": shutil.rmtree,
}


@pytest.fixture
def notebook(typed: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Return a way to run cells in a shell that has claimed GPU 1."""
    assert folder
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "4xA100-80GB clock=0")
    typed("%gpus 1")
    return typed


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    """Return the UUID of GPU 1, which this process, a script, has chosen."""
    assert folder
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "4xA100-80GB clock=0")
    yield str(gpu_magic.choose("1").devices[0].uuid)
    current().unload()


@pytest.mark.parametrize("take_away", WAYS.values(), ids=WAYS)
def test_the_same_choice_claims_again_since_the_same_time(folder: Path, take_away: Way) -> None:
    ours = Claims()
    with stranger() as one:
        ours.hold([GPU])
        since = one.run(f"claims.others()[{GPU!r}][0].since")
        take_away(folder)
        assert one.sees() == []
        assert ours.held == set()
        ours.hold([GPU])
        assert ours.held == {GPU}
        assert one.run(f"claims.others()[{GPU!r}][0].since") == since
        ours.release()
        assert one.sees() == []


@needs_root
def test_another_user_who_made_the_folder_ends_no_claim(folder: Path) -> None:
    with stranger("nobody") as owner:
        owner.run(f"claims.hold([{OTHER!r}])")
        ours = Claims()
        ours.hold([GPU])
        owner.run(f"[os.unlink(one.path) for one in os.scandir({str(folder)!r}) if 'GPU-1a' in one.name]")
        assert owner.sees() == []
        ours.hold([GPU])
        assert owner.sees() == [GPU]
        ours.release()


@pytest.mark.parametrize("take_away", WAYS.values(), ids=WAYS)
def test_the_next_cell_claims_again_and_says_so_once(notebook: Typed, folder: Path, take_away: Way) -> None:
    with stranger() as one:
        (claimed,) = one.sees()
        take_away(folder)
        assert notebook("pass").text == "Your claim of GPU 1 was removed. It was made again.\n"
        assert one.sees() == [claimed]
        for _ in range(2):  # whoever removes it again and again makes no line of each cell
            next(folder.glob(f"{claimed}.*")).unlink()
            assert notebook("pass").text == ""
            assert one.sees() == [claimed]
        notebook("%gpus 1")
        shutil.rmtree(folder)
        assert "was removed" in notebook("pass").text


def test_a_hidden_cell_leaves_the_news_to_the_user_s_next_cell(
    notebook: Typed, shell: InteractiveShell, folder: Path
) -> None:
    """VS Code's list of variables runs cells without a place in the history, and shows no output."""
    only(folder).unlink()
    with capture_output() as hidden:
        shell.run_cell("pass", store_history=False)
    assert hidden.stderr == hidden.stdout == ""
    assert only(folder)
    assert notebook("pass").text == "Your claim of GPU 1 was removed. It was made again.\n"
    assert notebook("pass").text == ""


def test_the_cell_in_which_it_is_removed_says_so_at_its_end(notebook: Typed, folder: Path) -> None:
    said = notebook(f"import os; os.unlink({str(only(folder))!r}); print('done')").text
    assert said.splitlines()[0] == "done"
    assert "made again" in said
    assert only(folder)


def test_a_claim_for_a_command_is_also_made_again(notebook: Typed, folder: Path) -> None:
    notebook("%gpus reset")
    command = Claims("sleep 600", current().access)
    command.hold([GPU])
    only(folder).unlink()
    assert f"Your claim of {GPU} was removed." in notebook("pass").text
    assert command.held == {GPU}
    command.release()
    assert notebook("pass").text == ""
    assert not list(folder.iterdir())


def test_who_has_claimed_the_gpu_meanwhile_is_said(notebook: Typed, folder: Path) -> None:
    with stranger(JPY_SESSION_NAME="eval.ipynb") as one:
        (claimed,) = one.sees()
        only(folder).unlink()
        one.run(f"claims.hold([{claimed!r}], unclaimed=True)")
        said = notebook("pass").text
    assert re.search(r"made again\. GPU 1 is now also claimed by you: eval\.ipynb, since \d\d:\d\d\.$", said)


def leave_a_link(folder: Path) -> None:
    folder.symlink_to(folder.rename(folder.with_name("elsewhere")))


def remove_the_link(folder: Path) -> None:
    folder.unlink()
    folder.with_name("elsewhere").rename(folder)


@pytest.mark.parametrize(
    ("close", "reopen"),
    [
        (lambda folder: folder.chmod(0o700), lambda folder: folder.chmod(0o1777)),
        (lambda folder: folder.chmod(0o1773), lambda folder: folder.chmod(0o1777)),  # nobody else can read it
        (leave_a_link, remove_the_link),
    ],
)
def test_a_folder_that_is_closed_is_said_once_and_a_claim_is_back_when_it_opens(
    notebook: Typed, folder: Path, close: Way, reopen: Way
) -> None:
    with stranger() as one:
        claimed = one.sees()
        close(folder)
        assert "Other users can no longer see your claim of GPU 1: " in notebook("pass").text
        assert "claimed by this" not in notebook("%gpus").text
        assert notebook("pass").text == ""
        reopen(folder)
        assert one.sees() == claimed
        assert notebook("pass").text == ""
        assert current().claims.held == set(claimed)


def test_a_script_is_told_by_its_next_choice(gpu: str, folder: Path) -> None:
    only(folder).unlink()
    with pytest.raises(gpu_magic.ChoiceError):
        gpu_magic.choose("9")
    with stranger() as one:
        assert one.sees() == [gpu]
        assert gpu_magic.choose("1").warnings == ["Your claim of GPU 1 was removed. It was made again."]
        assert gpu_magic.choose("1").warnings == []


def test_a_dry_run_claims_nothing_again(gpu: str, folder: Path) -> None:
    only(folder).unlink()
    assert gpu_magic.choose("1", dry_run=True).warnings == []
    assert not list(folder.iterdir())
    assert gpu not in current().claims.held


def test_a_cell_does_not_wait_for_a_folder_that_was_closed_just_now(folder: Path) -> None:
    """A choice does: the process that makes the folder opens it to all within a moment."""
    ours = Claims()
    ours.hold([GPU])
    calls: list[object] = []
    folder.chmod(0o700)
    sys.setprofile(lambda _, event, called: calls.append(called) if event == "c_call" else None)
    lost, problem = ours.renew()
    sys.setprofile(None)
    assert lost == {GPU}
    assert "is not open to all users" in problem
    assert time.sleep not in calls
    folder.chmod(0o1777)
    ours.release()
