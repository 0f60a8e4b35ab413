"""Nothing is left behind, however a command or the process that launched it ends; and nothing else is touched.

Every process of a test carries a variable of the test's own, by which it is found in /proc whatever its parent is.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import gpu_magic
from gpu_magic.launch import guardian
from gpu_magic.launch.launch import prepare
from gpu_magic.shell.arguments import read_words
from tests.conftest import ROOT
from tests.processes import marked, until
from tests.reliability.steps import Steps

if TYPE_CHECKING:
    from gpu_magic.launch.task import Task
    from tests.conftest import Fresh

# What is started: processes that ignore INT and TERM, that have sessions of their own, and that have become daemons,
# each saying that it is there by a file.
RANKS = """
import os, signal, subprocess, sys, time

def stay(name, ignores=(), own_session=False, daemon=False):
    if os.fork():
        return
    if own_session or daemon:
        os.setsid()
    if daemon and os.fork():
        os._exit(0)
    for number in ignores:
        signal.signal(number, signal.SIG_IGN)
    open(name, "w").close()
    while True:
        time.sleep(60)

stay("plain")
stay("stubborn", ignores=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
stay("own-session", own_session=True)
stay("daemon", daemon=True)
stay("stubborn-daemon", ignores=(signal.SIGINT, signal.SIGTERM), daemon=True)
open("launcher-%d" % os.getpid(), "w").close()
while True:
    time.sleep(60)
"""
NAMES = {"plain", "stubborn", "own-session", "daemon", "stubborn-daemon", "launcher"}

# The process that launches. It tells when all are there, and then does what it is told.
LAUNCHING = """
import os, sys, time
import gpu_magic
from gpu_magic.testing import simulate

with simulate("2xA100-80GB"):
    task = gpu_magic.launch(["python", "ranks.py"])
    print("launched", flush=True)
    how = sys.stdin.readline().strip()
    if how == "interrupt":
        task.interrupt()
        while task.is_running:
            time.sleep(0.05)
        print("ended", flush=True)
    elif how == "stop":
        task.stop()
        print("ended", flush=True)
    elif how == "exit":
        sys.exit()
    time.sleep(600)
"""


def are_there(folder: Path) -> bool:
    """Return whether all that `RANKS` starts has said that it is there."""
    names = {file.name for file in folder.iterdir()}
    return {"launcher" if name.startswith("launcher") else name for name in names} >= NAMES


def guardians(mark: str) -> list[int]:
    """Return the keeper and the guardian of a command, in this order."""
    found = [pid for pid in marked(mark) if guardian.__file__ in Path(f"/proc/{pid}/cmdline").read_text()]
    parents = {pid: stat[1] for pid in found if (stat := guardian.read_stat(pid))}
    return sorted(parents, key=lambda pid: parents[pid] in parents)


@pytest.mark.parametrize(
    "how",
    [
        "interrupt",
        "kill",
        "kill the launcher",
        *(pytest.param(how, marks=pytest.mark.nightly) for how in ("stop", "exit", "terminate")),
    ],
)
def test_nothing_is_left(how: str, tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(textwrap.dedent(RANKS))
    mark = uuid4().hex
    bystander = subprocess.Popen(["sleep", "600"])
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MARK": mark, "TMPDIR": str(tmp_path)}
    launching = subprocess.Popen(
        [sys.executable, "-c", LAUNCHING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    try:
        assert launching.stdin
        assert launching.stdout
        assert launching.stdout.readline() == "launched\n"
        until(lambda: are_there(tmp_path))
        # With the process that launches, the guardian and its keeper.
        assert len(marked(mark)) == len(NAMES) + 3
        launcher = int(next(tmp_path.glob("launcher-*")).name.partition("-")[2])
        if how == "kill":
            launching.kill()
        elif how == "terminate":
            launching.terminate()
        elif how == "kill the launcher":
            os.kill(launcher, signal.SIGKILL)
        else:
            launching.stdin.write(f"{how}\n")
            launching.stdin.flush()
        if how in ("interrupt", "stop"):
            assert launching.stdout.readline() == "ended\n"
        goes_on = {launching.pid} if how in ("interrupt", "stop", "kill the launcher") else set()
        until(lambda: marked(mark) <= goes_on)
        assert bystander.poll() is None
        if not goes_on:  # the files of what was launched go with it
            until(lambda: not list(tmp_path.glob("gpu_magic-*")))
    finally:
        for process in (launching, bystander):
            process.kill()
            process.wait()
        for left in marked(mark):
            os.kill(left, signal.SIGKILL)


# Launches, waits for the end, and tells how it ended and how many GPUs are claimed for commands then.
WAITING = """
import gc, sys
import gpu_magic
from gpu_magic.process.session import current

task = gpu_magic.launch("python ranks.py", gpus="1")
print("launched", flush=True)
task.join()
print(task.has_failed, task, flush=True)
del task
gc.collect()
print(len(current().claims.of_commands()), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("killed", ["keeper", "guardian", "both"])
def test_a_command_whose_guardian_is_killed_ends_before_its_claim(tmp_path: Path, killed: str) -> None:
    """If both are killed, only the command itself is known to have ended, so the claim stays."""
    (tmp_path / "ranks.py").write_text(RANKS)
    mark = uuid4().hex
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MARK": mark, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", WAITING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment | {"GPU_MAGIC_SIMULATE": "2xA100-80GB"},
    ) as launching:
        try:
            assert launching.stdout
            assert launching.stdout.readline() == "launched\n"
            until(lambda: are_there(tmp_path))
            keeper, guarding = guardians(mark)
            kills = {"keeper": [keeper], "guardian": [guarding], "both": [keeper, guarding]}[killed]
            for number in signal.SIGSTOP, signal.SIGKILL:  # stopped, so that neither acts on the other's end
                for pid in kills:
                    os.kill(pid, number)
            how, left = launching.stdout.readline(), marked(mark) - {launching.pid}
            assert how.startswith("True python ranks.py: ")
            launcher = int(next(tmp_path.glob("launcher-*")).name.partition("-")[2])
            if killed == "both":
                assert "lost because its guardian was killed" in how
                assert "GPU 1 stays claimed" in how
                until(lambda: launcher not in marked(mark))  # Linux sends KILL when both have ended
            else:
                assert left == set()
            assert int(launching.stdout.readline()) == (killed == "both")
        finally:
            launching.kill()
            for pid in marked(mark):
                os.kill(pid, signal.SIGKILL)


# Processes that go on as others from just before KILL, 3 s after TERM, until a second after it: while the guardian
# reads which there are, others have taken their places.
FORKING = """
import os, signal, time

def go_on(*_):
    end = time.monotonic() + 4
    time.sleep(2.7)
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        time.sleep(0.002)
    time.sleep(600)

signal.signal(signal.SIGTERM, go_on)
for _ in range(5):
    if not os.fork():
        time.sleep(600)
open("there", "w").close()
time.sleep(600)
"""


def test_processes_that_start_while_others_are_killed_are_killed_too(machine: Path) -> None:
    (machine / "forks.py").write_text(FORKING)
    mark = uuid4().hex
    task = gpu_magic.launch("python forks.py", gpus="0", env={"MARK": mark})
    try:
        until((machine / "there").exists)
        task.stop()
        assert marked(mark) == set()
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)


def test_a_command_that_has_ended_gets_no_signal_through_a_file_that_is_opened_later(machine: Path) -> None:
    """Its descriptors are closed, and their numbers are used again."""
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    task = gpu_magic.launch("sleep 600", gpus="0")
    used = set(os.listdir("/proc/self/fd")) - before  # noqa: PTH208
    task.stop()
    with ExitStack() as opened:
        files = [opened.enter_context(tempfile.TemporaryFile()) for _ in range(len(used) + len(before))]
        assert used & {str(file.fileno()) for file in files}
        for signalling in task.interrupt, task.end, task.stop:
            signalling()
        assert [os.fstat(file.fileno()).st_size for file in files] == [0] * len(files)


def test_a_start_that_is_interrupted_leaves_nothing(machine: Path) -> None:
    def start(moment: int, mark: str) -> tuple[Task, int]:
        words = ["--env", f"MARK={mark}", "--gpus", "0", "sleep", "600"]
        task, steps = prepare(read_words("gpu-magic launch", words)), Steps(moment, interrupt)
        with suppress(KeyboardInterrupt), steps.counted():
            task.start()
        return task, steps.count

    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    for _ in range(2):  # modules are imported when they are first used
        task, most = start(0, "")
        task.stop()
    threads = threading.active_count()
    for moment in range(1, most + 1, 3):
        mark = uuid4().hex
        task, _ = start(moment, mark)
        assert marked(mark) == set(), moment
        folder = task.files.path
        del task
        gc.collect()
        assert not folder.exists(), moment
        until(lambda: threading.active_count() == threads)


def test_a_temporary_folder_that_cannot_be_listed_is_good_enough(fresh: Fresh) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # below a folder that all users can enter
        Path(place).chmod(0o333)
        shown = fresh(f"""
            import os, tempfile
            from gpu_magic.launch.process import RunFolder
            if os.getuid() == 0:
                os.setuid(65534)  # root lists any folder
            tempfile.tempdir = {place!r}
            print(RunFolder().path.parent)
        """)
        Path(place).chmod(0o700)
    assert shown == f"{place}\n"


@pytest.mark.parametrize("has_private", [True, False])
def test_a_guardian_loads_no_slow_module_that_it_can_do_without(has_private: bool) -> None:
    """A Python without a private name of `_ctypes` has a guardian that starts more slowly."""
    code = f"""
        import _ctypes, sys
        if not {has_private}:
            del _ctypes.call_function
        found = {{"__name__": "guardian"}}
        exec(open({guardian.__file__!r}).read(), found)
        found["prctl"](found["PR_SET_CHILD_SUBREAPER"], 1)
        print(int(found["signal"].SIGTERM), *sorted({{"ctypes", "enum", "typing"}} & sys.modules.keys()))
    """
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["15"] + ["ctypes"] * (not has_private)


@pytest.mark.parametrize("first", ["it is known to have ended", "its files are closed"])
def test_a_process_that_ends_at_a_bad_moment_leaves_no_folder(first: str, tmp_path: Path) -> None:
    """A process closes its files before it is known to have ended, and can have ended before the guardian runs."""
    logs = tmp_path / "logs"
    logs.mkdir()
    control, controlling = os.pipe()
    reported, report = os.pipe()
    parent = os.getpid()
    if first == "it is known to have ended":
        gone = subprocess.Popen(["true"])
        gone.wait()
        parent = gone.pid
    words = [parent, control, report, logs, 0, "sleep", 600]
    command = [sys.executable, "-I", "-S", guardian.__file__, *map(str, words)]
    process = subprocess.Popen(command, pass_fds=(control, report))
    os.close(report)
    said = os.read(reported, 100)
    assert said.startswith(b"starting") == (parent == os.getpid())
    os.close(controlling)
    process.wait()
    assert list(tmp_path.iterdir()) == []
    for descriptor in (control, reported):
        os.close(descriptor)
