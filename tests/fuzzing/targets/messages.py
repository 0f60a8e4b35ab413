"""What a page of the panel sends: any JSON, and requests in it that are typed by nobody."""

from __future__ import annotations

import json
from contextlib import suppress

from jupyter_client.session import json_packer

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.options import plan_memory, split_request
from gpu_magic.gpus.request import parse as parse_request
from gpu_magic.gpus.select import select
from gpu_magic.panel.messages import NotUnderstoodError, read
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.testing import simulate
from tests.fuzzing.target import Target, check_refusal, text_of

__all__ = ["TARGETS"]

with simulate("4xA100-80GB"):
    _SNAPSHOT = Snapshot.take(current())


def check_message(data: bytes) -> None:
    """Check a message: it is understood as it stands, or not at all, and what it asks for is there."""
    message = None
    with suppress(ValueError, RecursionError):  # of what is no JSON Jupyter says so
        message = json.loads(text_of(data))
    try:
        kind, values = read(message)
    except NotUnderstoodError:
        return
    assert isinstance(message, dict)
    assert message["type"] == kind
    for name, value in values.items():
        assert message[name] == value, f"{name} is not what was sent"
        assert name not in ("page", "view") or len(value) <= 64, "a name that fills the memory of the kernel"
        assert type(value) is not int or abs(value) < 1 << 53, "no number of JavaScript's"
    # What the kernel repeats to all pages has to be something that it can send.
    json.loads(json_packer(values))
    if "request" in values:
        _check_request(values["request"])


def _check_request(request: str) -> None:
    """Check a request as the panel does: what is chosen by clicking is there."""
    try:
        devices, options = split_request(request)
    except ChoiceError as error:
        check_refusal(error)
        return
    assert request.startswith(devices)
    assert split_request(f"{devices}{options}") == (devices, options), "it is not shown as it was sent"
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
    {"type": "look", "view": "v", "visibility": "watched", "open": ["0", "1"]},
    {"type": "choose", "request": "none", "restart": False, "page": "p"},
    {"type": "choose", "request": "3,1 --growth --memory-limit 8GB", "restart": True, "page": "p"},
    {"type": "wait", "request": "GPU-1"},
    {"type": "answer_restart", "page": "p", "can": True},
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
