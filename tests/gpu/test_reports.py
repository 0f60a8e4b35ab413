"""The results of real machines, which stay with the claims; and claims over the stand-ins for a driver."""

from __future__ import annotations

import getpass
import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LIMIT, ROOT
from tests.gpu.machine import Machine
from tests.gpu.report import without_names
from tests.gpu.test_claims import CLAIMS, outcome_of
from tests.machine import CARDS, Driver, clean_environment, environment

REPORTS = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))
    for file in sorted((Path(__file__).parent / "reports").glob("*.json"))
}
# What the stand-ins can play, quick ones.
PLAYED = (
    "driver.before_and_after",
    "driver.empty_mask",
    "masks.reads:quotes",
    "masks.reads:reversed",
    "order.alike",
    "choosing.too_late",
)


def test_every_claim_is_a_sentence_of_its_own_about_a_file_that_is_there() -> None:
    assert len({claim.sentence for claim in CLAIMS.values()}) == len(CLAIMS)
    assert [name for name, claim in CLAIMS.items() if not (ROOT / "gpu_magic" / claim.where).is_file()] == []


@pytest.mark.parametrize("machine", REPORTS)
def test_a_result_is_of_a_claim_that_still_says_the_same(machine: str) -> None:
    """A claim that is reworded is another one, which that machine has not confirmed: its result goes."""
    report = REPORTS[machine]
    assert report["stand-ins"] is False
    assert report["gpus"]
    for name, found in report["claims"].items():
        assert found["sentence"] == CLAIMS[name].sentence
        assert found["outcome"] in ("confirmed", "measured", "not tried")


def test_most_claims_are_confirmed_on_a_real_machine() -> None:
    found = {
        name
        for one in REPORTS.values()
        for name, seen in one["claims"].items()
        if seen["outcome"] == "confirmed"
    }
    assert len(found) > len(CLAIMS) * 3 // 4


def test_a_report_names_nobody() -> None:
    text = f"in /home/maria/x.py of {getpass.getuser()} on {platform.node()}, MIG-0123abcd-0000-4000-8000-0123456789ab"
    assert without_names([{"what": text}]) == [{"what": "in (path) of (user) on (host), MIG-0123…"}]
    assert without_names("/GPU:0 and 3/4 of ~/work/a") == "/GPU:0 and 3/4 of (path)"


@pytest.fixture
def stand_ins(native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Have two GPUs that are alike, by the stand-ins for a driver."""
    state = tmp_path / "machine"
    Driver(tuple(replace(card, energy=10_000_000) for card in CARDS[:2])).write(state)
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    for name, value in environment(native, state).items():
        monkeypatch.setenv(name, value)
    return Machine()


@pytest.mark.parametrize(
    "name", [PLAYED[0], *(pytest.param(name, marks=pytest.mark.nightly) for name in PLAYED[1:])]
)
def test_what_the_stand_ins_play_is_confirmed(stand_ins: Machine, name: str) -> None:
    found = outcome_of(CLAIMS[name], stand_ins)
    assert found["outcome"] == "confirmed", found["what"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", ["placing.cell", "placing.sampling", "placing.past_the_last", "moving.ties", "moving.cell"]
)
def test_what_the_pretend_accelerator_plays_is_confirmed(
    stand_ins: Machine, pretend: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", pretend["PYTHONPATH"])
    found = outcome_of(CLAIMS[name]._replace(needs=("a driver",)), stand_ins)
    assert found["outcome"] == "confirmed", found["what"]


@pytest.mark.parametrize(("variable", "answer"), [("", 100), ("PRETEND_CUDA_TRIES_AGAIN", 3)])
def test_either_way_of_drivers_under_an_empty_mask_is_told_by_its_answer(
    stand_ins: Machine, monkeypatch: pytest.MonkeyPatch, variable: str, answer: int
) -> None:
    if variable:
        monkeypatch.setenv(variable, "1")
    found = outcome_of(CLAIMS["driver.empty_mask_then_another"], stand_ins)
    assert found["outcome"] == "confirmed"
    assert found["what"].startswith(f"cuDeviceGetCount {answer}; with another CUDA_VISIBLE_DEVICES")


def test_what_cannot_be_tried_or_fails_is_told(stand_ins: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, reason in (("mig_and_mps.one_instance", "split by MIG"), ("order.unlike", "of one model")):
        found = outcome_of(CLAIMS[name], stand_ins)
        assert found["outcome"] == "not tried"
        assert reason in found["what"]
    monkeypatch.setenv("GPU_MAGIC_TEST_STATE", "/nowhere")
    found = outcome_of(CLAIMS["driver.choice"], stand_ins)
    assert found["outcome"] == "contradicted"
    assert found["what"].startswith("its program failed: ")


def test_a_run_fails_for_a_contradiction_and_leaves_a_report(
    stand_ins: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETEND_CUDA_COUNTS_EARLY", "1")
    file = tmp_path / "report.json"
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu"]
    done = subprocess.run(
        [*run, "-k", "before_and_after", "--gpu-report", file],
        cwd=ROOT,
        check=False,
        capture_output=True,
        timeout=LIMIT,
    )
    assert done.returncode == 1, done.stdout
    report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    (found,) = report["claims"].values()
    assert found["outcome"] == "contradicted"
    assert found["what"] == "cuDeviceGetCount 0, cuInit 0, cuDeviceGetCount 0"
    assert report["stand-ins"] is True
    assert [gpu["uuid"] for gpu in report["gpus"]] == ["GPU-0a00…", "GPU-1a00…"]
    assert report.keys() == next(iter(REPORTS.values())).keys()
    assert str(tmp_path) not in json.dumps(report)
