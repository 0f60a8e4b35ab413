"""Owners and names from the real /proc, of real processes."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from gpu_magic.devices.processes import UNKNOWN_PROCESS, ProcessTable, descends_from, name_text, read_process
from gpu_magic.devices.unknown import UNKNOWN
from tests.conftest import LIMIT
from tests.machine import IN_CONTAINER
from tests.processes import WAITS, another_users, needs_root, running, running_again, sees_processes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh


@pytest.fixture
def sleeper(tmp_path: Path) -> subprocess.Popen[bytes]:
    script = tmp_path / "train.py"
    script.write_text("print('up', flush=True)\nimport time; time.sleep(60)\n")
    process = subprocess.Popen(
        [sys.executable, "-u", str(script), "--token=secret"],
        stdout=subprocess.PIPE,
        env=os.environ | {"JPY_SESSION_NAME": "/home/maria/train.ipynb"},
    )
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_process_is_named_by_its_script_and_owner(sleeper: subprocess.Popen[bytes]) -> None:
    found = ProcessTable().look_up(sleeper.pid)
    if IN_CONTAINER:  # the driver's numbers are the host's, so nothing may be said of them
        assert found == UNKNOWN_PROCESS
        return
    assert found.name == "train.py"
    assert found.owner == psutil.Process(sleeper.pid).username() == pwd.getpwuid(os.getuid()).pw_name
    assert found.mine


@sees_processes
def test_a_process_of_ones_own_has_its_notebook_and_its_start(sleeper: subprocess.Popen[bytes]) -> None:
    found = ProcessTable().look_up(sleeper.pid)
    assert (found.is_own, found.notebook) == (True, "/home/maria/train.ipynb")
    assert found.started == read_process(sleeper.pid).started
    assert 0 <= found.age <= LIMIT


@sees_processes
def test_a_process_of_another_user_has_its_age_and_no_notebook() -> None:
    with another_users(JPY_SESSION_NAME="/home/maria/train.ipynb") as (pid, _):
        found = ProcessTable().look_up(pid)
    assert (found.is_own, found.notebook) == (False, "")
    assert found.age is not UNKNOWN


@sees_processes
def test_what_is_known_of_a_process_is_not_read_again(fresh: Fresh) -> None:
    opened = fresh("""
        import os, sys
        from gpu_magic.devices.processes import ProcessTable

        table, opened = ProcessTable(), []
        table.look_up(os.getpid())
        sys.addaudithook(lambda event, details: opened.append(details[0]) if event == "open" else None)
        assert table.look_up(os.getpid()).started
        print(opened)
    """)
    assert opened.strip() == "[]"


@sees_processes
@needs_root
def test_a_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    table = ProcessTable()
    with running(WAITS, tmp_path / "train.py", JPY_SESSION_NAME="a.ipynb") as first:
        before = table.look_up(first.pid)
    with running_again(first.pid, WAITS, tmp_path / "eval.py", JPY_SESSION_NAME="b.ipynb"):
        after = table.look_up(first.pid)
    assert (before.name, before.notebook) == ("train.py", "a.ipynb")
    assert (after.name, after.notebook) == ("eval.py", "b.ipynb")
    assert before.started != after.started


def test_a_process_that_is_gone_is_unknown(sleeper: subprocess.Popen[bytes]) -> None:
    table = ProcessTable()
    table.look_up(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    assert table.look_up(sleeper.pid) == UNKNOWN_PROCESS


def test_a_process_descends_from_those_above_it_alone() -> None:
    starts = "import subprocess as s; c = s.Popen(['sleep', '60']); print(c.pid, flush=True); c.wait()"
    with subprocess.Popen([sys.executable, "-c", starts], stdout=subprocess.PIPE, text=True) as child:
        grandchild = int(child.stdout.readline())
        with subprocess.Popen(["sleep", "60"]) as another:
            found = [
                descends_from(grandchild, ancestors)
                for ancestors in ({child.pid}, {os.getpid(), another.pid}, {another.pid}, {grandchild}, ())
            ]
            another.kill()
        os.kill(grandchild, signal.SIGKILL)
    assert found == [True, True, False, False, False]


def test_pid_1_is_not_ours() -> None:
    found = ProcessTable().look_up(1)
    assert not found.mine
    if not IN_CONTAINER:
        assert found.owner == psutil.Process(1).username()
        assert found.name is not UNKNOWN


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["-c", "print(1, flush=True); import time; time.sleep(60)"], "python"),
        (["-u", "-X", "dev", "-m", "http.server", "0"], "http.server"),
        (["-W", "ignore", "-u", "-c", "print(1); import time; time.sleep(60)"], "python"),
        (["-uIc", "print(1); import time; time.sleep(60); password = 'hunter2'"], "python"),
        (["-umhttp.server", "0"], "http.server"),
        (["-uXdev", "-m", "http.server", "0"], "http.server"),
        (["--check-hash-based-pycs", "default", "-um", "http.server", "0"], "http.server"),
    ],
)
def test_what_python_runs(arguments: list[str], name: str) -> None:
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        found = ProcessTable().look_up(process.pid)
    finally:
        process.kill()
        process.communicate()
    assert found.name is UNKNOWN if IN_CONTAINER else str(found.name).startswith(name)


def test_names_can_not_move_the_cursor_or_fill_the_screen() -> None:
    assert name_text("a\x1b[31m\n\u202eb") == "a�[31m��b"
    assert len(name_text("x" * 500)) == 40
