from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_magic.errors import ChoiceError
from gpu_magic.selection.request import Auto, Everything, Named, Nothing, Reset, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,3", Named((1, 3))),
        ("2,0", Named((2, 0))),
        ("0-2,5", Named((0, 1, 2, 5))),
        (" 1 , 3 ", Named((1, 3))),
        ("GPU-8f3a", Named(("GPU-8f3a",))),
        ("gpu-8F3A", Named(("GPU-8f3a",))),
        ("1,GPU-8f3a", Named((1, "GPU-8f3a"))),
        ("MIG-41b7", Named(("MIG-41b7",))),
        ("2:1", Named(("2:1",))),
        ("smi:2:1", Named(("2:1",))),
        ("02:01", Named(("2:1",))),
        ("MIG-GPU-8F3a-1/1/0", Named(("MIG-GPU-8f3a-1/1/0",))),
        ("mig-gpu-8f3a/2/0", Named(("MIG-GPU-8f3a/2/0",))),
        ("all", Everything()),
        ("ALL", Everything()),
        ("none", Nothing()),
        ("reset", Reset()),
        ("auto", Auto(1)),
        ("auto:2", Auto(2)),
        ("[3, 1]", Named((3, 1))),
        ("(3, 1)", Named((3, 1))),
        ("['GPU-8f3a', '1']", Named(("GPU-8f3a", 1))),
    ],
)
def test_what_is_typed_is_understood(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,1", "names 1 twice"),
        ("auot:2", "'auot:2' is not a GPU; try auto:2."),
        ("amd:auot:2", "try amd:auto:2."),
        ("free:2", "try auto:2."),
        ("any 2", "try auto:2."),
        ("2 free", "try auto:2."),
        ("2 gpus", "try auto:2."),
        ("gpus 1", "try 1."),
        ("gpu", "try auto."),
        ("auto;2", "try auto:2."),
        ("auto,2", "try auto:2."),
        ("auto-2", "try auto:2."),
        ("auto :2", "try auto:2."),
        ("auto:2 free", "'auto:2 free' has more than a number after the colon; try auto:2."),
        ("amd:auto:2,3", "'amd:auto:2,3' has more than a number after the colon; try amd:auto:2."),
        ("auto:two", "auto:2 picks two: free ones first, then those with the most free memory."),
        ("1 and 3", "try 1,3."),
        ("1, 2 and 3", "try 1, 2,3."),
        ("1 to 3", "try 1-3."),
        ("0 - 2", "try 0-2."),
        ("0-2,1", "try 0,1,2."),
        ("1,", "try 1."),
        (",", "comma"),
        ("-1", "numbered from 0"),
        ("auto:\nx", "needs a number"),
        ("auto0", "did you mean auto?"),
        ("2.0", "GPUs are separated by commas; try 2,0."),
        ("2,o", "'o' is a letter; try 0."),
        ("1-", "is a range without an end; try 1, or all."),
        ("v2", "'v2' is not a GPU; expected numbers"),
        ("p4d", "'p4d' is not a GPU; expected numbers"),
        ("L40S", "try auto --model L40S."),
        ("8xH100 80GB", "try auto:8 --model H100 80GB."),
        ("RTX4090", "try auto --model RTX4090."),
        ("amd:auto:\nx", "needs a number"),
        ("1;3", "try 1,3."),
        ("2:1 2:0", "try 2:1,2:0."),
        ("2:1,2:1", "names 2:1 twice"),
        ("2:1:0", "'2:1:0' has a colon too many; try 2, or 2:1 for its MIG instance 1."),
        ("0 print(1)", "'0 print(1)' is not a GPU; try 0."),
        ("auto(2)", "a colon goes before the number of GPUs; try auto:2."),
        ("x[1]", "'x[1]' is not a GPU; expected numbers"),
        ("\uff11\uff0c\uff12", "needs plain digits, commas and hyphens; try 1,2."),
        ("0\u20132", "needs plain digits, commas and hyphens; try 0-2."),
        ("\u0663", "try 3."),
        ("all but 3", "'all but 3': none can be left out of all; name those to use, as in 0-2."),
        ("all except 0", "as in 1."),
        ("all but 1", "as in 0."),
        ("every GPU except the last", "as in 1."),
        ("A100", "'A100' is not a GPU's number or UUID; by model, try auto --model A100."),
        ("2xRTX 4090", "by model, try auto:2 --model RTX 4090."),
        ("NVIDIA L4", "by model, try auto --model NVIDIA L4."),
        ("help", "'help' is not a GPU; %gpus? says what can be chosen."),
        ("list", "'list' is not a GPU; %gpus alone shows them."),
        ("3..1", "try 1-3."),
        ("foo,", "'foo' is not a GPU; expected numbers"),
        (",foo", "a comma with nothing beside it; try 1,3."),
        ("1,auto:x", "try auto:2."),
        ("99999:1", "no machine has that many"),
        ("1;1", "try 1."),
        ("1;two", "try 1,3."),
        ("0 -1", "is not a GPU"),
        ("/gpu:0", "framework's name"),
        ("gpu1", "try 1."),
        ("GPU 1", "try 1."),
        ("0..2", "try 0-2."),
        ("reste", "did you mean reset?"),
        ("first", "'first' is not a GPU; expected numbers"),
        ("{n}", "expected numbers"),
        ("free", "try auto."),
        ("best", "try auto."),
        ("auto 2", "'auto 2': a colon goes before the number of GPUs; try auto:2."),
        ("auto=2", "try auto:2."),
        ("cpu", "try none."),
        ("off", "try none."),
        ("", "No GPU is named"),
        ("1," * 9000, "too long"),
        ("auto:\x1b[31m", "auto:2 picks"),
        ("1 3", "try 1,3."),
        ("3-1", "try 1-3"),
        ("two", "expected numbers"),
        ("1,all", "can't be part of a list"),
        ("auto:0", "auto:2 picks"),
        ("auto:x", "auto:2 picks"),
        ("cuda:0", "framework's name"),
        ("0-99999999999999", "no machine has that many"),
        ("GPU-xyz", "expected numbers"),
        ("²", "expected numbers"),
        ("$(reboot)", "expected numbers"),
    ],
)
def test_what_is_not_understood_gets_one_line_that_helps(text: str, says: str) -> None:
    with pytest.raises(ChoiceError) as caught:
        parse(text)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


_PIECES = [
    "0",
    "1",
    "3",
    "12345",
    "auto",
    "all",
    "none",
    "but",
    "GPU",
    "gpu",
    "cuda",
    "A100",
    "print(1)",
    "x",
    "o",
]
_JOINTS = [" ", ",", ", ", ":", "-", ".", "..", ";", "(", ")", "[", "]", "\uff0c", "\u2013", "\uff11", ""]


@given(st.lists(st.sampled_from(_PIECES + _JOINTS), max_size=9).map("".join))
def test_what_is_suggested_works_when_it_is_typed(text: str) -> None:
    try:
        parse(text)
    except ChoiceError as error:
        said = re.search(
            r"(?:try|did you mean) ([^ ]+?)(?: --model [\w -]+)?(?:[.?]$|, | which| for)", str(error)
        )
        assert said or not re.search("try|did you mean", str(error))
        if said:
            parse(said[1])


@given(st.text(max_size=30))
def test_any_text_is_a_request_or_one_line(text: str) -> None:
    try:
        request = parse(text)
    except ChoiceError as error:
        assert str(error)
        assert "\n" not in str(error)
    else:
        assert isinstance(request, Named | Auto | Everything | Nothing | Reset)


@given(st.lists(st.integers(0, 63), min_size=1, max_size=20, unique=True))
def test_numbers_come_back_in_order(numbers: list[int]) -> None:
    assert parse(",".join(map(str, numbers))) == Named(tuple(numbers))
