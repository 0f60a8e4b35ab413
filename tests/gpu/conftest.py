"""`--gpu-report FILE` writes the outcome of each claim, and the machine."""

from __future__ import annotations

import json
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
