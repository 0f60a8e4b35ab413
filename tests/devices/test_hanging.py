"""Calls that may never return, and a driver that takes its time to start: who waits, and what they are told."""

from __future__ import annotations

import _thread
import io
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

import gpu_magic
from gpu_magic.devices.call_timeout import CallTimeout
from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.nvml import Nvml
from gpu_magic.interrupts import postponed_interrupts
from gpu_magic.panel.state import PageViewer, panel_state
from gpu_magic.testing import Machine, simulate
from tests import processes
from tests.conftest import IMPATIENT, LIMIT, ROOT
from tests.machine import AMD_CARDS, CARDS, GIB, Driver, amd_environment, clean_environment, environment
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.devices.model import Inventory
    from tests.conftest import Fresh

WAITS = "gpu_magic is waiting for the NVIDIA driver"
OPEN, FIND = "nvmlInitWithFlags", "nvmlDeviceGetHandleByIndex_v2"  # NVML starts GPUs in the second
HUNG = "timed out"


def hangs(inventory: Inventory) -> list[bool]:
    return [HUNG in str(gpu.problem) for gpu in inventory]


def test_after_an_interrupt_a_call_that_hangs_is_known_and_one_that_never_began_is_made() -> None:
    timeout, gate = CallTimeout(60.0), threading.Event()

    def hang() -> bool:
        _thread.interrupt_main()
        return gate.wait()

    with pytest.raises(KeyboardInterrupt):
        timeout.call([("hangs", hang), ("waits", bool)])
    assert (timeout.hangs("hangs"), timeout.hangs("waits")) == (True, False)
    assert timeout.call([("hangs", lambda: True), ("waits", lambda: True)]) == [None, True]
    gate.set()
    until(lambda: not timeout.hangs("hangs"))
    assert timeout.late("hangs") is True
    timeout.close()


def test_calls_after_a_slow_one_have_a_quarter_of_the_time() -> None:
    """As when the driver's library takes its time to open: the GPUs after it are well."""
    timeout, gate = CallTimeout(4 * LIMIT), threading.Event()
    threading.Timer(0.05, gate.set).start()
    long_ago = time.monotonic() - 5 * LIMIT
    assert timeout.call([("slow", gate.wait)], since=long_ago) == [True]
    timeout.close()


def test_a_process_ends_beside_a_driver_that_hangs(fresh: Fresh) -> None:
    code = """
        import threading
        from gpu_magic.devices.nvml import Nvml
        from gpu_magic.testing import simulate
        with simulate("2xT4") as machine:
            machine.hang("nvmlDeviceGetPowerUsage", 1)
            print([bool(gpu.problem) for gpu in Nvml(timeout=0.5).inventory()])
    """
    assert fresh(code) == "[False, True]\n"


def test_a_call_that_begins_just_as_the_list_is_given_up_is_known_to_hang() -> None:
    timeout, gate = CallTimeout(60.0), threading.Event()
    given_up, begun = threading.Event(), threading.Event()

    def interrupt_main() -> None:  # also in a system call
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def first() -> bool:
        interrupt_main()
        return given_up.wait()

    def second() -> bool:
        begun.set()
        return gate.wait()

    def at_the_last_moment(frame: Any, event: str, function: Any) -> None:
        """Let the thread begin the second call while this one takes what was never begun."""
        is_ours = frame.f_globals["__name__"] == CallTimeout.__module__
        if is_ours and event == "c_call" and function.__name__ in ("clear", "popleft"):
            given_up.set()
            begun.wait(LIMIT)

    def interrupt(_: int, frame: Any) -> None:
        """Interrupt what is tested, and not the function above: an error of it would end its work."""
        while frame is not None:
            if frame.f_code is at_the_last_moment.__code__:
                return threading.Timer(0.05, interrupt_main).start()
            frame = frame.f_back
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGINT, interrupt)
    sys.setprofile(at_the_last_moment)
    try:
        with pytest.raises(KeyboardInterrupt):
            timeout.call([("first", first), ("second", second)])
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGINT, handler)
    assert begun.is_set()
    assert timeout.hangs("second")
    gate.set()
    timeout.close()


def test_a_gpu_that_hangs_keeps_no_other_and_is_not_asked_again(impatient: Nvml) -> None:
    with simulate("4xA100-80GB") as machine:
        impatient.inventory()
        comes_back = machine.hang("nvmlDeviceGetTemperature", 1)
        assert hangs(impatient.inventory()) == [False, True, False, False]
        with simulate("4xL4"):
            assert not any(hangs(impatient.inventory()))  # the same number on another machine is well
        assert hangs(impatient.inventory()) == [False, True, False, False]
        asked, threads = pynvml.nvmlLib.calls["nvmlDeviceGetTemperature"], threading.active_count()
        for _ in range(5):
            assert hangs(impatient.inventory()) == [False, True, False, False]
        # Nobody waits a second time, and no thread is lost to it.
        assert pynvml.nvmlLib.calls["nvmlDeviceGetTemperature"] == asked + 5 * 3
        assert threading.active_count() == threads
        comes_back.set()
        until(lambda: not any(hangs(impatient.inventory())))


def test_a_driver_that_hangs_when_opened_is_given_up_and_keeps_the_simulated_one_away_from_nobody(
    impatient: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulate("4xA100-80GB") as machine:
        comes_back = machine.hang(OPEN)
        assert HUNG in str(impatient.inventory().problem)
        comes_back.set()
        until(lambda: len(impatient.inventory()) == 4)
    with simulate("2xT4") as machine:
        comes_back = machine.hang(OPEN)
        assert "does not answer" in str(impatient.inventory().problem)
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "3xL4")
    assert len(impatient.inventory()) == 3
    comes_back.set()
    time.sleep(0.1)
    assert impatient.inventory()[0].name == "NVIDIA L4"
    monkeypatch.delenv("GPU_MAGIC_SIMULATE")
    impatient.inventory()


def test_closing_does_not_wait_for_a_driver_that_hangs(impatient: Nvml) -> None:
    with simulate("2xT4") as machine:
        impatient.inventory()
        comes_back = machine.hang("nvmlShutdown")
        closing = threading.Thread(target=impatient.close)
        closing.start()
        closing.join(LIMIT)
        assert not closing.is_alive()
        comes_back.set()


def test_a_child_forked_while_another_thread_reads_can_read(impatient: Nvml) -> None:
    with simulate("2xT4") as machine:
        impatient.inventory()
        comes_back = machine.hang("nvmlDeviceGetPowerUsage", 0)
        reader = threading.Thread(target=impatient.inventory)
        reader.start()
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            comes_back.set()
            os._exit(len(impatient.inventory()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        comes_back.set()
        reader.join()


def test_gpus_that_are_slow_and_well_leave_no_threads_behind(nvml: Nvml) -> None:
    class Slow(Machine):
        def wait_if_hanging(self, call: str, gpu: int | None) -> None:
            time.sleep(0.1 if call == "nvmlDeviceGetPowerUsage" else 0)

    with simulate(Slow("4xT4")):
        nvml.inventory()
        threads = threading.active_count()
        for _ in range(4):
            assert not any(gpu.problem for gpu in nvml.inventory())
        until(lambda: threading.active_count() <= threads)


# A driver that takes its time to start, as without persistence mode.


class Stderr(io.StringIO):
    """Does something when it is first written to."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def write(self, text: str) -> int:
        if not self.getvalue():
            self._act()
        return super().write(text)


def read(
    monkeypatch: pytest.MonkeyPatch, nvml: Nvml, when_told: Callable[[], object]
) -> tuple[Inventory, str]:
    """Read the machine, and do something as soon as the wait is told of; return what was told, too."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr := Stderr(when_told))
        inventory = nvml.inventory()
    return inventory, stderr.getvalue()


@pytest.fixture
def hurried() -> Iterator[Nvml]:
    """Return a reader that tells of a wait soon, and waits as long as any."""
    reader = Nvml(timeout=IMPATIENT)
    yield reader
    reader.close()


def test_a_driver_that_starts_is_waited_for_and_one_line_says_so(
    hurried: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulate("4xA100-80GB") as machine:
        comes_back = machine.hang(FIND, 1)
        inventory, told = read(monkeypatch, hurried, comes_back.set)
        assert [one.problem for one in inventory] == [None] * 4
        assert (told.startswith(WAITS), told.count("\n"), len(told) <= 120) == (True, 1, True)
        assert pynvml._nvmlLib_refcount == 1  # what was opened is what is used, and closed
        assert read(monkeypatch, hurried, lambda: None)[1] == ""


def test_a_driver_that_never_starts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(timeout=0.05, starting=IMPATIENT)
    with simulate("4xA100-80GB") as machine:
        comes_back = machine.hang(OPEN)
        inventory, told = read(monkeypatch, nvml, lambda: None)
        assert HUNG in str(inventory.problem)
        assert told.count(WAITS) == 1
        again, told = read(monkeypatch, nvml, lambda: None)  # as long as it hangs, nobody waits again
        assert (HUNG in str(again.problem), told) == (True, "")
        comes_back.set()
        until(lambda: len(nvml.inventory()) == 4)
        nvml.close()


def test_a_gpu_that_was_found_before_is_not_waited_for(
    hurried: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulate("2xA100-80GB") as machine:
        hurried.inventory()
        machine.gpus[1].lose()
        hurried.inventory()  # its handle is to be found again
        machine.gpus[1].recover()
        comes_back = machine.hang(FIND, 1)
        inventory, told = read(monkeypatch, hurried, lambda: None)
        assert (hangs(inventory), told) == ([False, True], "")
        comes_back.set()


def test_an_interrupt_ends_the_wait_in_one_line_and_the_driver_goes_on_starting(
    hurried: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with simulate("2xA100-80GB") as machine:
            comes_back = machine.hang(OPEN)
            interrupt = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT])
            with pytest.raises(KeyboardInterrupt) as interrupted:
                read(monkeypatch, hurried, interrupt.start)
            (line,) = interrupted.value._render_traceback_()  # type: ignore[attr-defined] # IPython's protocol
            assert line == "KeyboardInterrupt: the NVIDIA driver is still starting."
            # The next one waits for the same call.
            inventory, told = read(monkeypatch, hurried, comes_back.set)
            assert (len(inventory), told.count(WAITS)) == (2, 1)
            assert pynvml.nvmlLib.calls[OPEN] == 1
    finally:
        signal.signal(signal.SIGINT, handler)


def test_who_did_not_ask_is_not_kept_waiting(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    with simulate("2xA100-80GB") as machine:
        comes_back = machine.hang(OPEN)
        shell.run_line_magic("load_ext", "gpu_magic")
        assert "1" not in shell.complete("%gpus ", "%gpus ", 6)[1]  # Tab
        page = PageViewer(lambda message: None)
        page.receive({"type": "attach", "page": "p"})
        page.receive({"type": "look", "view": "v", "visibility": "watched", "open": []})
        assert panel_state().tick()  # a panel's thread
        with postponed_interrupts():  # a hook before or after a cell
            assert HUNG in str(gpu_magic.gpus().problem)
        assert capsys.readouterr().err == ""
        comes_back.set()
        assert len(gpu_magic.gpus()) == 2  # who asks waits for it
        assert "1" in shell.complete("%gpus ", "%gpus ", 6)[1]
        page.close()


def test_an_interrupt_ends_the_wait_of_the_command_line(native: Path, tmp_path: Path) -> None:
    Driver(CARDS, hangs=((OPEN, -1, float(LIMIT)),)).write(tmp_path / "machine")
    process = subprocess.Popen(
        [sys.executable, "-m", "gpu_magic"],
        env=clean_environment() | environment(native, tmp_path / "machine"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - ours can be ignored
    )
    assert process.stderr
    assert process.stderr.readline().startswith(WAITS)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=LIMIT) == ("", "")
    assert process.returncode == 128 + signal.SIGINT


def test_a_real_library_that_takes_its_time(fresh: Fresh, native: Path, tmp_path: Path) -> None:
    """To open, and then to start a GPU."""
    Driver(CARDS, hangs=((OPEN, -1, 0.2), (FIND, 0, 0.2))).write(tmp_path / "machine")
    code = """
        import contextlib, io
        from gpu_magic.devices.nvml import Nvml
        with contextlib.redirect_stderr(io.StringIO()) as told:
            print([str(gpu.problem) for gpu in Nvml(timeout=0.05).inventory()])
        print(told.getvalue(), end="")
    """
    problems, line = fresh(code, **environment(native, tmp_path / "machine")).splitlines()
    assert problems == "['None', 'None', 'None', 'None']"
    assert line.startswith(WAITS)


def test_gpus_behind_several_that_hang_are_read_the_next_time(impatient: Nvml) -> None:
    with simulate("12xT4") as machine:
        impatient.inventory()
        events = [machine.hang("nvmlDeviceGetPowerUsage", number) for number in range(8)]
        for _ in range(3):
            last = impatient.inventory()
        assert hangs(last) == [True] * 8 + [False] * 4
        for event in events:
            event.set()
        until(lambda: not any(hangs(impatient.inventory())))


@processes.sees_processes
@pytest.mark.parametrize("is_amd", [False, True])
def test_a_user_database_and_a_process_that_hang_are_no_driver_that_hangs(
    fresh: Fresh, native: Path, native_amd: Path, tmp_path: Path, *, is_amd: bool
) -> None:
    os.mkfifo(fifo := tmp_path / "cmdline")  # opening it waits for a writer
    with processes.running(processes.WAITS, tmp_path / "train.py") as process:
        card = replace((AMD_CARDS if is_amd else CARDS)[0], processes=((process.pid, 5 * GIB),))
        Driver((card,)).write(state := tmp_path / "machine")
        found = fresh(
            f"""
            import os, pwd, threading
            import gpu_magic

            opens = os.open
            os.open = lambda file, *flags, **options: opens(
                {str(fifo)!r} if file == "/proc/{process.pid}/cmdline" else file, *flags, **options
            )
            pwd.getpwuid = lambda uid: threading.Event().wait()
            for _ in range(2):
                (gpu,) = gpu_magic.gpus()
                (one,) = gpu.status.processes
                print([str(gpu.problem or ""), one.pid, one.memory >> 30, one.name, one.owner, one.is_same_user])
            """,
            **(amd_environment(native_amd, state) if is_amd else environment(native, state)),
        )
    expected = ["", process.pid, 5, UNKNOWN, f"uid {os.getuid()}", True]
    assert found.splitlines() == [str(expected)] * 2
