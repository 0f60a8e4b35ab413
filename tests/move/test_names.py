"""What is said of names that are not there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpu_magic.errors import PlacementError
from gpu_magic.move.names import Names

HERE = {"state": SimpleNamespace(weight=1.0, _hidden=1), "batch": {"x": 1.0}}


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("state.weigth", "object has no attribute 'weigth'; did you mean weight?"),
        ("state.hidden", "object has no attribute 'hidden'"),
        ("state.other", "object has no attribute 'other'"),
        (
            "state.weight.rael",
            "state.weight.rael raises AttributeError: 'float' object has no attribute 'rael'; did you mean real?",
        ),
        ("batch['y']", "batch['y'] raises KeyError: 'y'"),
        ("stat.weight", "stat is not a variable here; did you mean state?"),
    ],
)
def test_the_nearest_attribute_is_named(typed: str, says: str) -> None:
    with pytest.raises(PlacementError) as caught:
        Names(dict(HERE), ()).read(typed)
    assert str(caught.value).endswith(says)


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("(state.weight, batch['x'])", ["state.weight", "batch['x']"]),
        ("[ batch, state.weight ]", ["batch", "state.weight"]),
        ("'batch'", ["batch"]),
        ("batch state.weight;", ["batch", "state.weight"]),
        ("rows['a,  b']", ["rows['a,  b']"]),
        ("rows['it\\'s'], batch", ["rows['it\\'s']", "batch"]),
        ("rows['''\"a' b''']", ["rows['''\"a' b''']"]),
        ("[state, batch][0]", ["[state, batch][0]"]),
        ("(state).weight, (batch)", ["(state).weight", "(batch)"]),
        ("(rows)['[a']  (state).weight", ["(rows)['[a']", "(state).weight"]),
    ],
)
def test_names_are_divided_where_python_would(typed: str, names: list[str]) -> None:
    rows = {"a,  b": 1.0, "it's": 2.0, "\"a' b": 3.0, "[a": 4.0}
    assert list(Names({**HERE, "rows": rows}, ()).read(typed)) == names


def test_an_object_that_can_not_list_its_attributes_is_no_obstacle() -> None:
    class Odd:
        def __dir__(self) -> list[str]:
            raise RuntimeError

    with pytest.raises(PlacementError, match=r"object has no attribute 'x'$"):
        Names({"odd": Odd()}, ()).read("odd.x")
