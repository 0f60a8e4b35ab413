"""What a page of the panel sends: any JSON, and requests in it that are typed by nobody."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import get_args

from jupyter_client.session import json_packer

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.options import plan_memory, split_request
from gpu_magic.gpus.request import parse as parse_request
from gpu_magic.gpus.select import select
from gpu_magic.process.session import current
from gpu_magic.process.view import take_snapshot
from gpu_magic.testing import simulate
from gpu_magic.widget.kernel_messages import Draft, to_json
from gpu_magic.widget.page_messages import PageMessage, SetDraft, parse
from gpu_magic.widget.pending import PendingChoice
from tests.fuzzing.target import Target, check_refusal, text_of

__all__ = ["TARGETS"]

_NAMES = {
    "SetVisibility": "set_visibility",
    "SetDraft": "set_draft",
    "AnswerRestart": "answer_restart",
    "SetDetails": "set_details",
    "EndProcess": "end_process",
    "StopWaiting": "stop_waiting",
}

with simulate("4xA100-80GB"):
    _SNAPSHOT = take_snapshot(current())


def check_message(data: bytes) -> None:
    """Check a message: it is understood as it stands, or not at all, and what it asks for is there."""
    message = None
    with suppress(ValueError, RecursionError):  # of what is no JSON Jupyter says so
        message = json.loads(text_of(data))
    found = parse(message)
    if found is None:
        return
    assert isinstance(found, get_args(PageMessage))
    assert isinstance(message, dict)
    name = type(found).__name__
    assert message["type"] == _NAMES.get(name, name.lower())
    for field, value in found._asdict().items():
        given = message[field]
        assert value == (tuple(given) if isinstance(given, list) else given), f"{field} is not what was sent"
    for name in ("page", "view", "key"):
        assert len(getattr(found, name, "")) <= 64, "a name that fills the memory of the kernel"
    # What the kernel repeats to all pages has to be something that it can send.
    sent = to_json(_draft_of(found)) if isinstance(found, SetDraft) else list(found)
    json.loads(json_packer(sent))
    for value in found:
        assert type(value) is not int or abs(value) < 1 << 53, "no number of JavaScript's"
    if isinstance(request := getattr(found, "request", None), str):
        _check_request(request)


def _draft_of(click: SetDraft) -> Draft:
    """Return the draft with which the kernel answers a click."""
    pending = PendingChoice()
    assert pending.knows_latest(click) or click.number < 0
    pending.note(click)
    pending.change(click.request, click.page)
    return Draft(*pending.now, click.page, 0)


def _check_request(request: str) -> None:
    """Check a request as the panel does: what is chosen by clicking is there."""
    devices, options = split_request(request)
    assert request.startswith(devices)
    assert f"{devices}{options}" == request, "it is not shown as it was sent"
    if not devices:
        return
    try:
        found = select(parse_request(devices), _SNAPSHOT, (None,) * 4).devices
        if found is not UNKNOWN:
            plan_memory(found, growth=options.growth, limit=options.memory_limit)
            assert set(found) <= set(_SNAPSHOT.devices)
    except ChoiceError as error:
        check_refusal(error)


_SEEDS = (
    {"type": "set_visibility", "view": "v", "visibility": "watched", "version": 3},
    {"type": "set_draft", "request": "3,1 --growth --memory-limit 8GB", "page": "p", "click": 1, "number": 2},
    {"type": "choose", "request": "none", "restart": False, "page": "p"},
    {"type": "wait", "request": "GPU-1"},
    {"type": "answer_restart", "page": "p", "can": True},
    {"type": "set_details", "view": "v", "keys": ["0", "1"]},
    {"type": "end_process", "pid": 4711, "started": 12, "kill": False},
    {"type": "free"},
    {"type": "attach", "page": "p"},
)

TARGETS = (
    Target(
        "messages",
        check_message,
        "what pages of the panel send",
        tuple(
            dict.fromkeys(
                [
                    *(json.dumps(part) for seed in _SEEDS for pair in seed.items() for part in pair),
                    *"stop_waiting unwatched hidden true false null NaN 1e999 -1 [] {} auto:2 reset all".split(),
                    *"--growth --memory-limit GiB 0-3".split(),
                ]
            )
        ),
        tuple(map(json.dumps, _SEEDS)),
    ),
)
