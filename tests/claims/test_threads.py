"""Threads of one process that claim, and look at claims, in the same moment."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.claims.folder import Access
from gpu_magic.claims.held import Claims
from gpu_magic.process.session import current
from tests.claims.holders import GPU, OTHER, stranger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Fresh

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Let threads change after every few steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*tasks: Callable[[], object]) -> None:
    """Run functions at once, each in a thread; raise the first error."""
    errors: list[BaseException] = []

    def run(task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if errors:
        raise errors[0]


def test_threads_that_choose_leave_no_claim_that_nobody_can_end(folder: Path) -> None:
    ours = Claims()
    before = len(list(Path("/proc/self/fd").iterdir()))

    def choose() -> None:
        for wanted in [[GPU], [GPU, OTHER], [OTHER], []] * 50:
            ours.hold(wanted)
            ours.publish_activity()

    together(*[choose] * 4)
    ours.hold([GPU])
    with stranger() as one:
        assert one.sees() == [GPU]
    assert len(list(folder.iterdir())) == 1
    ours.release()
    assert not list(folder.iterdir())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_threads_that_choose_leave_the_variables_of_what_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "2xA100-80GB clock=0")
    uuids = [str(gpu.uuid) for gpu in gpu_magic.gpus()]
    for _ in range(200):
        together(*[lambda number=number: gpu_magic.choose(number) for number in "0101"])
        assert current().claims.held == {uuids[int(os.environ["CUDA_VISIBLE_DEVICES"])]}
    current().unload()


def test_commands_can_be_launched_while_others_look_at_claims() -> None:
    access = Access()
    ours, there = Claims(access=access), [Claims("sleep", access) for _ in range(200)]
    launches = threading.Semaphore(0)

    def look() -> None:
        try:
            for _ in range(200):
                launches.release(10)
                ours.of_commands()
        finally:
            launches.release(1000)

    def launch() -> None:
        for _ in range(1000):
            launches.acquire()
            there.append(Claims("sleep", access))

    together(look, launch)


def test_a_child_that_is_forked_while_a_thread_claims_can_claim(fresh: Fresh) -> None:
    """The thread does not go on in the child."""
    code = f"""
        import os, sys, threading
        from gpu_magic.claims.held import Claims
        claims, goes_on = threading.Event(), threading.Event()
        def wait(event, about):
            if event == "fcntl.lockf" and threading.current_thread() is not threading.main_thread():
                claims.set()
                goes_on.wait()
        sys.addaudithook(wait)
        thread = threading.Thread(target=Claims().hold, args=([{GPU!r}],))
        thread.start()
        claims.wait()
        if child := os.fork():
            os.waitpid(child, 0)
            goes_on.set()
            thread.join()
        else:
            print(Claims().hold([{OTHER!r}]), flush=True)
            os._exit(0)
    """
    assert fresh(code) == "\n"
