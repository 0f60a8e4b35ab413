"""The session of this process."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from gpu_magic.process.session import current, use_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Cell


@pytest.mark.usefixtures("machine")
def test_an_unload_gives_back_what_other_code_has_set_last(
    typed: Callable[[str], Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    typed("%gpus 1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    typed("%gpus 2")
    assert "CUDA_VISIBLE_DEVICES is '3' again" in typed("%unload_ext gpu_magic").text
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def test_threads_at_the_first_call_get_one_session() -> None:
    """A second one would lose its claims, with the object."""
    before, interval = use_session(None), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(300):
            use_session(None)
            found, barrier = [], threading.Barrier(4)

            def first(found: list[object] = found, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                session = current()
                found.append((session, session.reader, session.settings))

            threads = [threading.Thread(target=first) for _ in range(4)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            assert len(set(found)) == 1
    finally:
        sys.setswitchinterval(interval)
        use_session(before)
