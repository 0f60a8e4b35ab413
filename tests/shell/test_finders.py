"""What gpu_magic has in `sys.meta_path`, where threads add and remove it at once."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.frameworks.post_import import PostImportHook
from gpu_magic.process.watch import Watch
from tests.programs.threads import at_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

MANY = 500


@pytest.fixture(autouse=True)
def threads_that_switch_often() -> Iterator[None]:
    before, interval = sys.meta_path, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    sys.meta_path = before


def attached(finders: list[Any]) -> int:
    return sum(one in sys.meta_path for one in finders)


def attaches_and_detaches(wait: Any) -> list[int]:
    """Return how many hooks are attached after all were attached, and after all were detached."""
    hooks = [PostImportHook([], lambda _: None) for _ in range(MANY)]
    wait()
    for one in hooks:
        one.attach()
    wait()
    found = [attached(hooks)]
    wait()
    for one in hooks:
        one.detach()
    wait()
    return [*found, attached(hooks)]


def test_hooks_of_two_threads() -> None:
    before = list(sys.meta_path)
    assert at_once([attaches_and_detaches], here=[attaches_and_detaches]) == [[MANY, 0]] * 2
    assert sys.meta_path == before


def test_the_watch_beside_the_hooks_of_a_thread(shell: InteractiveShell) -> None:
    before, watch, is_over = list(sys.meta_path), Watch(), threading.Event()

    def attaches(wait: Any) -> int:
        hook = PostImportHook([], lambda _: None)
        wait()
        while not is_over.is_set():
            hook.attach()
            hook.detach()
        return attached([hook])

    def watches(wait: Any) -> int:
        wait()
        left = 0
        for _ in range(MANY):
            watch.begin(shell)
            watch.end()
            left += attached([watch])
        is_over.set()
        return left

    assert at_once([attaches], here=[watches]) == [0, 0]
    assert sys.meta_path == before
