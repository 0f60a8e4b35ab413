"""The session of this process."""

from __future__ import annotations

import sys
import threading

from gpu_magic.process.session import current, use_session


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
