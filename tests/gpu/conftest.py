"""`--gpu-report FILE` writes the outcome of each claim, and the machine."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.gpu.report import machine_of, without_names

if TYPE_CHECKING:
    from tests.gpu.machine import Machine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu-report", type=Path, metavar="FILE", help="write the outcomes of claims as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--gpu-report", None):
        config.pluginmanager.register(Report(config.getoption("--gpu-report")))


@pytest.fixture(scope="session")
def here() -> Machine:
    from tests.gpu.machine import Machine

    return Machine()


@pytest.fixture
def stand_ins(native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Have two GPUs that are alike, by the stand-ins for a driver."""
    from tests.gpu.machine import Machine
    from tests.machine import CARDS, Driver, clean_environment, environment

    state = tmp_path / "machine"
    Driver(tuple(replace(card, energy=10_000_000) for card in CARDS[:2])).write(state)
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    for name, value in environment(native, state).items():
        monkeypatch.setenv(name, value)
    return Machine()


@pytest.fixture
def tell(request: pytest.FixtureRequest, record_property: Any, here: Machine) -> Any:
    """Return what takes the outcome of a claim, for the report."""
    if request.config.getoption("--gpu-report", None):
        record_property("machine", machine_of(here))
    return lambda name, found: record_property("claim", (name, found))


class Report:
    """Takes the outcomes from the tests, which can be in other processes."""

    def __init__(self, file: Path) -> None:
        self._file, self._seconds = file, 0.0
        self._machine: dict[str, Any] = {}
        self._claims: dict[str, Any] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        if report.when != "call":
            return
        told: dict[str, Any] = dict(report.user_properties)
        self._machine = told.get("machine", self._machine)
        self._claims |= dict([told["claim"]] if "claim" in told else [])

    def pytest_sessionfinish(self) -> None:
        report = self._machine | {"seconds": round(self._seconds, 1), "claims": self._claims}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(without_names(report), indent=1, ensure_ascii=False)
        self._file.write_text(f"{text}\n", encoding="utf-8")
