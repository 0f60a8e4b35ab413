"""The one thread: that it begins, ends, and is one."""

from __future__ import annotations

import os
import signal
import threading
import time

from gpu_magic.measure.sampler import Sampler
from tests.conftest import LIMIT


def threads() -> int:
    return sum(thread.name == "gpu_magic-panel" for thread in threading.enumerate())


def wait_for(count: int) -> bool:
    deadline = time.monotonic() + LIMIT
    while threads() != count and time.monotonic() < deadline:
        time.sleep(0.01)
    return threads() == count


def test_it_ends_when_nobody_is_there_to_be_called_for() -> None:
    calls: list[int] = []
    counted = threading.Event()

    def tick() -> bool:
        counted.wait(LIMIT)
        calls.append(1)
        return len(calls) < 3

    sampler = Sampler(tick, 0.01)
    sampler.start()
    sampler.start()
    assert threads() == 1
    counted.set()
    assert wait_for(0)
    assert len(calls) == 3
    sampler.start()  # and again
    assert wait_for(0)
    assert len(calls) == 4


def test_stop_waits_for_the_call_that_is_under_way_and_not_for_ever() -> None:
    begun, hang = threading.Event(), threading.Event()

    def tick() -> bool:
        begun.set()
        hang.wait(LIMIT)
        return True

    sampler = Sampler(tick, 0.01)
    sampler.start()
    assert begun.wait(LIMIT)
    sampler.stop()
    assert not sampler.is_running
    sampler.start()  # a new one, while the old one hangs
    assert sampler.is_running
    hang.set()
    assert wait_for(1)
    sampler.stop()
    assert wait_for(0)


def test_a_poke_is_a_call_at_once() -> None:
    called = threading.Event()

    def tick() -> bool:
        called.set()
        return True

    sampler = Sampler(tick, LIMIT)
    sampler.start()
    assert not called.wait(0.05)
    sampler.poke()
    assert called.wait(LIMIT)
    sampler.stop()
    assert wait_for(0)


def test_a_call_can_be_wanted_sooner() -> None:
    called = threading.Event()

    def tick() -> bool:
        called.set()
        return True

    sampler = Sampler(tick, LIMIT)
    for before in (None, LIMIT):  # of one that does not run, and of one that waits
        sampler.start(before)
        sampler.start(0.01)
        assert called.wait(LIMIT / 2)
        called.clear()
    sampler.start(0.01)
    sampler.start(LIMIT)  # not later than before
    assert called.wait(LIMIT / 2)
    sampler.stop()
    assert wait_for(0)


def test_a_fork_has_no_thread_and_can_have_one() -> None:
    sampler = Sampler(lambda: True, 0.01)
    sampler.start()
    sampler._lock.acquire()  # as the thread can have it at any moment
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # a child that hangs keeps what others wait for the end of
        was = sampler.is_running
        sampler.stop()
        os._exit(int(was))
    sampler._lock.release()
    assert os.waitpid(child, 0)[1] == 0
    sampler.stop()
    assert wait_for(0)
