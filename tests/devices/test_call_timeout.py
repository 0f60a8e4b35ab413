"""Calls that may never return."""

from __future__ import annotations

import _thread
import threading

import pytest

from gpu_magic.devices.call_timeout import CallTimeout


def test_after_an_interrupt_a_call_that_hangs_is_known_and_one_that_never_began_is_made() -> None:
    timeout, gate = CallTimeout(60.0), threading.Event()

    def hang() -> bool:
        _thread.interrupt_main()
        return gate.wait()

    with pytest.raises(KeyboardInterrupt):
        timeout.call([("hangs", hang), ("waits", bool)])
    assert timeout.hangs("hangs")
    assert not timeout.hangs("waits")
    assert timeout.call([("hangs", lambda: True), ("waits", lambda: True)]) == [None, True]
    gate.set()
    timeout.close()
