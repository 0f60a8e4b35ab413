"""Runs of claims over the stand-ins: what they can play is confirmed, and what contradicts a claim is shown as such."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import LIMIT, ROOT
from tests.gpu.claims import CLAIMS
from tests.gpu.runner import Here, look, run_all, run_one
from tests.hardware.conftest import CLAIMED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gpu.claim import Claim
    from tests.gpu.runner import Found

# As `look` finds it, without the seconds that probing frameworks takes.
PROBED = {
    "packages": {},
    "nvml": {
        "problem": "",
        "gpus": [{"name": "A100", "is split": False, "has mps": False}] * 2,
        "use": ["GPU-0a000000-0000-4000-8000-0123456789ab", "GPU-1a000000-0000-4000-8000-0123456789ab"],
        "ipykernel": True,
    },
}


@pytest.fixture
def here(machine: Path) -> Here:
    return Here(PROBED, dict.fromkeys({need for claim in CLAIMS.values() for need in claim.needs}, ""))


def first_alone(names: tuple[str, ...]) -> list[Any]:
    """Return names of which only the first is tried before each push."""
    return [names[0], *(pytest.param(name, marks=pytest.mark.nightly) for name in names[1:])]


@pytest.mark.parametrize("name", first_alone(CLAIMED))
def test_what_the_stand_ins_play_is_confirmed(here: Here, name: str) -> None:
    found = run_one(CLAIMS[name], here)
    assert found.outcome == "confirmed", found.what
    assert found.what


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", ["placing.cell", "placing.sampling", "placing.past_the_last", "moving.ties", "moving.cell"]
)
def test_what_the_pretend_accelerator_plays_is_confirmed(
    here: Here, pretend: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", pretend["PYTHONPATH"])
    found = run_one(CLAIMS[name], here)
    assert found.outcome == "confirmed", found.what


def test_a_driver_that_answers_before_its_start_contradicts(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETEND_CUDA_COUNTS_EARLY", "1")
    found = run_one(CLAIMS["driver.before_and_after"], here)
    assert found.outcome == "contradicted"
    assert found.what == "cuDeviceGetCount 0, cuInit 0, cuDeviceGetCount 0"


@pytest.mark.parametrize("tries_again", [True, False])
def test_either_way_of_drivers_under_an_empty_mask_is_told_by_its_answer(
    here: Here, monkeypatch: pytest.MonkeyPatch, tries_again: bool
) -> None:
    if tries_again:
        monkeypatch.setenv("PRETEND_CUDA_TRIES_AGAIN", "1")
    found = run_one(CLAIMS["driver.empty_mask_then_another"], here)
    assert found.outcome == "confirmed"
    answer = 3 if tries_again else 100
    assert found.what.startswith(f"cuDeviceGetCount {answer}; with another CUDA_VISIBLE_DEVICES")


def test_a_program_that_fails_contradicts_and_says_how(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_MAGIC_TEST_STATE", "/nowhere")
    found = run_one(CLAIMS["driver.choice"], here)
    assert found.outcome == "contradicted"
    assert found.what.startswith("its program failed: ")


ENDS = [
    ("return Seen(True, 'seen')", "confirmed", "seen"),
    ("return Seen(False, 'something else')", "contradicted", "something else"),
    ("raise NotTriedError('no reason')", "not tried", "no reason"),
    ("raise ValueError('a\\nb')", "contradicted", "its program failed: ValueError: a"),
    ("os.kill(os.getpid(), 11)", "contradicted", "it was ended by SIGSEGV"),
    ("os._exit(3)", "contradicted", "its process failed: it printed nothing"),
    ("time.sleep(600)", "contradicted", "it did not end within 0 seconds"),
]


def test_all_ends_of_a_program(tmp_path: Path) -> None:
    """In a copy of the runner, with programs that are written here."""
    copy = tmp_path / "tests" / "gpu"
    shutil.copytree(ROOT / "tests" / "gpu", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy.parent / "__init__.py").touch()
    made = "import os, time\nfrom tests.gpu.claim import NotTriedError, Seen\n\n\n"
    made += "".join(f"def it{number}():\n    {body}\n" for number, (body, *_) in enumerate(ENDS))
    (copy / "programs" / "made_here.py").write_text(made)
    code = (
        "from tests.gpu.claim import Claim\n"
        "from tests.gpu.runner import Here, run_one\n"
        f"for number in range({len(ENDS)}):\n"
        "    claim = Claim(f'made_here.it{number}', 'It is so.', 'devices/nvml.py', ())\n"
        f"    found = run_one(claim, Here({{'nvml': ''}}, {{}}), 0.2 if number == {len(ENDS) - 1} else {LIMIT})\n"
        "    print(found.outcome, found.what, sep=': ')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.stdout.splitlines() == [f"{outcome}: {what}" for _, outcome, what in ENDS]


@pytest.mark.nightly  # all frameworks are imported
def test_what_is_not_there_is_the_reason_that_a_claim_is_not_tried(machine: Path) -> None:
    here = look()
    assert here.missing["a driver"] == ""
    found = {
        name: run_one(CLAIMS[name], here)
        for name in ("mig_and_mps.one_instance", "order.unlike", "fitting.cnn")
    }
    assert {one.outcome for one in found.values()} == {"not tried"}
    assert found["mig_and_mps.one_instance"].what == "no GPU here is split by MIG"
    assert found["order.unlike"].what == "all GPUs here are of one model"
    assert "without CUDA" in found["fitting.cnn"].what


def test_when_the_time_is_over_the_rest_is_not_tried(here: Here) -> None:
    told: list[tuple[Claim, Found]] = []
    claims = [CLAIMS[name] for name in CLAIMED]
    found = run_all(claims, here, lambda *one: told.append(one), seconds=0)
    assert [one.outcome for one in found.values()] == ["not tried"] * len(claims)
    assert [claim for claim, _ in told] == claims
