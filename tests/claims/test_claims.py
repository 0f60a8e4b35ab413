"""Claims between real processes, of two users, on a real file system."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_magic.claims.held import Claims
from gpu_magic.devices.owner import owner_name
from tests.claims.holders import GPU, OTHER, end, holder
from tests.conftest import LIMIT, ROOT
from tests.processes import missing, until


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of this test's claims, which is still to be made."""
    folder = tmp_path / "claims"
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", str(folder))
    return folder


@pytest.mark.usefixtures("folder")
def test_others_see_who_claims_what_and_since_when() -> None:
    before = time.time()
    with holder(GPU, JPY_SESSION_NAME="/home/maria/deep/train.ipynb") as pid:
        (claim,) = Claims().others()[GPU]
    assert (claim.pid, claim.notebook) == (pid, "train.ipynb")
    assert before - 1 < claim.since < time.time() + 1
    assert re.search(r"^claimed by you: train\.ipynb, since \d\d:\d\d$", str(claim))


@pytest.mark.usefixtures("folder")
def test_a_claim_of_this_user_that_comes_from_a_container_can_be_somebody_elses() -> None:
    """A holder of another PID namespace can have this user's number, and be another person."""
    code = f"from gpu_magic.claims.held import Claims; print(*map(str, Claims().others()[{GPU!r}]))"
    with holder(GPU):
        seen = subprocess.run(
            ["unshare", "--pid", "--fork", sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    if seen.stderr.startswith("unshare:"):
        missing("no PID namespace can be made here")
    assert seen.stdout.startswith(f"claimed by {owner_name(os.getuid())}, since ")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_claim_ends_with_its_process_however_that_ends(number: int) -> None:
    with holder(GPU) as pid:
        assert Claims().others()
        end(pid, number)
        assert not Claims().others()


def test_what_a_killed_process_has_left_is_tidied_up(folder: Path) -> None:
    with holder(GPU) as pid:
        end(pid)
    assert list(folder.iterdir())
    Claims().others()
    assert not list(folder.iterdir())


@pytest.mark.usefixtures("folder")
def test_a_forked_child_that_lives_on_does_not_keep_a_claim() -> None:
    then = "if not os.fork():\n    time.sleep(600)"
    with holder(GPU, then=then) as pid:
        children = f"/proc/{pid}/task/{pid}/children"
        until(lambda: Path(children).read_text())
        child = int(Path(children).read_text())
        assert Claims().others()
        end(pid)
        assert Path(f"/proc/{child}").exists()
        assert not Claims().others()
        end(child)


@pytest.mark.usefixtures("folder")
def test_a_child_and_a_parent_are_no_others() -> None:
    ours = Claims()
    assert ours.hold([GPU]) == ""
    code = "from gpu_magic.claims.held import Claims; print(Claims().others())"
    child = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout == "{}\n"
    ours.release()


@pytest.mark.usefixtures("folder")
def test_looking_at_claims_does_not_end_ones_own() -> None:
    """A process that closes any descriptor of a file loses its locks on it (fcntl(2))."""
    ours = Claims()
    ours.hold([GPU])
    assert Claims().others() == ours.others() == {}
    assert seen_by_another() == [GPU]
    ours.release()
    assert seen_by_another() == []


def seen_by_another() -> list[str]:
    """Return what a process that is no relative sees claimed."""
    code = (
        "import os\nif os.fork(): os._exit(0)\nos.setsid()\n"
        "import time\nwhile os.getppid() == int(os.environ['STARTED_BY']): time.sleep(0.01)\n"
        "from gpu_magic.claims.held import Claims\nprint(*Claims().others(), flush=True)"
    )
    ran = subprocess.run(
        ["setsid", sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT), "STARTED_BY": str(os.getpid())},
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
    )
    assert not ran.stderr
    return ran.stdout.split()


@pytest.mark.usefixtures("folder")
def test_a_new_choice_ends_the_claims_of_the_one_before() -> None:
    ours = Claims()
    ours.hold([GPU])
    ours.hold([OTHER])
    assert seen_by_another() == [OTHER]
    ours.release()


def test_all_users_can_read_a_claim_and_nobody_else_can_change_it(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        ours = Claims()
        ours.hold([GPU])
    finally:
        os.umask(before)
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    ours.release()


def test_a_folder_that_is_not_everybodys_is_no_place_and_no_obstacle(folder: Path) -> None:
    if os.getuid() == 0:
        folder.mkdir(mode=0o755)
        os.chown(folder, 65534, 65534)
        assert "is not open to all users" in Claims().hold([GPU])
    folder.rmdir() if folder.exists() else None
    folder.write_text("")
    assert "can't be opened" in Claims().hold([GPU])
    assert Claims().others() == {}


def test_a_link_for_a_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    assert "can't be opened" in Claims().hold([GPU])
    assert not list(elsewhere.iterdir())


def test_a_full_disk_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file system without room for another file."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=2", "tmpfs", small],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        missing("a file system can't be mounted here")
    try:
        monkeypatch.setenv("GPU_MAGIC_CLAIMS", str(small / "claims"))
        assert Claims().hold([GPU]) == "no file can be made (No space left on device)"
        assert Claims().others() == {}
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.usefixtures("folder")
def test_whoever_keeps_the_turn_delays_others_and_does_not_stop_them() -> None:
    with holder(GPU, then="turn = claims.turn(1); turn.__enter__()"):
        began = time.monotonic()
        with Claims().turn(0.5):
            assert time.monotonic() - began >= 0.5


def test_claims_can_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", "off")
    ours = Claims()
    assert not ours.hold([GPU])
    assert not ours.held


@pytest.mark.usefixtures("folder")
def test_an_interrupt_leaves_no_claim_that_nobody_knows() -> None:
    """It comes before each call, and behind each: Python looks for signals there."""
    script = f"""
import itertools, os, sys
from gpu_magic.claims.held import Claims
claims, left = Claims(), 0
for step in itertools.count(1):
    calls = 0
    def interrupt(frame, event, argument):
        global calls
        if "gpu_magic/claims/" in frame.f_code.co_filename and event in ("call", "c_return"):
            calls += 1
            if calls == step:
                raise KeyboardInterrupt
    done = False
    sys.setprofile(interrupt)
    try:
        claims.hold([{GPU!r}])
        done = True
    except KeyboardInterrupt:
        pass
    sys.setprofile(None)
    there = os.path.exists(os.environ["GPU_MAGIC_CLAIMS"]) and os.listdir(os.environ["GPU_MAGIC_CLAIMS"])
    left += bool(there) and not claims.held
    claims.release()
    if done:
        break
print(step > 10, left)
"""
    shown = subprocess.check_output([sys.executable, "-c", script], text=True, timeout=LIMIT)
    assert shown == "True 0\n"
