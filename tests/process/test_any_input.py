"""The code of a cell can be any text: which import started CUDA is read from it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gpu_magic.process.watch import _only_imports_from
from tests.inputs import LONG, ODD


@given(
    st.lists(
        st.sampled_from(
            "import from torch as x ( [ { ' \" %%time !ls ?x in : lambda def result = \n".split(" ")
        )
        | ODD
    ).map(" ".join)
)
@example("word " * LONG)  # more than Python's parser has memory for
@example("-" * LONG + "1")
@example("[" * LONG)
@example("!ls -l\n- not python")
def test_any_cell(text: str) -> None:
    assert type(_only_imports_from(text, "torch")) is bool
