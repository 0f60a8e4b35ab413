"""What runs functions of tests in other processes: what they need comes along, and what goes wrong fails the test."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.programs.needed import needed
from tests.programs.runner import gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

FILE = '''
"""A file of tests."""
import pytest
from pathlib import Path as P, PurePath
if TYPE_CHECKING:
    from x import Y
if ELSEWHERE:
    import torch
    class Net(torch.nn.Module):
        size = SIZE
SIZE = other(1)
other.name = "o"
def other(n): return n
UNUSED = 3
@pytest.mark.slow
@gives(3)
@functools.cache
def test_it():
    def inner(UNUSED): return P, UNUSED
    return inner
def test_else(): return globals()
'''


def kept(function: str) -> list[str]:
    return [ast.unparse(one).splitlines()[0] for one in needed(FILE, function).body]


def test_a_function_comes_with_what_it_names_and_without_its_marks() -> None:
    always = [
        "import torch",
        "class Net(torch.nn.Module):",
        "SIZE = other(1)",
        "other.name = 'o'",
        "def other(n):",
    ]
    assert kept("") == always
    assert kept("test_it") == ["from pathlib import Path as P, PurePath", *always, "@functools.cache"]
    assert "UNUSED = 3" in kept("test_else")
    assert "@functools.cache" not in kept("test_else")  # no other test


def fails() -> None:
    raise KeyError("inside")


def test_an_error_inside_fails_the_test(run: Runner) -> None:
    for way in run, run.fresh, run.to_the_end:
        with pytest.raises(
            pytest.fail.Exception, match=r"(?s)fails ended with status 1:.*KeyError: 'inside'"
        ):
            way(fails)


def gives_three() -> int:
    return 3


def test_another_value_fails_the_test(request: pytest.FixtureRequest) -> None:
    gives(3)(gives_three)(request)
    with pytest.raises(AssertionError):
        gives(4)(gives_three)(request)
