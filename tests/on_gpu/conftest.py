"""Two frameworks that exist in these tests only, beside one that computes with the first."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.frameworks.base import Framework
from gpu_magic.on_gpu import scope
from tests.eight_gpus import installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from gpu_magic.frameworks.target import LogicalDevice

SOURCE = """
import threading
class Here(threading.local):
    device = "cpu"
here = Here()
def made():
    return here.device
"""


class Abacus(Framework):
    """A framework with four devices, which each thread has its own default one of."""

    name, module, count = "Abacus", "abacus", 4
    error: BaseException | None = None  # what it raises when its device is set

    def statement_for(self, ordinal: int) -> str:
        return f"use({ordinal})"

    def problem(self, device: LogicalDevice) -> str:
        return "" if device.index < self.count else f"{self.name} has {self.count}"

    def name_of(self, device: LogicalDevice) -> str:
        return f"{device.kind}:{device.index}"

    def narrow(self, ordinals: Sequence[int]) -> tuple[str, contextlib.AbstractContextManager[Any] | None]:
        return "", None

    @contextlib.contextmanager
    def scope(self, device: LogicalDevice, is_used: Callable[[], bool]) -> Iterator[None]:
        here = sys.modules[self.module].here
        if self.error is not None:
            raise self.error
        before, here.device = here.device, self.name_of(device)
        try:
            yield
        finally:
            here.device = before


class Quipu(Abacus):
    name, module, count = "Quipu", "quipu", 1


class Layers(Abacus):
    name, module, count = "Layers", "layers", 99  # other problems are its backend's

    def backend(self) -> str:
        return "abacus"


FRAMEWORKS = {"abacus": Abacus(), "quipu": Quipu(), "layers": Layers()}


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Add the three to the known frameworks for a test."""
    for name in ("torch", "tensorflow", "jax", "keras", "cupy"):  # that other tests have imported
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    for name in FRAMEWORKS:
        (tmp_path / f"{name}.py").write_text(SOURCE)
    (tmp_path / "hides_abacus.py").write_text("import abacus\n")
    with installed(tmp_path, {name: f"{__name__}:{name.upper()}" for name in FRAMEWORKS}):
        yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    for framework in FRAMEWORKS.values():
        vars(framework).clear()
    scope._left_out.clear()


ABACUS, QUIPU, LAYERS = FRAMEWORKS.values()
