"""What fuzzing has found is checked again: the inputs that are kept, and how the work grows with their length."""

from __future__ import annotations

import pytest

from tests.fuzzing.corpus import LONGEST_INPUT, MOST_INPUTS, kept_inputs
from tests.fuzzing.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_every_promise_holds_for_the_inputs_that_are_kept(name: str) -> None:
    target = TARGETS[name]
    for data in [*map(str.encode, target.seeds), *kept_inputs(name).values()]:
        target.check(data)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_small(name: str) -> None:
    inputs = kept_inputs(name)
    assert len(inputs) <= MOST_INPUTS
    assert max(map(len, inputs.values()), default=0) <= LONGEST_INPUT
