"""The results of real machines, which stay with the claims; and how a run reports."""

from __future__ import annotations

import getpass
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import LIMIT, ROOT
from tests.gpu.report import without_names
from tests.gpu.test_claims import CLAIMS

if TYPE_CHECKING:
    from tests.gpu.machine import Machine

REPORTS = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))
    for file in sorted((Path(__file__).parent / "reports").glob("*.json"))
}


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


def test_most_claims_that_a_real_machine_was_asked_for_are_confirmed_on_one() -> None:
    """A newer claim waits for a machine."""
    asked = {name for one in REPORTS.values() for name in one["claims"] if CLAIMS[name].is_judged}
    found = {
        name
        for one in REPORTS.values()
        for name, seen in one["claims"].items()
        if seen["outcome"] == "confirmed"
    }
    assert len(found) > len(asked) * 3 // 4


def test_a_report_names_nobody() -> None:
    text = f"in /home/maria/x.py of {getpass.getuser()} on {platform.node()}, MIG-0123abcd-0000-4000-8000-0123456789ab"
    assert without_names([{"what": text}]) == [{"what": "in (path) of (user) on (host), MIG-0123…"}]
    assert without_names("/GPU:0 and 3/4 of ~/work/a") == "/GPU:0 and 3/4 of (path)"


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
