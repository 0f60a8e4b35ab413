"""What is said of the GPUs that a command or engines get: that none was chosen, and who else uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.display.choice import others_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_magic.devices.model import Device

__all__ = ["gpu_notes"]


def gpu_notes(devices: Sequence[Device], instead: str, *, is_chosen: bool) -> Iterator[str]:
    """Yield a sentence where nobody has chosen these GPUs, and one for each other user.

    Parameters
    ----------
    devices
        Those that are used, as they were before.
    instead
        What uses others, as a clause.
    is_chosen
        Whether somebody has chosen them.

    """
    if not is_chosen and len(devices) > 1:
        yield f"No GPU was chosen here, so it has all {len(devices)}; {instead}."
    for device in devices:
        yield from others_on(device)
