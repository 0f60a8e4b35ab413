"""The messages between page and kernel: both sides have the same, and nothing else is understood."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_magic
from gpu_magic.gpus.options import split_request
from gpu_magic.panel import script as panel_script
from gpu_magic.panel.messages import CHECKS, NotUnderstoodError, read
from gpu_magic.testing import simulate
from tests.inputs import LISTS, OPTIONS, check_refusal

MESSAGES: list[dict[str, Any]] = [
    {"type": "look", "view": "v", "visibility": "watched", "open": ["3", "MIG-41b7"]},
    {"type": "choose", "request": "3,1 --growth", "restart": False, "page": "p"},
    {"type": "wait", "request": "3,1"},
    {"type": "stop_waiting"},
    {"type": "answer_restart", "page": "p", "can": True},
    {"type": "end_process", "pid": 4242, "started": 17, "kill": False},
    {"type": "free"},
    {"type": "attach", "page": "p"},
    {"type": "look", "view": "v", "visibility": "hidden", "open": None},  # of a chip
]
LOOK, CHOOSE, END = MESSAGES[0], MESSAGES[1], MESSAGES[5]


def is_refused(message: object) -> bool:
    with pytest.raises(NotUnderstoodError):
        read(message)
    return True


@pytest.mark.parametrize("message", MESSAGES)
def test_what_a_page_sends_is_understood_whole_and_not_in_part(message: dict[str, Any]) -> None:
    kind, values = read(message)
    assert {"type": kind, **values} == message
    for name in message:
        assert is_refused({key: value for key, value in message.items() if key != name})
        for value in ([1], {}, 1.5):
            assert is_refused({**message, name: value})


@pytest.mark.parametrize(
    "message",
    [
        END | {"pid": True},
        END | {"pid": 0},
        END | {"pid": 1 << 31},
        END | {"started": -1},
        END | {"started": None},
        END | {"started": 1 << 53},  # no number of JavaScript's
        END | {"kill": 1},
        LOOK | {"view": ""},
        LOOK | {"view": "v" * 65},
        LOOK | {"visibility": "yes"},
        LOOK | {"open": "3"},
        LOOK | {"open": ["3", 3]},
        LOOK | {"open": [""]},
        LOOK | {"open": ["3"] * 257},
        CHOOSE | {"request": None},
        CHOOSE | {"request": "\ud800"},
        CHOOSE | {"restart": "no"},
        CHOOSE | {"page": 3},
        CHOOSE | {"page": "\ud800"},  # valid JSON that Jupyter cannot write, and all pages get it
        CHOOSE | {"page": "p" * 65},
    ],
    ids=repr,
)
def test_what_no_page_would_send_is_refused(message: dict[str, Any]) -> None:
    assert is_refused(message)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.sampled_from(MESSAGES), st.data())
def test_any_json_is_a_message_or_refused(message: dict[str, Any], data: st.DataObject) -> None:
    fields = {name: data.draw(JSON) for name in sorted(message.keys() - {"type"})}
    with suppress(NotUnderstoodError):
        assert read({"type": message["type"], **fields}) == (message["type"], fields)


def test_the_scripts_send_what_is_understood() -> None:
    script = panel_script()
    sent = re.findall(r'\b(?:send|ask)\("(\w+)"(?:, \{([^}]*)\})?', script)
    sent += re.findall(r'\{ type: "(attach)", (\w+) \}', script)
    names = {
        kind: {part.split(":")[0].strip() for part in fields.split(",") if part} for kind, fields in sent
    }
    assert {kind: fields for kind, fields in names.items() if fields or kind in CHECKS} == {
        kind: set(checks) for kind, checks in CHECKS.items()
    }


@given(LISTS, st.lists(OPTIONS, max_size=2))
def test_a_request_from_a_page_is_shown_as_it_was_sent_and_is_there(devices: str, options: list[str]) -> None:
    request = "".join(" ".join([devices, *options]).split("\udc80"))
    try:
        named, more = split_request(read(CHOOSE | {"request": request})[1]["request"])
        # An option that is sent twice is there once, and each has its place.
        assert sorted(set(f"{named}{more}".split())) == sorted(set(request.split()))
        if not named:
            return
        with simulate("4xA100-80GB", clock=0):
            choice = gpu_magic.choose(named, growth=more.growth, memory_limit=more.memory_limit)
            assert set(choice.devices) <= set(gpu_magic.gpus().devices)
    except NotUnderstoodError:
        return
    except gpu_magic.ChoiceError as error:
        check_refusal(error)
