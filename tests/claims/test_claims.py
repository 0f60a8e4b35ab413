"""Claims between real processes, of two users, on a real file system."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpu_magic.claims.held import Claims
from tests.conftest import LIMIT, ROOT
from tests.processes import missing, until

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU, OTHER = "GPU-1a2b3c4d-0000-4000-8000-000000000000", "GPU-8f3a0000-0000-4000-8000-000000000001"

# Not a descendant of ours, which would be no other: its parent has ended.
HOLDER = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
from gpu_magic.claims.held import Claims
claims = Claims()
problem = claims.hold({uuids!r})
print(os.getpid(), problem, flush=True)
{then}
time.sleep(600)
"""


@contextmanager
def holder(*uuids: str, then: str = "", **variables: str) -> Iterator[int]:
    """Let another process claim some devices; yield its number."""
    code = HOLDER.format(uuids=uuids, then=then)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
    ) as process:
        assert process.stdout is not None
        pid, _, problem = process.stdout.readline().strip().partition(" ")
        assert not problem
        try:
            yield int(pid)
        finally:
            end(int(pid))


def end(pid: int, number: int = signal.SIGKILL) -> None:
    """End a process that is nobody's child here, and wait until it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    until(lambda: not Path(f"/proc/{pid}").exists())


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
    assert re.search(r": train\.ipynb, since \d\d:\d\d$", str(claim))


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
    then = "if not os.fork():\n    time.sleep(600)\nprint('forked', flush=True)"
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
    with holder(then=f"print(list(claims.others()) == [{GPU!r}], flush=True)") as _:
        pass
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


needs_root = pytest.mark.skipif(
    os.getuid() != 0 and not os.environ.get("CI"), reason="another user's process is started as root"
)


def as_nobody(code: str, folder: Path) -> str:
    """Run code as another user, who is no relative; return what it prints."""
    # Python and the package can stand in folders that are root's alone, so it changes its user when it has loaded.
    program = (
        "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\n"
        "import time\nwhile os.getppid() == int(os.environ['STARTED_BY']): time.sleep(0.01)\n"
        "import pwd\nfrom gpu_magic.claims.held import Claims\n"
        "user = pwd.getpwnam('nobody')\nos.setgroups([]); os.setgid(user.pw_gid); os.setuid(user.pw_uid)\n"
        f"{code}"
    )
    ran = subprocess.run(
        ["setsid", sys.executable, "-c", program],
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "STARTED_BY": str(os.getpid()), "GPU_MAGIC_CLAIMS": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
    )
    assert not ran.stderr
    return ran.stdout


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder that another user can get to."""
    place = Path("/tmp") / f"gpu_magic-tests-{os.getpid()}"
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", str(place))
    yield place
    for file in place.iterdir():
        file.unlink()
    place.rmdir()


@needs_root
def test_users_see_each_others_claims_and_can_not_end_them(open_folder: Path) -> None:
    ours = Claims()
    ours.hold([GPU])
    code = (
        "print(Claims().others())\n"
        "folder = os.environ['GPU_MAGIC_CLAIMS']\n"
        "for name in os.listdir(folder):\n"
        "    for act in os.unlink, (lambda path: os.rename(path, path + 'x')), (lambda path: open(path, 'w')):\n"
        "        try:\n"
        "            act(os.path.join(folder, name)); print('it could')\n"
        "        except PermissionError:\n"
        "            pass"
    )
    seen = as_nobody(code, open_folder)
    assert "owner='root'" in seen
    assert f"pid={os.getpid()}" in seen
    assert "it could" not in seen
    ours.release()


@needs_root
def test_what_another_user_puts_there_is_not_followed_and_not_believed(
    open_folder: Path, tmp_path: Path
) -> None:
    Claims().others()  # the folder is there now
    secret = tmp_path / "secret"
    secret.write_text("private")
    name = f"{GPU}.{'0' * 16}"
    as_nobody(
        f"os.chdir(os.environ['GPU_MAGIC_CLAIMS'])\n"
        f"os.symlink({str(secret)!r}, {name!r})\n"
        f"os.mkfifo({name.replace('0' * 16, '1' * 16)!r})\n"
        f"os.mkdir({name.replace('0' * 16, '2' * 16)!r})\n"
        f"open({name.replace('0' * 16, '3' * 16)!r}, 'wb').write(b'\\xff' * 100000)\n"
        "open('GPU-\\n\\x1b[31m.0000000000000000', 'w')",
        open_folder,
    )
    assert Claims().others() == {}
    assert secret.read_text() == "private"
    for one in open_folder.iterdir():
        if one.is_dir():
            one.rmdir()


@needs_root
def test_a_notebook_s_name_is_shown_and_no_more(open_folder: Path) -> None:
    Claims().others()
    with holder(GPU, JPY_SESSION_NAME="\x1b[31m" + "evil" * 100) as _:
        (claim,) = Claims().others()[GPU]
    assert claim.notebook.isprintable()
    assert len(claim.notebook) == 60
    assert open_folder.exists()


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
    then = "turn = claims.turn(1); turn.__enter__(); print('has it', flush=True)"
    with holder(GPU, then=then), Claims().turn(0.1):
        ran = True
    assert ran


def test_claims_can_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", "off")
    ours = Claims()
    assert not ours.hold([GPU])
    assert not ours.held
