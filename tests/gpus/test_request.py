from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.request import Auto, Named, Word, is_request, parse


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
        ("all", Word.ALL),
        ("ALL", Word.ALL),
        ("none", Word.NONE),
        ("reset", Word.RESET),
        ("auto", Auto(1)),
        ("auto:2", Auto(2)),
        ("[3, 1]", Named((3, 1))),
        ("(3, 1)", Named((3, 1))),
        ("['GPU-8f3a', '1']", Named(("GPU-8f3a", 1))),
        ("1,3\n", Named((1, 3))),
        ("[1,\n 3]\n", Named((1, 3))),
        ("0000000012", Named((12,))),
        ("auto:" + "0" * 5000 + "2", Auto(2)),
    ],
)
def test_what_is_typed_is_understood(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "No GPU is named"),
        ("1," * 9000, "too long"),
        ("1,1", "names 1 twice"),
        ("0-2,1", "names 1 twice, which CUDA reads as no GPU. Try 0,1,2"),
        ("2:1,2:1", "names 2:1 twice"),
        ("auto:0", "is not auto with a number of GPUs. Try auto:2"),
        ("auto:\x1b[31m", "Try auto:2"),
        ("auto:2 free", "Try auto:2"),
        ("auto 2", "'auto 2': a colon goes before the number of GPUs. Try auto:2"),
        ("auto4", "Try auto:4"),
        ("auto=2", "Try auto:2"),
        ("1 3", "separate GPUs by commas. Try 1,3"),
        ("0;2", "separate GPUs by commas. Try 0,2"),
        ("0 0 2", "separate GPUs by commas. Try 0,2"),
        ("1 and 3", "Expected"),
        ("2.0", "separate GPUs by commas"),
        ("1,", "A comma has no GPU beside it. Try 1"),
        ("-1", "numbered from 0. To hide all GPUs: none"),
        ("0..2", "'0..2': a range has a hyphen. Try 0-2"),
        ("0 to 2", "Try 0-2"),
        ("3..1", "Try 1-3 or 3,2,1"),
        ("auot:x", "Try auto:2"),
        ("0 - 2", "'0 - 2': a range has a hyphen. Try 0-2"),
        ("7 0..3", "separate GPUs by commas. Try 7,0-3"),
        ("4 0 - 2;6", "Try 4,0-2,6"),
        ("7 0..3 2", "Try 7,0,1,2,3"),
        ("0,1..3", "'1..3': a range has a hyphen. Try 0,1-3"),
        ("0..3,5", "'0..3': a range has a hyphen. Try 0-3,5"),
        ("0..3,2", "'0..3': a range has a hyphen. Try 0,1,2,3"),
        ("0..2,gpu5", "'0..2': a range has a hyphen. Try 0-2,5"),
        ("gpu0, gpu1", "'gpu0': type the number alone. Try 0,1"),
        ("7,3-1", "'3-1' runs backwards. Try 7,1-3 or 7,3,2,1"),
        ("3-1,7..5", "'3-1' runs backwards. Try 1-3,5-7 or 3,2,1,7,6,5"),
        ("1..3,", "A comma has no GPU beside it. Try 1-3"),
        ("0..2,all", "'all' cannot be part of a list. Try all"),
        ("0..2,there", "'there' is not a GPU. Expected numbers"),
        ("3-1", "runs backwards. Try 1-3"),
        ("0-99999999999999", "No machine has that many"),
        ("99999:1", "No machine has that many"),
        ("cuda:0", "framework's name"),
        ("/gpu:0", "framework's name"),
        ("amd:2:1", "'amd:2:1' is not a GPU"),
        ("0" * 5000 + "99999", "No machine has that many"),
        ("1,all", "cannot be part of a list. Try all"),
        ("1,none", "cannot be part of a list. Try none"),
        ("1,auto:x", "cannot be part of a list. Try auto:2"),
        ("reste", "Try reset"),
        ("auot", "Try auto"),
        ("A100", "'A100' is not a GPU. Expected numbers, "),
        ("gpu0", "'gpu0': type the number alone. Try 0"),
        ("GPU 1", "'GPU 1': type the number alone. Try 1"),
        ("A100", "auto --model NAME"),
        ("GPU-xyz", "Expected numbers"),
        ("\uff11", "Expected numbers"),
        ("{n}", "Expected numbers"),
        ("$(reboot)", "Expected numbers"),
    ],
)
def test_what_is_not_understood_gets_one_line_that_helps(text: str, says: str) -> None:
    with pytest.raises(ChoiceError) as caught:
        parse(text)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


@given(st.text(max_size=30))
def test_any_text_is_a_request_or_one_line(text: str) -> None:
    try:
        request = parse(text)
    except ChoiceError as error:
        assert str(error)
        assert "\n" not in str(error)
    else:
        assert isinstance(request, Named | Auto | Word)


@given(
    st.lists(
        st.sampled_from(["0", "1", "37", ",", "..", "-", " ", "to", "auto", "all", "gpu", ":", ";"])
    ).map("".join)
)
def test_each_suggestion_is_a_request(text: str) -> None:
    try:
        parse(text)
    except ChoiceError as error:
        assert all(map(is_request, error.ways))


@given(st.lists(st.integers(0, 63), min_size=1, max_size=20, unique=True))
def test_numbers_come_back_in_order(numbers: list[int]) -> None:
    assert parse(",".join(map(str, numbers))) == Named(tuple(numbers))
