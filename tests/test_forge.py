"""What the public forge reads: workflows call what there is, and forms ask for what can be answered."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
FORGE = ROOT / ".github"
WORKFLOWS = sorted((FORGE / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (FORGE / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


def _steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job.get("steps", [])]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_that_there_are(workflow: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {
        name for step in _steps(workflow) for name in re.findall(r"\bmake ([\w-]+)", step.get("run", ""))
    }
    assert called <= targets


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_do_no_more_than_they_need(workflow: Path) -> None:
    found = yaml.safe_load(workflow.read_text())
    assert found["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in found["jobs"].values() if "uses" not in job)


def test_links_are_looked_up_in_all_that_has_some() -> None:
    (step,) = [
        step
        for step in _steps(FORGE / "workflows" / "weekly.yml")
        if str(step.get("uses", "")).startswith("lycheeverse/lychee-action@v")
    ]
    patterns = re.findall(r"'(\S+)'", step["with"]["args"])  # for lychee: a shell's `**` is no more than `*`
    looked_at = {path for pattern in patterns for path in ROOT.glob(pattern)}
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "gpu_magic").rglob("*.py")]
    assert set(texts) <= looked_at


def test_pythons_are_named_that_the_matrix_of_versions_has() -> None:
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert classifiers
    assert set(classifiers) == set(re.findall(r'"(3\.\d+)"', (ROOT / "noxfile.py").read_text()))


def test_each_session_of_the_matrix_has_a_machine_with_its_python() -> None:
    jobs = yaml.safe_load((FORGE / "workflows" / "nightly.yml").read_text())["jobs"]
    (listed,) = [step["run"] for step in jobs["versions"]["steps"] if step.get("id") == "list"]
    assert "nox --list --json" in listed
    assert (
        jobs["matrix"]["strategy"]["matrix"]["session"] == "${{ fromJson(needs.versions.outputs.sessions) }}"
    )
    python, run = jobs["matrix"]["steps"][1:]
    assert python["with"]["python-version"] == "${{ matrix.session.python }}"
    assert run["run"] == "pipx run nox --session '${{ matrix.session.session }}'"


def test_every_night_the_newest_of_everything_is_tested() -> None:
    found = yaml.safe_load((FORGE / "workflows" / "nightly.yml").read_text())
    assert found[True]["schedule"]  # YAML 1.1 reads `on` as true
    run = [step.get("run", "") for step in found["jobs"]["newest"]["steps"]]
    assert "make test-all check --keep-going CONSTRAINTS=" in run


def test_a_release_is_tested_before_it_is_published() -> None:
    jobs = yaml.safe_load((FORGE / "workflows" / "release.yml").read_text())["jobs"]
    assert set(jobs["publish"]["needs"]) == {"test", "versions", "build"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    (version,) = [step["run"] for step in jobs["build"]["steps"] if "GITHUB_REF_NAME" in step.get("run", "")]
    (pattern,) = re.findall(r"s/(.*?)/\\1/p", version)
    pattern = pattern.replace(r"\(", "(").replace(r"\)", ")")
    assert re.search(pattern, (ROOT / "gpu_magic" / "__init__.py").read_text(), re.MULTILINE)


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_forms_have_a_field_of_each_name(form: Path) -> None:
    body = yaml.safe_load(form.read_text())["body"]
    names = [field["id"] for field in body]
    assert len(set(names)) == len(names)
    assert all(field["attributes"]["label"] for field in body)


def test_the_matrix_names_extras_and_tests_that_are_there() -> None:
    text = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    assert set(re.findall(r'EXTRAS\["(\w+)"\]', text)) <= extras.keys()
    assert [
        name for name in re.findall(r'"(tests/[\w/]+(?:\.py)?)"', text) if not (ROOT / name).exists()
    ] == []
