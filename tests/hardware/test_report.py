"""The report of a run, and the table: what they say, and what they keep to themselves."""

from __future__ import annotations

import getpass
import json
import os
import platform
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import LIMIT, ROOT
from tests.gpu.claims import CLAIMS
from tests.gpu.report import make, read, without_names, write
from tests.gpu.runner import Found, Here
from tests.gpu.seen import REPORTS, reports_in
from tests.gpu.table import draw

if TYPE_CHECKING:
    from pathlib import Path

NAME = "driver.before_and_after"


def report(outcome: str = "confirmed", what: str = "3, then 0", **more: Any) -> dict[str, Any]:
    sentence = more.pop("sentence", CLAIMS[NAME].sentence)
    one = {"sentence": sentence, "outcome": outcome, "what": what, "figures": {}, "seconds": 0.1}
    return {
        "format": 1,
        "date": "2026-11-23",
        "stand-ins": False,
        "gpus": [{"name": "NVIDIA A100", "uuid": "GPU-8f3a…", "bytes": 1 << 36, "is split": False}],
        "driver": "580.65.06",
        "CUDA of the driver": "13.0",
        "CUDA of PyTorch": "12.8",
        "packages": {"Python": "3.12.1", "torch": "2.11.0"},
        "seconds": 1.0,
        "claims": {NAME: one},
    } | more


def row(*reports: dict[str, Any]) -> str:
    """Return what the table says of the claim."""
    (line,) = (line for line in draw(reports).splitlines() if line.startswith(f"| {CLAIMS[NAME].sentence} |"))
    return line.split(" | ")[2].removesuffix(" |")


def test_the_reports_that_were_kept_confirm_claims() -> None:
    reports = reports_in(REPORTS)
    table = draw(reports)
    assert table.count(" | confirmed on ") > len(CLAIMS) // 2
    assert all(f"{gpu['name']} ({gpu['uuid']})" in table for one in reports for gpu in one["gpus"])


def test_every_claim_is_in_the_table_and_not_yet_confirmed_without_a_report() -> None:
    table = draw([])
    assert "No run on a GPU yet." in table
    for claim in CLAIMS.values():
        assert f"| {claim.sentence} | `{claim.where}` | not yet |" in table


def test_what_the_table_says_of_runs() -> None:
    assert row(report()) == "confirmed on A: 3, then 0"
    assert row(report("contradicted", "0, then 0")) == "**contradicted** on A: 0, then 0"
    assert row(report("not tried", "one GPU here")) == "not yet (A: one GPU here)"
    both = row(report(), report("contradicted", "0, then 0"))
    assert both == "**contradicted** on B: 0, then 0. confirmed on A: 3, then 0"
    assert row(report("not tried", "no time"), report()) == "confirmed on B: 3, then 0"
    assert row(report(), report(), report(what="3, 0")) == "confirmed on A and B: 3, then 0; on C: 3, 0"
    served = report()
    served["claims"]["mig_and_mps.server"] = served["claims"][NAME]
    assert "| A | NVIDIA A100 (GPU-8f3a…), with an MPS server | 580.65.06" in draw([served])
    machine = "| A | NVIDIA A100 (GPU-8f3a…) | 580.65.06, CUDA 13.0 | Python 3.12.1, torch 2.11.0, CUDA 12.8 in PyTorch | 2026-11-23 |"
    assert machine in draw([report()])


def test_a_claim_that_was_reworded_is_not_confirmed_by_an_older_run() -> None:
    assert row(report(sentence="Something like it.")) == "not yet (reworded since A)"


def test_what_a_machine_calls_itself_stays_in_its_cell() -> None:
    gpu = {"name": "A|B\n<b>", "uuid": None, "bytes": 1, "is split": True}
    line = next(line for line in draw([report(gpus=[gpu])]).splitlines() if line.startswith("| A |"))
    assert "A\\|B &lt;b>, split by MIG (no UUID)" in line


def test_a_run_over_stand_ins_confirms_nothing_of_a_gpu(tmp_path: Path) -> None:
    assert row(report(**{"stand-ins": True})) == "confirmed on A, over stand-ins: 3, then 0"
    write(report(**{"stand-ins": True}), tmp_path / "a.json")
    with pytest.raises(ValueError, match=r"a\.json comes from a run over stand-ins"):
        reports_in(tmp_path)


def test_reports_are_read_by_the_names_of_their_files_and_nothing_else_is(tmp_path: Path) -> None:
    write(report(date="2026-11-24"), tmp_path / "b.json")
    write(report(), tmp_path / "a.json")
    assert [one["date"] for one in reports_in(tmp_path)] == ["2026-11-23", "2026-11-24"]
    for other in ("[]", json.dumps(report(format=0))):
        (tmp_path / "c.json").write_text(other)
        with pytest.raises(ValueError, match=r"c\.json is not a report of format 1"):
            reports_in(tmp_path)


def test_names_of_people_hosts_and_folders_are_left_out() -> None:
    text = f"in /home/maria/x.py of {getpass.getuser()} on {platform.node()}, MIG-0123abcd-0000-4000-8000-0123456789ab"
    assert without_names(text) == "in (path) of (user) on (host), MIG-0123…"
    found = Found("contradicted", f"its program failed: {text}", {"in": ["/home/maria"]}, 0.1)
    here = Here({"nvml": "", "torch": "", "packages": {}}, {})
    (claim,) = make(here, {NAME: found}, 1.0)["claims"].values()
    assert claim["what"].endswith("in (path) of (user) on (host), MIG-0123…")
    assert claim["figures"] == {"in": ["(path)"]}
    assert without_names("0123abcd000040008000012345678 9ab") == "0123abcd000040008000012345678 9ab"
    assert without_names("/GPU:0 and 3/4 of ~/work/a") == "/GPU:0 and 3/4 of (path)"


@pytest.mark.nightly  # all frameworks are imported
@pytest.mark.parametrize("early", [False, True])
def test_a_run_leaves_a_report_and_a_table(
    machine: Path, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    if early:
        monkeypatch.setenv("PRETEND_CUDA_COUNTS_EARLY", "1")
    folder = machine / "out"
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", str(folder), "--only", NAME],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == (1 if early else 0), done.stderr
    found = read(folder / "report.json")
    assert found["claims"][NAME]["outcome"] == ("contradicted" if early else "confirmed")
    assert found["stand-ins"] is True
    assert [gpu["uuid"] for gpu in found["gpus"]] == ["GPU-0a00…", "GPU-1a00…"]
    assert found["driver"] == "580.65.06"
    assert found["packages"]["Python"] == platform.python_version()
    table = (folder / "seen.md").read_text(encoding="utf-8")
    assert ("**contradicted** on A, over stand-ins: cuDeviceGetCount 0" in table) is early
    text = json.dumps(found)
    assert "0123456789ab" not in text
    assert str(ROOT) not in text
    assert str(machine) not in text


def test_a_name_that_no_claim_has_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", "--only", "MPS"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 2
    assert done.stderr == f"No claim's name contains 'MPS'. A name: {next(iter(CLAIMS))}\n"


@pytest.mark.nightly
def test_without_a_driver_it_says_so_in_one_line(tmp_path: Path) -> None:
    for library in ("libnvidia-ml.so.1", "libcuda.so.1"):
        (tmp_path / library).touch()  # where a real one is installed, it is not found either
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", "--only", NAME],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)},
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("No claim can be tried here: ")
