"""Ports at which the ranks of a job can meet."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["free_ports"]


def free_ports(count: int) -> Sequence[int]:
    """Return ports of this host that nobody listens on now, and that its kernel gives to no socket by itself.

    The kernel gives out those of a range (ip(7), `ip_local_port_range`), and others take dozens of them: one
    could be in their hands before a rank listens there.
    """
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        first, last = map(int, text.split())
    except (OSError, ValueError):
        first, last = 32768, 60999  # Linux's own
    others = [*range(20000, first), *range(last + 1, 1 << 16)]  # below 20000 are many servers' own ports
    # Not with the user's random numbers: after the same seed, two notebooks would have the same ports.
    some = SystemRandom().sample(others, min(len(others), 20 * count))
    with ExitStack() as open_sockets:
        found: list[int] = []
        for port in (*some, *[0] * count):  # 0: one that the kernel gives, where it gives out all
            if len(found) < count:
                one = open_sockets.enter_context(socket.socket())
                with suppress(OSError):
                    one.bind(("", port))
                    found.append(one.getsockname()[1])
        return found
