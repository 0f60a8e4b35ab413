"""Processes that wait for GPUs get them in the order in which they came."""

from __future__ import annotations

import os
import signal
import stat
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.claims.folder import Access
from gpu_magic.claims.held import Claims, PlaceInLine, count_waiting
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.wait import Waiting
from gpu_magic.process.session import current
from tests.claims.holders import GPU, Stranger, end, stranger
from tests.processes import needs_root, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("folder")

TAKES = "globals().update(place=held.PlaceInLine(folder_of.Access())) or place.join('1 1 0 GPU-1')"
PUTS = f"""if True:
    name = 'place.{"0" * 15}'
    os.symlink('/etc/passwd', name + '0')
    os.mkfifo(name + '1')
    open(name + '2', 'wb').write(b'place\\n\\xff\\n' + b'9' * 100000)
    for number in range(5000):
        open('place.{{number:x}}'.ljust(len(name) + 1, 'f'), 'w').close()
"""


def who() -> list[int | object]:
    """Return who waits, in order."""
    return [one.claim.pid for one in PlaceInLine(Access()).ahead()]


def take(one: Stranger) -> int:
    one.run("import gpu_magic.claims.held, gpu_magic.claims.folder")
    one.run("globals().update(held=sys.modules['gpu_magic.claims.held'])")
    one.run("globals().update(folder_of=sys.modules['gpu_magic.claims.folder'])")
    time.sleep(0.02)  # the file system's clock ticks
    one.run(TAKES)
    return one.pid


def test_the_order_is_that_in_which_they_came() -> None:
    with stranger() as first, stranger() as second, stranger() as third:
        assert who() == []
        came = [take(one) for one in (third, first, second)]
        assert who() == came
        assert first.run("[one.claim.pid for one in place.ahead()]") == came[:1]
        assert count_waiting(Access()) == 3
        first.run("place.join('1 1 0 GPU-1')")  # it has one
        assert who() == came
        end(third.pid)
        second.run("place.leave()")
        assert who() == came[1:2]
        second.run("place.join('1 1 0 GPU-1')")
        assert who() == came[1:]


def test_ones_own_place_is_counted_and_not_lost_by_a_look(folder: Path) -> None:
    """A process that closes any descriptor of a file loses its locks on it (fcntl(2))."""
    place = PlaceInLine(Access())
    place.join("1 1 0 GPU-1")
    with stranger() as one:
        assert who() == []
        assert count_waiting(Access()) == 1
        take(one)
        assert count_waiting(Access()) == 2
        assert one.run("[one.claim.pid for one in place.ahead()]") == [os.getpid()]
        assert place.ahead() == []
        del place
        assert one.run("place.ahead()") == []
    assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o644]


def test_a_place_is_no_claim_and_a_claim_no_place(folder: Path) -> None:
    with stranger() as one:
        take(one)
        assert Claims().others() == {}
        one.run(f"claims.hold([{GPU!r}])")
        assert len(who()) == 1
        (place,) = folder.glob("place.*")
        assert "-" not in place.name  # older versions take what has one for a claim
        os.link(place, folder / f"{GPU}.{'0' * 16}")
        assert [len(found) for found in Claims().others().values()] == [1]


def test_an_owner_can_only_come_later(folder: Path) -> None:
    with stranger() as first, stranger() as second:
        came = [take(one) for one in (first, second)]
        late = max(folder.iterdir(), key=lambda file: file.stat().st_ctime_ns)
        os.utime(late, (0, 0))
        assert who() == came
        early = min(folder.iterdir(), key=lambda file: file.stat().st_ctime_ns)
        until(lambda: early.chmod(0o600) or early.stat().st_ctime_ns > late.stat().st_ctime_ns)
        assert who() == came[::-1]


@needs_root
def test_what_another_user_puts_there_is_no_place_and_hides_none(folder: Path) -> None:
    with stranger() as first, stranger("nobody") as other:
        came = [take(first)]
        other.run(f"os.chdir({str(folder)!r})\n{PUTS}")
        assert who() == came
        assert first.run("place.ahead()") == []
        take(other)
        assert [one.claim.owner for one in PlaceInLine(Access()).ahead()] == ["root", "nobody"]


WAITS = "gpu_magic.choose({request!r}, wait='10m').devices[0].index"


@pytest.fixture
def colleagues(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Stranger]]:
    """Return processes on a machine of eight GPUs; the first has claimed all."""
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "8xA100-80GB clock=0")
    uuids = [str(gpu.uuid) for gpu in gpu_magic.gpus() if gpu.is_free]
    with ExitStack() as stack:
        processes = [stack.enter_context(stranger()) for _ in range(5)]
        for one in processes:
            one.run("import gpu_magic; globals().update(gpu_magic=gpu_magic)")
        processes[0].run(f"globals().update(uuids={uuids!r})")
        processes[0].run("claims.hold(uuids)")
        yield processes
    current().unload()


def begin(*processes: Stranger, request: str = "auto") -> None:
    """Have processes wait, one behind the other."""
    for number, one in enumerate(processes, start=len(who()) + 1):
        one.begin(WAITS.format(request=request))
        until(lambda: len(who()) == number)  # noqa: B023 - it is called in this round


def test_gpus_that_come_free_go_to_those_who_came_first(colleagues: list[Stranger]) -> None:
    holder, *waiters = colleagues
    begin(*waiters)
    assert "4 wait for GPUs" in repr(gpu_magic.gpus())
    killed = waiters.pop(1)
    end(killed.pid)
    until(lambda: "3 wait for GPUs" in repr(gpu_magic.gpus()))  # once its last thread has ended
    while waiters:
        holder.run("uuids.pop(0) and claims.hold(uuids)")
        until(lambda: any(one.has_said() for one in waiters))
        assert [one.has_said() for one in waiters] == [True] + [False] * (len(waiters) - 1)
        assert isinstance(waiters.pop(0).said(), int)
    assert "for GPUs" not in repr(gpu_magic.gpus())


def test_who_waits_for_two_keeps_no_single_gpu(colleagues: list[Stranger]) -> None:
    holder, two, one, also_two, _ = colleagues
    begin(two, request="auto:2")
    begin(one)
    begin(also_two, request="auto:2")
    holder.run("uuids.pop(0) and claims.hold(uuids)")
    until(one.has_said)
    assert not two.has_said()
    holder.run("uuids.pop(0) and uuids.pop(0) and claims.hold(uuids)")
    until(two.has_said)
    assert not also_two.has_said()


def test_who_does_not_wait_takes_what_is_free_now(colleagues: list[Stranger]) -> None:
    holder, stopped, *_ = colleagues
    begin(stopped)
    os.kill(stopped.pid, signal.SIGSTOP)
    holder.run("uuids.pop(0) and claims.hold(uuids)")
    assert gpu_magic.choose("auto", only_free=True).mask
    current().unload()


def test_what_one_has_already_is_left_to_nobody(colleagues: list[Stranger]) -> None:
    holder, first, second, *_ = colleagues
    second.run("bool(gpu_magic.choose('0'))")
    begin(first, request="0")
    begin(second, request="0,1")
    holder.run("claims.hold([])")
    until(second.has_said)
    assert not first.has_said()


def test_what_this_process_has_launched_keeps_auto_off_and_not_who_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "2xA100-80GB clock=0")
    wait = Waiting(current(), "auto", Options(), None)
    command = Claims("sleep 600", current().access)
    assert command.hold([str(gpu.uuid) for gpu in gpu_magic.gpus()]) == ""
    assert not wait.look()
    assert "claimed by this kernel: sleep 600" in wait.holders
    assert gpu_magic.choose("1", only_free=True).mask == "1"
    command.release()
    assert wait.look()
    wait.leave_line()
    current().unload()


def test_a_launch_waits_in_the_same_line(colleagues: list[Stranger]) -> None:
    holder, launching, choosing, *_ = colleagues
    launching.begin("bool(globals().update(task=gpu_magic.launch('sleep 600', gpus='auto', wait='10m')))")
    until(lambda: who() == [launching.pid])
    begin(choosing)
    holder.run("uuids.pop(0) and claims.hold(uuids)")
    until(launching.has_said)
    assert not choosing.has_said()
    assert who() == [choosing.pid]
    launching.said()
    launching.run("bool(task.stop())")
    until(choosing.has_said)


def test_an_interrupt_ends_a_place(colleagues: list[Stranger]) -> None:
    _, first, second, *_ = colleagues
    code = """if True:
        try:
            gpu_magic.choose("auto", wait="10m")
        except KeyboardInterrupt:
            pass
    """
    first.begin(code)
    until(lambda: who() == [first.pid])
    begin(second)
    os.kill(first.pid, signal.SIGINT)
    first.said()
    assert who() == [second.pid]
