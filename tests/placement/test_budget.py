"""How much is looked at of variables that nobody has named."""

from __future__ import annotations

from gpu_magic.placement.budget import Budget


def test_a_large_variable_leaves_most_of_it_for_those_after_it() -> None:
    budget, looked_at = Budget(objects=100_000, seconds=600), []
    for name in "abc":
        with budget.variable(name):
            looked_at.append(0)
            while budget.allows():
                looked_at[-1] += 1
    assert sum(looked_at) < 70_000
    assert looked_at[2] > looked_at[0] / 2


def test_small_variables_are_looked_at_when_large_ones_have_spent_it() -> None:
    budget = Budget(objects=400, seconds=600)
    for number in range(40):
        with budget.variable(f"large{number}"):
            while budget.allows():
                pass
    with budget.variable("small"):
        assert budget.allows(3)
    assert "small" not in budget.unfinished
