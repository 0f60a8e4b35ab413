"""Does what a page asks for, whichever way its message has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.errors import GpuMagicError
from gpu_magic.restart import restart
from gpu_magic.widget.page_messages import (
    AnswerRestart,
    Attach,
    Choose,
    EndProcess,
    Free,
    SetDetails,
    SetDraft,
    SetVisibility,
    StopWaiting,
    Wait,
    parse,
)

if TYPE_CHECKING:
    from gpu_magic.widget.state import PanelState
    from gpu_magic.widget.viewers import Viewer

__all__ = ["NOT_UNDERSTOOD", "answer"]

NOT_UNDERSTOOD = "The page sent a message that is not understood; nothing was changed."


def answer(state: PanelState, viewer: Viewer, message: object) -> None:
    """Do what a page of a viewer asks for, or say there why not. The message can be anything."""
    try:
        _do(state, viewer, message)
    except GpuMagicError as error:
        state.refuse(viewer, str(error))


def _do(state: PanelState, viewer: Viewer, message: object) -> None:
    match parse(message):
        case SetVisibility() as visibility:
            state.set_visibility(viewer, visibility)
        case SetDraft() as draft:
            state.choices.set_draft(viewer, draft)
        case StopWaiting():
            state.choices.waits.stop()
        case AnswerRestart(page, can):
            restart.answer(page, can=can)
        case SetDetails() as details:
            state.details.set_open(viewer, details)
        case None | Attach():
            state.refuse(viewer, NOT_UNDERSTOOD)
        case wanted:
            state.check_loaded()
            _do_while_loaded(state, viewer, wanted)


def _do_while_loaded(state: PanelState, viewer: Viewer, wanted: Choose | Wait | EndProcess | Free) -> None:
    match wanted:
        case Choose():
            state.choices.choose(viewer, wanted)
        case Wait():
            state.choices.wait(viewer, wanted)
        case EndProcess():
            state.details.end(wanted)
        case Free():
            state.details.free()
