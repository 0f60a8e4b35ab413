"""What programs are told when something is refused. Nothing here has a framework in hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_magic import ChoiceError, PlacementError

if TYPE_CHECKING:
    from collections.abc import Callable


def placement_error(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Return the message of the PlacementError that a call raises; None where it raises nothing."""
    try:
        call(*args, **kwargs)
    except PlacementError as error:
        return str(error)
    return None


def choice_error(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Return the message of the ChoiceError that a call raises; None where it raises nothing."""
    try:
        call(*args, **kwargs)
    except ChoiceError as error:
        return str(error)
    return None
