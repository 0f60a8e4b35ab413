"""The messages between page and kernel: both sides have the same, and nothing else is understood."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_magic.widget import joined
from gpu_magic.widget.kernel_messages import KernelMessage
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
from gpu_magic.widget.page_state import Figures

MESSAGES: list[tuple[dict[str, Any], Any]] = [
    (
        {"type": "set_visibility", "view": "v", "visibility": "watched", "version": 3},
        SetVisibility("v", "watched", 3),
    ),
    (
        {"type": "set_draft", "request": "3,1", "page": "p", "click": 2, "number": 5},
        SetDraft("3,1", "p", 2, 5),
    ),
    ({"type": "set_draft", "request": None, "page": "p", "click": 2, "number": 5}, SetDraft(None, "p", 2, 5)),
    ({"type": "choose", "request": "3,1", "restart": False, "page": "p"}, Choose("3,1", False, "p")),
    ({"type": "wait", "request": "3,1"}, Wait("3,1")),
    ({"type": "stop_waiting"}, StopWaiting()),
    ({"type": "answer_restart", "page": "p", "can": True}, AnswerRestart("p", True)),
    ({"type": "set_details", "view": "v", "keys": ["3", "MIG-41b7"]}, SetDetails("v", ("3", "MIG-41b7"))),
    (
        {"type": "end_process", "pid": 4242, "started": 17, "kill": False},
        EndProcess(4242, 17, False),
    ),
    ({"type": "free"}, Free()),
    ({"type": "attach", "page": "p"}, Attach("p")),
]


@pytest.mark.parametrize(("message", "parsed"), MESSAGES)
def test_what_a_page_sends_is_parsed(message: dict[str, Any], parsed: object) -> None:
    assert parse(message) == parsed


@pytest.mark.parametrize("message", [message for message, _ in MESSAGES])
def test_a_message_that_lacks_a_field_is_refused(message: dict[str, Any]) -> None:
    for name in message:
        assert parse({key: value for key, value in message.items() if key != name}) is None


@pytest.mark.parametrize("message", [message for message, _ in MESSAGES])
@pytest.mark.parametrize("value", [[1], {}, 1.5])
def test_a_field_of_another_type_is_refused(message: dict[str, Any], value: object) -> None:
    for name in message:
        assert parse({**message, name: value}) is None


END = {"type": "end_process", "pid": 4242, "started": 17, "kill": False}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@pytest.mark.parametrize(
    "message",
    [
        END | {"pid": True},
        END | {"pid": 0},
        END | {"pid": -1},
        END | {"pid": 1 << 31},
        END | {"started": True},
        END | {"started": None},
        END | {"kill": 1},
        {"type": "set_details", "view": "", "keys": []},
        {"type": "set_details", "view": "v", "keys": "3"},
        {"type": "set_details", "view": "v", "keys": ["3", 3]},
        {"type": "set_details", "view": "v", "keys": [""]},
        {"type": "set_details", "view": "v", "keys": ["3"] * 257},
    ],
)
def test_what_no_page_would_send_is_refused(message: dict[str, Any]) -> None:
    assert parse(message) is None


@given(
    st.fixed_dictionaries({"type": st.sampled_from([message["type"] for message, _ in MESSAGES])}), st.data()
)
def test_any_json_is_a_message_or_refused(message: dict[str, Any], data: st.DataObject) -> None:
    fields = next(set(known) for known, _ in MESSAGES if known["type"] == message["type"]) - {"type"}
    parsed = parse(message | {name: data.draw(JSON) for name in sorted(fields)})
    if isinstance(parsed, EndProcess):
        assert type(parsed.pid) is type(parsed.started) is int
        assert type(parsed.kill) is bool


def test_the_script_sends_what_is_parsed() -> None:
    script = joined("protocol.js", "connection.js")
    sent = re.findall(r'\(\{ type: "(\w+)"(?:, ([\w, ]+))? \}\)', script)
    expected = {message["type"]: set(message) - {"type"} for message, _ in MESSAGES}
    assert {name: set(filter(None, fields.split(", "))) for name, fields in sent} == expected


def test_the_script_lists_what_the_kernel_sends() -> None:
    listed = re.findall(r"^//   (\w+) +\{([\w, ]*)\}", joined("protocol.js"), re.MULTILINE)
    types = {kind: kind.__name__.lower() for kind in get_args(KernelMessage)}
    assert {name: tuple(filter(None, fields.split(", "))) for name, fields in listed} == {
        name: kind._fields for kind, name in types.items()
    }


def test_the_store_knows_each_message_of_the_kernel() -> None:
    known = set(re.findall(r'(?:case|message\.type ===) "(\w+)"', joined("store.js", "connection.js")))
    assert known == {kind.__name__.lower() for kind in get_args(KernelMessage)}


def test_figures_have_one_order() -> None:
    names = re.search(r"unpackFigures\(\[([\w, ]+)\]\)", joined("protocol.js"))
    assert names is not None
    snake = re.sub(r"([A-Z])", r"_\1", names.group(1)).lower().split(", ")
    assert tuple(snake) == Figures._fields
