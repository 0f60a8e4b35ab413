"""Which packages code evidently uses."""

from __future__ import annotations

import sys
import types
from functools import partial
from typing import Any

import pytest

import gpu_magic
from gpu_magic.frameworks.uses import Evidence


def _uses(code: str, package: str, space: dict[str, Any]) -> bool:
    return package in Evidence(partial(list, (compile(code, "<cell>", "exec"),)), space)


NOTEBOOK = """
import functools
import fractions as f
half = f.Fraction(1, 2)
def train(): return f.Fraction(2)
def outer():
    def inner(): return train()
    return inner()
def nothing(): return nothing
def double(x): return 2 * x
def logged(function):
    @functools.wraps(function)
    def inner(): return function()
    return inner
@logged
def decorated(): return f.Fraction(1)
class Trainer:
    @property
    def fit(self): return train
class Child(Trainer):
    @classmethod
    def of_the_class(cls): return f.Fraction(1)
trainer, child = Trainer(), Child()
"""
USES = (
    "fractions.Fraction(1)",
    "import fractions",
    "from fractions import Fraction",
    "__import__('fractions')",
    "get_ipython().run_line_magic('timeit', 'fractions.Fraction(1)')",
    *("half + 1", "outer()", "trainer.fit()", "child.fit()", "Child.of_the_class()", "decorated()"),
)
USES_NOT = (
    *("# fractions", "'fractions'", "nothing()", "half = 1", "for fractions in []: pass", "x.fractions", ""),
    "double(1)",  # the notebook itself has it, and that is no evidence
)


@pytest.mark.parametrize(
    ("cell", "uses"), [*((one, True) for one in USES), *((one, False) for one in USES_NOT)]
)
def test_by_the_names_in_a_cell_and_in_the_functions_that_it_reaches(cell: str, uses: bool) -> None:
    space: dict[str, Any] = {"__name__": "__main__", "fractions": sys.modules["fractions"]}
    exec(NOTEBOOK, space)
    assert _uses(cell, "fractions", space) is uses


def test_a_value_is_asked_nothing() -> None:
    class Touchy:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    class Lazy(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    space = {"touchy": Touchy(), "lazy": Lazy("lazy"), "tensor": type("T", (), {"__module__": "jaxlib.x"})()}
    assert _uses("touchy, lazy", "lazy", space)
    assert _uses("touchy, tensor", "jax", space)


def test_a_package_that_refers_to_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = types.ModuleType("abacus")
    for name, content in (("abacus", {}), ("sums", {"beads": inner}), ("torch", {"abacus": inner})):
        module = inner if name == "abacus" else types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    assert _uses("sums.add()", "abacus", {"sums": sys.modules["sums"]})
    assert not _uses("torch.add()", "abacus", {"torch": sys.modules["torch"]})  # a framework does not use it
    assert not _uses("sums.add()", "torch", {"sums": sys.modules["sums"]})
    half = types.ModuleType("half")
    half.__spec__ = types.SimpleNamespace(_initializing=True)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "half", half)
    assert not _uses("half.add()", "abacus", {})
    half.beads, half.__spec__._initializing = inner, False  # type: ignore[attr-defined]
    assert _uses("half.add()", "abacus", {})  # its import has ended
    monkeypatch.setitem(sys.modules, "gpu_magic.plugin", sys.modules["sums"])
    assert not _uses("on_gpu(0)", "abacus", {"on_gpu": gpu_magic.on_gpu})  # we know all frameworks
