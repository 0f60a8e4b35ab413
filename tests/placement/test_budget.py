"""How much is looked at of variables that nobody has named."""

from __future__ import annotations

from gpu_magic.placement.budget import Budget


def test_small_variables_are_looked_at_when_large_ones_have_spent_it() -> None:
    budget = Budget(objects=400, seconds=600)
    for number in range(40):
        with budget.variable(f"large{number}"):
            while budget.allows():
                pass
    with budget.variable("small"):
        assert budget.allows(3)
    assert "small" not in budget.unfinished
