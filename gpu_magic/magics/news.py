"""Says before a cell runs what others have asked, or answered, since the last one."""

from __future__ import annotations

import contextlib

from gpu_magic.display.notes import news_lines
from gpu_magic.errors import GpuMagicError
from gpu_magic.process.news import note_told, read_news
from gpu_magic.process.session import current

__all__ = ["say_news"]


def say_news() -> None:
    """Print it, where there is something."""
    with contextlib.suppress(GpuMagicError):  # a simulation that is described wrongly: %gpus says so
        session = current()
        news = read_news(session)
        for line in news_lines(news):
            print(line)
        note_told(session, "cell", news)  # after an interrupt it is told again
