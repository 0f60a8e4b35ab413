"""Which packages code evidently uses."""

from __future__ import annotations

import gc
import sys
import types
from fractions import Fraction
from typing import Any

import pytest

from gpu_magic.placement.uses import Evidence, names_in, packages


def _module(name: str, **content: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(content)
    return module


def _notebook(code: str) -> dict[str, Any]:
    """Return a namespace in which code was run as a notebook's is."""
    space: dict[str, Any] = {"__name__": "__main__", "fractions": sys.modules["fractions"]}
    exec(code, space)
    return space


@pytest.mark.parametrize(
    ("cell", "uses"),
    [
        ("fractions.Fraction(1)", True),
        ("import fractions", True),
        ("from fractions import Fraction", True),
        ("half + 1", True),
        ("train()", True),
        ("outer()", True),
        ("Trainer().fit()", True),
        ("trainer.fit()", True),
        ("child.fit()", True),
        ("# fractions", False),
        ("nothing()", False),
        ("double(1)", False),  # the notebook itself has it, and that is no evidence
        ("f = 1", False),
        ("fractional = 1", False),
        ("", False),
    ],
)
def test_by_the_names_in_a_cell(cell: str, uses: bool) -> None:
    space = _notebook("""
import fractions as f
half = f.Fraction(1, 2)
def train(): return f.Fraction(2)
def outer():
    def inner(): return train()
    return inner()
def nothing(): return nothing
def double(x): return 2 * x
class Trainer:
    def fit(self): return f.Fraction(3)
class Child(Trainer): ...
trainer, child = Trainer(), Child()
""")
    assert ("fractions" in packages(names_in(cell), space)) is uses


@pytest.mark.parametrize(
    ("cell", "uses"),
    [
        ("settings.path()", False),
        ("settings.half()", True),
        ("settings.through_another()", True),
        ("settings.ratio", True),
        ("settings.cached", True),
        ("settings.of_the_class()", True),
        ("settings.static()", True),
        ("settings.decorated()", True),
        ("getattr(settings, 'half')()", True),
        ("by_name(settings)", True),
        ("caller()", True),
        ("Settings().path()", True),  # it is made here
        ("worker.start()", True),  # another package calls what is overridden
        ("settings", False),
    ],
)
def test_of_an_own_class_what_the_cell_can_reach(cell: str, uses: bool) -> None:
    space = _notebook("""
import functools
import threading
import fractions as f
def logged(function):
    @functools.wraps(function)
    def inner(self): return function(self)
    return inner
class Settings:
    def __init__(self): self.value = f.Fraction(1)
    def path(self): return "/data"
    def half(self): return f.Fraction(1, 2)
    def through_another(self): return self.half()
    @property
    def ratio(self): return f.Fraction(1)
    @functools.cached_property
    def cached(self): return f.Fraction(1)
    @classmethod
    def of_the_class(cls): return f.Fraction(1)
    @staticmethod
    def static(): return f.Fraction(1)
    @logged
    def decorated(self): return f.Fraction(1)
class Caller:
    def __call__(self): return f.Fraction(1)
class Worker(threading.Thread):
    def run(self): f.Fraction(1)
def by_name(settings): return getattr(settings, "half")()
settings, caller, worker = Settings(), Caller(), Worker()
""")
    found = packages(names_in(cell), space)
    assert ("fractions" in found) is uses


def test_a_function_s_own_names_are_those_it_looks_up() -> None:
    def uses() -> object:
        return [Fraction(1) for _ in range(2)]

    def mentions() -> str:
        return "Fraction"

    here = {"Fraction": Fraction}
    assert "fractions" in packages(names_in(uses.__code__), here)
    assert "fractions" not in packages(names_in(mentions.__code__), here)


def test_a_value_is_asked_nothing() -> None:
    class Touchy:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    class Lazy(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    space = {"touchy": Touchy(), "lazy": Lazy("lazy"), "tensor": type("T", (), {"__module__": "jaxlib.x"})()}
    assert {"lazy", "jax"} <= packages(names_in("touchy, lazy, tensor"), space)


def test_functions_that_call_each_other_come_to_an_end() -> None:
    space = _notebook("def a(): return b()\ndef b(): return a()")
    assert "a" in packages(names_in("a"), space)


def test_modules_that_another_thread_imports_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection of garbage gives way to other threads; here it imports something itself."""
    monkeypatch.setattr(sys, "modules", {**sys.modules, "torch": _module("torch"), "asks": _module("asks")})
    evidence = Evidence(lambda: "asks.it()", {"asks": sys.modules["asks"]})
    imported = (f"imported_{number}" for number in range(10**6))

    def imports(phase: str, info: dict[str, int]) -> None:
        sys.modules[next(imported)] = types.ModuleType("meanwhile")

    before = gc.get_threshold()
    gc.callbacks.append(imports)
    gc.set_threshold(1)
    try:
        assert "torch" not in evidence
        assert next(imported) != "imported_0"
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(imports)
