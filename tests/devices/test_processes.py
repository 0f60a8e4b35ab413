"""Owners, names and notebooks from the real /proc, of real processes, and what they are called in the table."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_magic
from gpu_magic.devices.model import UNKNOWN, Claim, Gpu, GpuProcess, GpuStatus, Inventory
from gpu_magic.devices.notebooks import with_notebooks
from gpu_magic.devices.processes import (
    ProcessNames,
    ProcessTable,
    descends_from,
    name_text,
    read_process,
    read_python_line,
    starter_has_ended,
)
from gpu_magic.testing import simulate
from gpu_magic.text import escaped
from tests.conftest import LIMIT
from tests.machine import IN_CONTAINER
from tests.processes import WAITS, another_users, needs_root, running, running_again, sees_processes, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Fresh

GIB = 1 << 30


@contextmanager
def python(*arguments: str, **variables: str) -> Iterator[int]:
    """Run Python with these arguments, once it has printed something."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,  # that of the tests can be at its end
        stdout=subprocess.PIPE,
        env=os.environ | variables,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_a_process_of_ones_own_has_its_script_its_notebook_and_its_start(tmp_path: Path) -> None:
    script, table = tmp_path / "train.py", ProcessTable()
    notebook = "work/train ü.ipynb"
    with running(WAITS, script, JPY_SESSION_NAME=notebook, XJPY_SESSION_NAME="no") as process:
        pid = process.pid
        found, known = read_process(pid), table.look_up([pid])[pid]
        assert found.owner == psutil.Process(pid).username() == pwd.getpwuid(os.getuid()).pw_name
        assert isinstance(found.started, int)
        since_boot = psutil.Process(pid).create_time() - psutil.boot_time()
        assert found.started / os.sysconf("SC_CLK_TCK") == pytest.approx(since_boot, abs=2)
        assert (found.name, found.is_this_process, found.is_same_user, found.notebook) == (
            "train.py",
            True,
            True,
            notebook,
        )
        assert isinstance(found.age, int)
        assert 0 <= found.age <= LIMIT
        if IN_CONTAINER:  # the driver's numbers are the host's, so nothing may be told of them
            assert known == GpuProcess(pid)
        else:
            assert (known.name, known.started) == ("train.py", found.started)
    gone = GpuProcess(pid) if IN_CONTAINER else GpuProcess(pid, has_ended=True)
    assert (table.look_up([pid])[pid], read_process(pid)) == (gone, GpuProcess(pid))


def test_a_notebook_whose_path_no_file_can_have_is_unknown() -> None:
    with python("-c", "print(flush=True); input()", JPY_SESSION_NAME="a" * 100_000) as pid:
        assert read_process(pid).notebook == ""


def test_a_process_that_has_ended_is_unknown_also_before_its_parent_knows() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert read_process(process.pid).started is UNKNOWN
    process.wait()


def test_a_process_of_another_user_has_its_age_and_no_notebook() -> None:
    with another_users(JPY_SESSION_NAME="x") as (pid, _):
        found = read_process(pid)
    assert (found.is_same_user, found.notebook) == (False, "")
    assert found.age is not UNKNOWN
    init = read_process(1)
    assert not init.is_this_process
    assert init.owner == psutil.Process(1).username()
    assert init.name is not UNKNOWN


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_process_that_somebody_else_has_started_with_our_rights_is_not_ones_own() -> None:
    with python("-c", f"import os; os.setresuid(65534, 0, 0); {WAITS.replace(chr(10), '; ')}") as pid:
        assert not read_process(pid).is_same_user


@sees_processes
def test_what_is_known_of_a_process_is_not_read_again(fresh: Fresh) -> None:
    opened = fresh("""
        import os, sys
        from gpu_magic.devices.processes import ProcessTable

        table, opened = ProcessTable(), []
        table.look_up([os.getpid()])
        sys.addaudithook(lambda event, details: opened.append(details[0]) if event == "open" else None)
        assert table.look_up([os.getpid()])[os.getpid()].started
        print(opened)
    """)
    assert opened.strip() == "[]"


@sees_processes
def test_a_process_that_is_known_grows_older() -> None:
    table = ProcessTable()
    with python("-c", "print(flush=True); input()") as pid:
        first = table.look_up([pid])[pid].age
        assert first is not UNKNOWN
        until(lambda: table.look_up([pid])[pid].age == first + 2)


def test_processes_that_hang_and_a_slow_user_database_are_waited_for_once(
    fresh: Fresh, tmp_path: Path
) -> None:
    """What is read without them is known at once, and the rest as soon as they answer."""
    with running(WAITS, tmp_path / "train.py") as first, running(WAITS, tmp_path / "eval.py") as second:
        os.mkfifo(fifo := tmp_path / "cmdline")  # opening it waits for a writer
        found = fresh(f"""
            import os, pwd, threading, time
            from gpu_magic.devices.processes import owner_name, read_processes

            pids, answers, opens, finds = [{first.pid}, {second.pid}], threading.Event(), os.open, pwd.getpwuid
            files = {{f"/proc/{{pid}}/cmdline" for pid in pids}}
            os.open = lambda file, *flags: opens({str(fifo)!r} if file in files else file, *flags)

            def find(uid):
                answers.wait()
                return finds(uid)

            pwd.getpwuid = find
            for _ in range(3):
                print([(one.name, one.owner, one.is_same_user, one.age >= 0) for one in read_processes(pids).values()])
            print(threading.active_count(), owner_name(65534))
            answers.set()
            files.clear()
            open({str(fifo)!r}, "w").close()
            while threading.active_count() > 1:
                time.sleep(0.01)
            print([(one.name, one.owner) for one in read_processes(pids).values()])
        """)
    *hung, rest, answered = found.splitlines()
    uid, name = os.getuid(), pwd.getpwuid(os.getuid()).pw_name
    assert hung == [str([(UNKNOWN, f"uid {uid}", True, True)] * 2)] * 3
    assert rest == "4 uid 65534"  # two names and the database, and nothing waits for them again
    assert answered == str([("train.py", name), ("eval.py", name)])


def test_a_user_that_was_not_found_is_looked_for_again_after_a_minute(fresh: Fresh) -> None:
    found = fresh("""
        import pwd, time
        from gpu_magic.devices.processes import owner_name

        users, clock = [KeyError, KeyError, "maria"], time.monotonic

        def find(uid):
            user = users.pop(0)
            if user is KeyError:
                raise user
            return pwd.struct_passwd([user, *"xxxxxx"])

        pwd.getpwuid = find
        for minute in (0, 0, 61, 122, 999):
            time.monotonic = lambda: clock() + minute
            print(owner_name(1234))
    """)
    assert found.splitlines() == ["uid 1234"] * 3 + ["maria"] * 2


@sees_processes
@needs_root
def test_a_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    table = ProcessTable()
    with running(WAITS, tmp_path / "train.py", JPY_SESSION_NAME="a.ipynb") as first:
        before = table.look_up([first.pid])[first.pid]
    with running_again(first.pid, WAITS, tmp_path / "eval.py", JPY_SESSION_NAME="b.ipynb"):
        after = table.look_up([first.pid])[first.pid]
    assert (before.name, before.notebook) == ("train.py", "a.ipynb")
    assert (after.name, after.notebook) == ("eval.py", "b.ipynb")
    assert before.started != after.started


def test_a_process_descends_from_those_above_it_alone() -> None:
    starts = "import subprocess as s; c = s.Popen(['sleep', '60']); print(c.pid, flush=True); c.wait()"
    with subprocess.Popen([sys.executable, "-c", starts], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        grandchild = int(child.stdout.readline())
        with subprocess.Popen(["sleep", "60"]) as another:
            found = [
                descends_from(grandchild, ancestors)
                for ancestors in ({child.pid}, {os.getpid(), another.pid}, {another.pid}, {grandchild}, ())
            ]
            is_mine = [read_process(pid).is_this_process for pid in (os.getpid(), grandchild, os.getppid())]
            another.kill()
        os.kill(grandchild, signal.SIGKILL)
    assert found == [True, True, False, False, False]
    assert is_mine == [True, True, False]


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
def test_a_program_of_python_s_is_named_by_what_it_runs(arguments: list[str], name: str) -> None:
    with python(*arguments) as pid:
        assert str(read_process(pid).name).startswith(name)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["-m", "cProfile", "-o", "out.prof", "train.py"], "train.py"),
        (["-m", "cProfile", "-m", "train"], "train"),
        (["-m", "IPython", "--no-banner", "train.py"], "train.py"),
        (
            ["-m", "IPython", "--no-banner", "-c", "print(1, flush=True); import time; time.sleep(600)"],
            "IPython",
        ),
        (["memray", "run", "-o", "out.bin", "train.py"], "train.py"),
        (["ipython", "-i", "train.py", "--lr", "1"], "train.py"),
        (["ipython"], "ipython"),
        (["streamlit", "run", "app.py"], "app.py"),
        # VS Code
        (
            ["/ext/debugpy/../debugpy", "--connect", "127.0.0.1:5", "--configure-qt", "none", "train.py"],
            "train.py",
        ),
        (["/ext/debugpy/../debugpy", "--connect", "127.0.0.1:5", "-m", "work.train", "a.py"], "work.train"),
        (["/ext/debugpy/../debugpy", "--connect", "127.0.0.1:5", "-c", "pass"], "debugpy"),
        # PyCharm
        (
            ["pydevd.py", "--multiprocess", "--client", "127.0.0.1", "--file", "/w/train.py", "b.py"],
            "train.py",
        ),
        (["pydevd.py", "--module", "--multiprocess", "--file", "work.train", "--lr", "1"], "work.train"),
        (["train.py", "--config", "pdb.py"], "train.py"),
    ],
)
def test_what_a_debugger_or_a_profiler_runs_is_named(tmp_path: Path, arguments: list[str], name: str) -> None:
    programs = "train.py", "pydevd.py", "ext/debugpy/__main__.py", "memray", "ipython", "streamlit"
    for program in programs:
        (tmp_path / program).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / program).write_text(WAITS)
    arguments = [one.replace("/ext", f"{tmp_path}/ext") for one in arguments]
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = read_process(process.pid).name
        process.kill()
    assert found == name


# Forks a worker, starts a program in a session of its own and two by multiprocessing, as a kernel would.
STARTS = """
import multiprocessing, os, subprocess, sys, time
if __name__ == "__main__":  # not in those that multiprocessing starts
    worker = os.fork()
    if not worker:
        time.sleep(600)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    spawned = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)
    spawned.start()
    served = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(600,), daemon=True)
    served.start()
    print(worker, other.pid, spawned.pid, served.pid, flush=True)
    time.sleep(600)
"""


@contextmanager
def kernel_with_children(folder: Path) -> Iterator[tuple[int, list[int]]]:
    """Run a process with the command line of a kernel. Yield its number, and those of what it has started."""
    (folder / "ipykernel_launcher.py").write_text(STARTS)
    variables = {"JPY_SESSION_NAME": "work/train.ipynb", "JPY_PARENT_PID": str(os.getpid())}
    with subprocess.Popen(
        [sys.executable, "-m", "ipykernel_launcher", "-f", "x.json"],
        stdout=subprocess.PIPE,
        cwd=folder,
        env=os.environ | variables,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        children = list(map(int, process.stdout.readline().split()))
        try:
            yield process.pid, children
        finally:
            process.kill()
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)


def test_workers_of_a_kernel_are_told_from_it_and_from_those_of_one_that_has_ended(tmp_path: Path) -> None:
    with kernel_with_children(tmp_path) as (kernel, children):

        def names() -> list[str]:
            found = [read_process(pid) for pid in (kernel, *children)]
            return list(map(ProcessNames(found).name, found))

        worker = "worker of train.ipynb"
        until(lambda: names()[3] == worker)  # its program has begun
        name, forked_name, other_name, _, served_name = names()
        assert served_name == worker
        assert (name, forked_name) == ("train.ipynb", worker)
        assert other_name.startswith("python")
        assert not any(starter_has_ended(read_process(pid)) for pid in (kernel, *children))
        os.kill(kernel, signal.SIGKILL)
        os.waitid(os.P_PID, kernel, os.WEXITED | os.WNOWAIT)
        # Its server starts another kernel with the same command line and the same notebook.
        with kernel_with_children(tmp_path) as (_, others):
            forked, other, _, served = map(read_process, children)
            assert all(map(starter_has_ended, (forked, other, served)))
            assert not any(starter_has_ended(read_process(pid)) for pid in others)
            ended = subprocess.Popen(["true"])
            ended.wait()
            assert not starter_has_ended(other._replace(pid=ended.pid))  # it ends while it is looked at
            if not (pid := os.fork()):
                os._exit(0)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            assert not starter_has_ended(forked._replace(pid=pid))  # its parent has not noticed its end
            os.waitpid(pid, 0)


STARTS_WORKERS = """
import multiprocessing, time
if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        worker = multiprocessing.get_context(method).Process(target=time.sleep, args=(600,))
        worker.start()
        print(worker.pid, flush=True)
    time.sleep(600)
"""


def test_workers_of_a_script_are_left_over_once_it_has_ended(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STARTS_WORKERS)
    variables = {name: value for name, value in os.environ.items() if name != "JPY_SESSION_NAME"}
    with subprocess.Popen(
        [sys.executable, tmp_path / "train.py"],
        stdout=subprocess.PIPE,
        env=variables,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        spawned, of_server = (int(process.stdout.readline()) for _ in range(2))
        until(lambda: {read_process(pid).is_worker for pid in (spawned, of_server)} == {True})
        assert not any(starter_has_ended(read_process(pid)) for pid in (spawned, of_server))
        process.kill()
        process.wait()
        try:
            until(lambda: starter_has_ended(read_process(spawned)))
        finally:
            for pid in (spawned, of_server):
                os.kill(pid, signal.SIGKILL)


def test_what_a_kernel_of_unknown_notebook_has_started_is_named_by_its_claim(tmp_path: Path) -> None:
    with running(WAITS, tmp_path / "train.py") as child:
        process = read_process(child.pid)._replace(notebook="")
        for notebook, named in (("a.ipynb", "a.ipynb"), ("train.py", "")):  # a script's claim has its name
            claim = Claim("maria", 0.0, os.getpid(), notebook, is_same_user=True)
            machine = Inventory((Gpu(0, "GPU-0", status=GpuStatus(processes=(process,), claims=(claim,))),))
            found = with_notebooks(machine)[0].status.processes
            assert found == (process._replace(notebook=named),)


def test_a_kernel_whose_notebook_is_unknown_is_named_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "ipykernel_launcher.py").write_text(WAITS)
    (tmp_path / "work").mkdir()
    command = [sys.executable, "-m", "ipykernel_launcher", "--f=/run/kernel-v3ab.json"]
    variables = {name: value for name, value in os.environ.items() if name != "JPY_SESSION_NAME"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=tmp_path / "work", env=variables | {"PYTHONPATH": str(tmp_path)}
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = read_process(process.pid)
        process.kill()
    assert (found.is_kernel, ProcessNames([found]).name(found)) == (True, "ipykernel in work")
    other = found._replace(folder="/home/maria/b/work")
    assert ProcessNames([found, other]).name(other) == "ipykernel in b/work"
    assert ProcessNames([found]).name(found._replace(folder="/")) == "ipykernel in /"


def test_a_kernel_s_notebook_is_known_from_its_claim() -> None:
    """VS Code tells it to the kernel alone. Another user's claim can say anything."""
    kernel = GpuProcess(4711, "ipykernel", "maria", is_this_process=False, is_same_user=True, folder="/work")
    claims = [Claim("maria", 0.0, pid, "train.ipynb", is_same_user=pid == 4711) for pid in (4711, 4712)]
    others = kernel._replace(pid=4712), kernel._replace(pid=4713, notebook="a.ipynb")
    here = GpuStatus(processes=(kernel, *others), claims=tuple(claims))
    machine = Inventory(
        (Gpu(0, "GPU-0", status=here), Gpu(1, "GPU-1", status=GpuStatus(processes=(kernel,))))
    )
    found = [gpu.status.processes for gpu in with_notebooks(machine)]
    notebooks = [[one.notebook for one in processes] for processes in found if processes is not UNKNOWN]
    assert notebooks == [["train.ipynb", "", "a.ipynb"], ["train.ipynb"]]


def test_a_kernel_is_called_ipykernel_and_python_s_answers_are_none() -> None:
    line = read_python_line(["-Im", "ipykernel_launcher", "-f", "x.json"])
    assert line == ("module", "ipykernel_launcher", 2, False)
    assert [read_python_line([word]).is_answer for word in ("-V", "--help", "-IV", "x.py")] == [True] * 3 + [
        False
    ]


def test_names_can_not_move_the_cursor_or_fill_the_screen() -> None:
    assert name_text("a\x1b[31m\n\u202eb") == "a�[31m��b"
    assert len(name_text("x" * 500)) == 40


TRAIN = "/home/maria/work/train.ipynb"


@pytest.mark.parametrize(
    ("processes", "shown"),
    [
        (  # a kernel of one's own by its notebook, whose name is escaped in HTML
            [("ipykernel", "maria", 11_000, True, "/home/maria/<b>.ipynb")],
            ["you: <b>.ipynb, 12.0 GiB, for 3 h"],
        ),
        ([("train.py", "maria", 60, True, TRAIN)], ["you: train.py, 12.0 GiB, for 1 min"]),
        ([("ipykernel", "tom", 200_000, False, TRAIN)], ["tom: ipykernel, 12.0 GiB, for 2 days"]),
        ([("train.py", "tom", UNKNOWN, False, "")], ["tom: train.py, 12.0 GiB"]),
        (
            [
                ("ipykernel", "maria", 0, True, "/home/maria/old/train.ipynb"),
                ("ipykernel", "maria", 0, True, TRAIN),
                ("ipykernel", "maria", 0, True, TRAIN),
                ("ipykernel", "maria", 0, True, "/home/maria/work/eval.ipynb"),
            ],
            [
                f"you: {name}, 12.0 GiB, for under a minute"
                for name in ("old/train.ipynb", "work/train.ipynb", "work/train.ipynb", "eval.ipynb")
            ],
        ),
    ],
)
def test_the_table_calls_kernels_of_ones_own_by_their_notebooks(
    processes: list[tuple[str, str, int, bool, str]], shown: list[str]
) -> None:
    with simulate("4xA100-80GB", clock=0) as machine:
        for gpu, (name, owner, age, is_same_user, notebook) in zip(machine.gpus, processes, strict=False):
            gpu.run(name, owner, 12 * GIB, age=age, is_same_user=is_same_user, notebook=notebook)
        gpus = gpu_magic.gpus()
        rows = repr(gpus).split("\n\n")[0].split("\n")[2:]
        assert [line.rpartition("  ")[2] for line in rows if not line.endswith("free")] == shown
        assert all(escaped(line) in gpus._repr_html_() for line in shown)
        if len(shown) == 1:
            assert f"GPU 0 is in use by {shown[0]}" in repr(gpu_magic.choose("0"))
            # What `auto` tells of others has no name and no notebook.
            who, since = shown[0].partition(": ")[0], shown[0].partition(", for ")[2]
            in_use = f"{who} for {since}" if since else who
            assert f"Not picked: GPU 0 (in use by {in_use})" in repr(gpu_magic.choose("auto"))


@given(st.lists(st.text(alphabet="ab/", min_size=1, max_size=9), min_size=1, max_size=6, unique=True))
def test_notebooks_are_told_apart(paths: list[str]) -> None:
    processes = [
        GpuProcess(number, "ipykernel", "maria", UNKNOWN, is_same_user=True, notebook=path)
        for number, path in enumerate(paths)
    ]
    names = ProcessNames(processes)
    assert len({names.name(process) for process in processes}) == len(paths)


@given(st.text(min_size=1, max_size=90))
def test_hostile_notebooks_stay_one_line(notebook: str) -> None:
    process = GpuProcess(7, "ipykernel", "maria", UNKNOWN, is_same_user=True, notebook=notebook)
    line = str(ProcessNames([process]).line(process))
    assert line.isprintable()
    assert len(line) < 60
