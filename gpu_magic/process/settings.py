"""What this process has set in frameworks: made when it is first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.frameworks.settings import FrameworkSettings

if TYPE_CHECKING:
    from gpu_magic.process.session import Session

__all__ = ["settings_of"]


def settings_of(session: Session) -> FrameworkSettings:
    """Return what a process has set in frameworks."""
    if session.settings is None:
        session.settings = FrameworkSettings()
    return session.settings
