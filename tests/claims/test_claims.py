"""Claims between real processes, on a real file system."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pynvml
import pytest

from gpu_magic.claims.held import Claims, PickedTwiceError
from gpu_magic.devices.processes import owner_name
from gpu_magic.testing import simulate
from tests.claims.holders import GPU, OTHER, end, holder, is_running, stranger
from tests.conftest import LIMIT, ROOT
from tests.processes import missing

if TYPE_CHECKING:
    from gpu_magic.devices.nvml import Nvml

pytestmark = pytest.mark.usefixtures("folder")


def python(code: str, *before: str, **variables: str) -> str:
    """Run Python code in a process that this one has started; return what it prints, to stderr as well."""
    return subprocess.run(
        [*before, sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT,
    ).stdout


def test_others_see_who_claims_what_and_since_when() -> None:
    before = time.time()
    with holder(GPU, JPY_SESSION_NAME="/home/maria/deep/train.ipynb") as pid:
        (claim,) = Claims().others()[GPU]
    assert (claim.pid, claim.notebook) == (pid, "train.ipynb")
    assert before - 1 < claim.since < time.time() + 1
    assert re.search(r"^claimed by you: train\.ipynb, since \d\d:\d\d$", str(claim))


def test_a_gpu_without_a_uuid_is_claimed_by_its_bus_id(nvml: Nvml) -> None:
    with simulate("4xA100-80GB") as machine:
        for gpu in machine.gpus[:2]:
            gpu.fail("nvmlDeviceGetUUID", pynvml.NVML_ERROR_NOT_SUPPORTED)
        # GPU 2 was claimed before its first use, when the driver gave no UUID yet.
        with holder(*(machine.gpus[number].bus_id for number in (0, 2)), machine.gpus[3].uuid) as pid:
            there = nvml.inventory().with_claims(Claims().others())
        assert [[claim.pid for claim in gpu.status.claims] for gpu in there] == [[pid], [], [pid], [pid]]
        assert not any(gpu.status.claims for gpu in there.with_claims(Claims().others()))


def test_the_table_names_ones_own_claim_until_it_is_used() -> None:
    code = "import gpu_magic; gpu_magic.choose('2,0'); print(gpu_magic.gpus())"
    lines = python(code, GPU_MAGIC_SIMULATE="4xA100-80GB clock=0").splitlines()[2:6]
    users = [re.split("  +", line)[-1] for line in lines]
    assert users == ["claimed by this process", "free", "aisha: eval.py, 45.1 GiB, for 14 h", "free"]


@pytest.mark.parametrize(
    "program", ["-", "-c", "-m", "/pkg/__main__.py", "/pkg/ipykernel_launcher.py", "a/train.py"]
)
def test_a_claim_has_the_name_of_its_script_and_not_of_what_starts_kernels(
    folder: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr(sys, "argv", [program])
    ours = Claims()
    ours.hold([GPU])
    (file,) = folder.iterdir()
    assert file.read_text().split("\n")[:2] == [GPU, "train.py" if "train" in program else ""]
    ours.release()


def test_a_claim_of_this_user_that_comes_from_a_container_can_be_somebody_elses() -> None:
    """A holder of another PID namespace can have this user's number, and be another person."""
    code = f"from gpu_magic.claims.held import Claims; print(*map(str, Claims().others()[{GPU!r}]))"
    with holder(GPU):
        seen = python(code, "unshare", "--pid", "--fork")
    if seen.startswith("unshare:"):
        missing("no PID namespace can be made here")
    assert seen.startswith(f"claimed by {owner_name(os.getuid())}, since ")  # with one host name, no other


# A container, as far as claims can tell: a PID namespace with a host name.
CONTAINER = ["unshare", "--map-root-user", "--pid", "--uts", "--fork", "--mount-proc", "sh", "-c"]
CONTAINER += ['hostname "$0" && exec "$@"']
HOLDS = f"from gpu_magic.claims.held import Claims; c = Claims(); c.hold([{GPU!r}]); print(1, flush=True); input()"
SEES = f"""
from gpu_magic.claims.held import Claims
from gpu_magic.devices.model import UNKNOWN
(claim,) = Claims().everybodys()[{GPU!r}]
print(claim, "" if claim.pid is UNKNOWN else claim.pid, sep="|")
"""
# The holder and a reader, of which neither descends from the other.
HOLDS_AND_SEES = f"""
import subprocess, sys
holder = subprocess.Popen([sys.executable, "-c", {HOLDS!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
holder.stdout.readline()
print(holder.pid, subprocess.check_output([sys.executable, "-c", {SEES!r}], text=True).strip(), sep="|", flush=True)
input()
"""


def test_a_claim_names_its_container_to_other_pid_namespaces_and_its_process_to_its_own() -> None:
    if subprocess.run([*CONTAINER, "trainer", "true"], check=False, capture_output=True).returncode:
        missing("no PID namespace with a host name can be made here")
    since = r", since \d\d:\d\d"
    with subprocess.Popen(
        [*CONTAINER, "trainer", sys.executable, "-c", HOLDS_AND_SEES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JPY_SESSION_NAME": "/home/maria/train.ipynb"},
        text=True,
    ) as process:
        assert process.stdout is not None
        pid, *inside = process.stdout.readline().strip().split("|")
        (here,) = Claims().everybodys()[GPU]
        namespace = Path(f"/proc/{here.pid}/ns/pid").stat().st_ino
        elsewhere = python(SEES, *CONTAINER, "evaluator").strip().split("|")
        same_name = python(SEES, *CONTAINER, "trainer").strip().split("|")
        process.communicate("\n", timeout=LIMIT)
    assert re.fullmatch(f"claimed by you: train.ipynb{since}", inside[0])
    assert inside[1] == pid  # the container's own numbers
    assert namespace != Path("/proc/self/ns/pid").stat().st_ino  # this machine's number of the same process
    assert re.fullmatch(f"claimed by you in trainer: train.ipynb{since}", str(here))
    assert re.fullmatch(f"claimed by root in trainer: train.ipynb{since}", elsewhere[0])
    assert re.fullmatch(f"claimed by root: train.ipynb{since}", same_name[0])
    assert (elsewhere[1], same_name[1]) == ("", "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_claim_ends_with_its_process_however_that_ends(folder: Path, number: int) -> None:
    with holder(GPU) as pid:
        assert Claims().others()
        end(pid, number)
        assert not Claims().others()
        assert not list(folder.iterdir()), "what it has left is not tidied up"


def test_a_process_has_one_claim_of_a_device_the_earliest_however_many_files_it_has(folder: Path) -> None:
    """Else one process could fill the tables of all users."""
    with stranger() as one, holder(GPU):
        one.run(f"globals().update(more=[Claims() for _ in range(20)], gpus=[{GPU!r}, {OTHER!r}])")
        one.run("[each.hold(gpus) for each in more]")
        assert len(list(folder.iterdir())) == 41
        seen = Claims().others()
        since = min(file.stat().st_mtime for file in folder.glob(f"{OTHER}.*"))
        assert [claim.since for claim in seen[OTHER]] == [since]
        assert len(seen[GPU]) == 2  # one of each process


def test_a_forked_child_that_lives_on_does_not_keep_a_claim() -> None:
    with stranger() as one:
        one.run(f"claims.hold([{GPU!r}])")
        child = one.run("os.fork() or time.sleep(600)")
        assert Claims().others()
        end(one.pid)
        assert is_running(child)
        assert not Claims().others()
        end(child)


def test_a_child_that_is_forked_in_a_turn_does_not_keep_it() -> None:
    code = """if True:
        import fcntl, os, time
        from gpu_magic.claims.folder import Access
        with Access().turn(0):
            child = os.fork() or time.sleep(600)
        folder = os.open(os.environ["GPU_MAGIC_CLAIMS"], os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.kill(child, 9)
        print("free", end="")
    """
    assert python(code) == "free"


def test_a_file_that_a_killed_process_has_not_finished_is_removed_after_a_while(folder: Path) -> None:
    Claims().hold([GPU])
    old, new = (folder / f".{GPU}.{digit * 16}" for digit in "01")
    for file in old, new:
        file.touch()
    os.utime(old, (0, 0))
    assert Claims().others() == {}
    assert [*folder.glob(".*")] == [new]


def test_a_child_and_a_parent_are_no_others() -> None:
    ours = Claims()
    assert ours.hold([GPU]) == ""
    assert python("from gpu_magic.claims.held import Claims; print(Claims().others())") == "{}\n"
    holds = f"from gpu_magic.claims.held import Claims; ours = Claims(); ours.hold([{OTHER!r}]); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", holds],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout
        child.stdout.readline()
        assert ours.others() == {}
        assert [claim.owner for claim in ours.taken()[OTHER]] == ["this kernel"]  # `auto` keeps off it
        child.communicate(b"\n")
    ours.release()


def test_a_claim_ends_with_the_next_choice_and_not_by_a_look_at_claims() -> None:
    """A process that closes any descriptor of a file loses its locks on it (fcntl(2))."""
    ours = Claims()
    with stranger() as one:
        ours.hold([GPU])
        assert Claims().others() == ours.others() == {}
        assert one.sees() == [GPU]
        ours.hold([OTHER])
        assert one.sees() == [OTHER]
        ours.release()
        assert one.sees() == []


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
    folder.mkdir(mode=0o700)  # somebody's, for other things
    assert "is not open to all users" in Claims().hold([GPU])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    elsewhere = folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(elsewhere)
    assert "cannot be opened" in Claims().hold([GPU])
    assert Claims().others() == {}
    assert not list(elsewhere.iterdir())
    folder.unlink()
    folder.write_text("")
    assert "cannot be opened" in Claims().hold([GPU])


def test_a_full_disk_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file system without room for another file."""
    options = ["-t", "tmpfs", "-o", "size=4k,nr_inodes=3"]  # itself, the folder of claims and one claim
    if subprocess.run(["mount", *options, "tmpfs", tmp_path], capture_output=True, check=False).returncode:
        missing("a file system can't be mounted here")
    try:
        monkeypatch.setenv("GPU_MAGIC_CLAIMS", str(tmp_path / "claims"))
        claims = Claims()
        with holder(GPU):
            assert claims.hold([OTHER]) == "no file can be written (No space left on device)"
            assert claims.held == set()
            assert claims.others().keys() == {GPU}
            with pytest.raises(PickedTwiceError):  # it is another's, whether or not ours could be written
                claims.hold([GPU], unclaimed=True)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize("off", ["off", " Off ", "0", "none"])
def test_claims_can_be_off(monkeypatch: pytest.MonkeyPatch, off: str) -> None:
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", off)
    ours = Claims()
    assert not ours.hold([GPU])
    assert not ours.held


def test_the_folder_is_the_same_for_each_notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPU_MAGIC_CLAIMS", "~/claims")
    assert Claims().hold([GPU]) == "GPU_MAGIC_CLAIMS=~/claims is not an absolute path"
    assert not list(tmp_path.iterdir())


def test_a_choice_opens_the_folder_once() -> None:
    code = """if True:
        import os, sys, gpu_magic
        gpu_magic.choose("1")
        opened = []
        sys.addaudithook(lambda event, about: event == "open" and opened.append(about[0]))
        for request in ("2,0", "auto", "none"):
            gpu_magic.choose(request)
            print(opened.count(os.environ["GPU_MAGIC_CLAIMS"]), end=" ")
    """
    assert python(code, GPU_MAGIC_SIMULATE="8xA100-80GB clock=0") == "1 2 3 "


def test_an_interrupt_leaves_no_claim_that_nobody_knows() -> None:
    """It comes before each call, and behind each: Python looks for signals there."""
    code = f"""if True:
        import itertools, os, sys
        from gpu_magic.claims.held import Claims, PickedTwiceError
        claims, left, folder = Claims(), 0, os.environ["GPU_MAGIC_CLAIMS"]
        for step in itertools.count(1):
            calls, done = 0, False
            def interrupt(frame, event, argument):
                global calls
                if "gpu_magic/claims/" in frame.f_code.co_filename and event in ("call", "c_return"):
                    calls += 1
                    if calls == step:
                        raise KeyboardInterrupt
            sys.setprofile(interrupt)
            try:
                claims.hold([{GPU!r}])
                done = True
            except KeyboardInterrupt:
                pass
            sys.setprofile(None)
            left += bool(os.path.exists(folder) and os.listdir(folder)) and not claims.held
            claims.release()
            if done:
                break
        print(step > 10, left)
    """
    assert python(code) == "True 0\n"
