"""How a diagnosis is made and shown: the magic, the report, JSON, and sources and checks that fail."""

from __future__ import annotations

import json
import os
from dataclasses import FrozenInstanceError, replace
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.devices.model import UNKNOWN, Inventory
from gpu_magic.devices.problems import Cause, Problem
from gpu_magic.doctor.checks import check_front_end, check_leftovers
from gpu_magic.doctor.diagnosis import Diagnosis, diagnose, judge, without_private
from gpu_magic.doctor.facts import Build, Facts, Finding, Packages
from gpu_magic.panel.front_end import FrontEnd, Pages
from gpu_magic.testing import simulate, start_cuda
from tests.conftest import ROOT
from tests.doctor.conftest import inventory, kernel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Fresh, Typed
    from tests.doctor.conftest import Place


def test_the_magic_shows_reports_and_writes_json(typed: Typed) -> None:
    def said(options: str = "") -> str:
        return typed(f"%gpu_doctor {options}").text

    with simulate("4xA100-80GB", mask="'1'"):
        shown = said()
        for text in ("Wrong: The quotes in CUDA_VIS", "      %gpus 1 --force\n", "CUDA up to 13.0: fine\n"):
            assert text in shown
        report = said("--report")
        assert report.startswith(f"gpu_magic {gpu_magic.__version__}, Python 3.")
        assert "Wrong: The quotes" in report
        facts = json.loads(said("--json"))["facts"]
        assert facts["machine"]["simulated"] == "4xA100-80GB"
        assert (facts["kernel"]["guard"]["state"], facts["kernel"]["variables"]["mask"]) == ("absent", "'1'")
        assert "Its options are --report and --json" in said("torch")
        assert "--report does not go with --json" in said("--report --json")
        assert "Did you mean --report?" in said("--repotr")


def test_looking_changes_nothing_and_imports_nothing(fresh: Fresh, tmp_path: Path) -> None:
    """Also no module that loads itself when it is asked for something."""
    (tmp_path / "torch.py").write_text("print('loaded')\n__version__ = '1.0'")
    code = """
        import importlib.util, os, sys, gpu_magic
        spec = importlib.util.find_spec("torch")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        sys.modules["torch"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        before = dict(os.environ)
        gpu_magic.doctor()
        print([m for m in ("tensorflow", "jax", "keras", "cupy") if m in sys.modules])
        print(dict(os.environ) == before, gpu_magic.guard().state)
    """
    said = fresh(code, GPU_MAGIC_SIMULATE="2xA100-80GB", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert said == "[]\nTrue State.ABSENT\n"


# What is shown


def shown(*findings: Finding, **facts: object) -> Diagnosis:
    return Diagnosis(findings, Facts(**facts))  # type: ignore[arg-type]


def test_each_finding_is_shown_with_what_mends_it() -> None:
    fix = "pip uninstall x\npip install y\x1b"
    first = Finding("wrong", "CuPy", "It is <b>wrong</b> for נועה.", "So it fails.", fix)
    found = shown(first, Finding("unknown", "x", "Not read."))
    assert repr(found).splitlines() == [
        "1 thing is wrong, 1 could not be read or checked.",
        "",
        "Wrong: It is <b>wrong</b> for נועה.",
        "  So it fails.",
        "      pip uninstall x",
        "      pip install y\ufffd",
        "",
        "Unknown: Not read.",
    ]
    assert "pip uninstall x\npip install y\ufffd</pre>" in found._repr_html_()
    assert "It is &lt;b&gt;wrong&lt;/b&gt; for <bdi>נועה</bdi>." in found._repr_html_()
    assert found.wrong == (first,)
    with pytest.raises(FrozenInstanceError):
        found.findings = ()  # type: ignore[misc]


def test_what_was_checked_is_called_fine_unless_it_has_a_finding() -> None:
    machine = inventory()
    builds = (Build("PyTorch", "2.13.0", "CUDA", "13.0"), Build("JAX", "0.7.2"))
    facts = Facts(machine, kernel(machine), Packages(builds, {"anywidget": "0.11.0"}))
    lines = repr(judge(facts)).splitlines()
    assert lines[0] == "Nothing wrong was found."
    rows = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in lines}
    assert rows["driver"] == "580.65.06, CUDA up to 13.0: fine"
    assert rows["PyTorch"] == "2.13.0, built for CUDA 13.0: fine"
    assert "CUDA version unknown" in rows["JAX"]
    assert rows["CUDA"] == "not started: the choice can still change"
    assert "built for CUDA 13.0\n" in repr(Diagnosis((Finding("wrong", "PyTorch", "No."),), facts))
    # Without a GPU nothing is said of a choice, and nothing called fine.
    nothing = Inventory(problem=Problem(Cause.NO_LIBRARY))
    text = repr(shown(machine=nothing, kernel=kernel(nothing)))
    assert "choice" not in text
    assert "fine" not in text
    split = inventory("1xA100-80GB(3g.40gb,4g.40gb)")
    text = repr(shown(machine=replace(split, gpus=(split[0]._replace(compute_mode="Prohibited"),))))
    assert "(compute mode Prohibited) (MIG, 2 instances)" in text


# This user's other processes, and the panel's page


def test_what_this_user_has_on_gpus() -> None:
    with simulate("1xA100-80GB") as machine:
        path = "/home/maria/work/train.ipynb"
        machine.gpus[0].run("ipykernel", "maria", 12 << 30, is_same_user=True, notebook=path, pid=4711)
        machine.gpus[0].run("other.py", "tom", 1 << 30)
        found = gpu_magic.gpus().machine
    (simulated,) = check_leftovers(Facts(found))
    what = "The kernel of /home/maria/work/train.ipynb (pid 4711) is also yours and has 12.0 GiB on GPU 0"
    assert simulated.problem.startswith(what)
    assert simulated.fix == ""  # nothing runs there that can be ended
    there = replace(found, simulated="")
    for program, fix in (("kernel", "%gpu_ps end 4711"), ("shell", "kill 4711")):
        (real,) = check_leftovers(Facts(there, kernel(there, program)))  # type: ignore[arg-type]
        assert real.fix == fix
    report = shown(real).report()
    assert "Another process of this user has 12.0 GiB on GPU 0" in report
    assert not [private for private in ("train", "4711") if private in report]


def test_a_path_without_an_end_is_shown_by_its_end() -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("ipykernel", "me", 1, is_same_user=True, notebook=f"{'a' * 100_000}/train.ipynb")
        (found,) = check_leftovers(Facts(gpu_magic.gpus().machine))
    assert len(found.problem) < 250
    assert "aa/train.ipynb (pid " in found.problem


HUB = FrontEnd(True, "", "5.0.17", "/opt/hub")  # its server has no anywidget


@pytest.mark.parametrize(
    ("front", "pages", "fixes"),
    [
        (FrontEnd(True, "0.11.2", "5.0.17", "/opt/hub"), Pages(1, True), []),
        (HUB, Pages(1, True), []),  # a page that answers has what it needs
        (HUB, Pages(), ["/opt/hub/bin/python -m pip install anywidget"]),
        (FrontEnd(), Pages(1), ["pip install anywidget"]),
        (FrontEnd(), Pages(), []),
    ],
)
def test_the_page_s_side_of_the_panel(front: FrontEnd, pages: Pages, fixes: list[str]) -> None:
    machine = inventory()
    facts = Facts(machine, kernel(machine), Packages(versions={"anywidget": "0.11.0"}), UNKNOWN, front, pages)
    found = list(check_front_end(facts))
    assert [one.fix for one in found] == fixes
    assert not any("/opt" in one.public for one in found)
    assert list(check_front_end(replace(facts, kernel=kernel(machine, "ipython")))) == []


# What fails


def check_the_weather(_: Facts) -> Iterator[Finding]:
    yield Finding("wrong", "weather", "It rains.")
    raise RuntimeError("the barometer\nis broken")


def test_a_check_that_fails_costs_one_line_and_what_is_wrong_comes_first() -> None:
    unread = Finding("unknown", "x", "Not read.")
    rain, first, failed = judge(Facts(packages=Packages()), [unread], [check_the_weather]).findings
    assert (rain.problem, first, failed.severity) == ("It rains.", unread, "unknown")
    assert failed.problem.endswith("RuntimeError: the barometer is broken")
    assert (
        repr(judge(Facts())) == "Nothing wrong was found."
    )  # no check needs a source that could not be read


def test_a_source_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "8xNonsense")
    found = gpu_magic.doctor()
    unknown = [one for one in found.findings if one.severity == "unknown"]
    assert [(one.about, "8xNonsense" in one.problem) for one in unknown] == [
        ("the GPUs", True),
        ("this process", True),
    ]
    assert found.facts.machine is UNKNOWN
    assert found.facts.packages.versions["nvidia-ml-py"]


def test_a_file_system_that_does_not_answer_is_given_up(place: Place) -> None:
    (place.root / "proc/driver/nvidia").mkdir(parents=True)
    pipe = place.root / "proc/driver/nvidia/version"
    os.mkfifo(pipe)  # to open it waits for a writer
    with simulate("1xT4"):
        found = diagnose("python", place.root, seconds=0.5)
    os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
    (late,) = [one for one in found.findings if one.severity == "unknown"]
    assert (late.about, "in time" in late.problem) == ("the system", True)
    assert UNKNOWN not in (found.facts.packages, found.facts.front_end)


def test_files_that_can_hold_anything(place: Place) -> None:
    place.write("proc/driver/nvidia/version", "\0\x1b[31m\n" * 1000)
    place.write("sys/bus/pci/devices/x/vendor", "\xff")
    (place.root / "dev/nvidia-uvm").mkdir(parents=True)
    (place.root / "dev/nvidia0").symlink_to("nowhere")
    with simulate("1xT4", mask="\x1b[31m<i>"):
        found = diagnose("python", place.root)
        text, page = repr(found), found._repr_html_()
    assert [one for one in found.findings if one.severity == "unknown"] == []
    assert "\x1b" not in text + page + found.report()
    assert "<i>" not in page


# What others may read


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("/home/maria/x.py failed", "… failed"),
        ("open ~/x/y", "open …"),
        ("https://download.pytorch.org/whl/cu126", "https://download.pytorch.org/whl/cu126"),
        ("/dev/nvidia0 and /dev/sda", "/dev/nvidia0 and …"),
        ("GPU-2a000000-0000-4000-8000-01234567,MIG-1b000000-0000", "GPU-2a00…,MIG-1b00…"),
        ("MIG-GPU-8f3a1c52-0000-4000-8000-0123456789ab/1/0", "MIG-GPU-8f3a…"),
        ("by maria on gpu07, not marianne", "by … on …, not marianne"),
        ("CUDA 12.6: fine", "CUDA 12.6: fine"),
        ("uv pip --python '/home/maria braun/my env/python' torch", "uv pip --python '…' torch"),
        ("No such file: '/scratch/big secret/x.py'", "No such file: '…'"),
        ('open "~/big secret/x"', 'open "…"'),
        ("/home/maria braun/x.py failed", "… failed"),
        ("sudo sh -c 'modprobe -r nvidia_uvm'", "sudo sh -c 'modprobe -r nvidia_uvm'"),
        ("it's /dev/nvidia0 that isn't open", "it's /dev/nvidia0 that isn't open"),
    ],
)
def test_names_paths_and_uuids_are_left_out(text: str, without: str) -> None:
    assert without_private(text, ["/home/maria braun", "maria braun", "maria", "gpu07"]) == without


def test_a_report_names_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulate("4xA100-80GB"):
        uuid = str(gpu_magic.gpus()[2].uuid)
    hub = "maria@physics.example"  # a name that begins with a shorter one
    with monkeypatch.context() as patch, simulate("4xA100-80GB", mask=f"{uuid},/home/maria/x,chen,{hub}"):
        private = {"HOME": "/home/maria", "USER": "maria", "HOSTNAME": "chen", "JUPYTERHUB_USER": hub}
        for name, value in private.items():
            patch.setenv(name, value)
        found = gpu_magic.doctor()
        report = found.report()
    assert uuid in repr(found)
    assert f"{uuid[:8]}…" in report
    assert not [one for one in (uuid, "physics", *private.values()) if one in report]


def test_the_names_of_json_stay() -> None:
    """They are documented: another name for one of them breaks the programs that read it."""
    found = shown(Finding("wrong", "x", "y")).to_dict()
    assert list(found) == ["summary", "findings", "facts"]
    assert list(found["findings"][0]) == ["severity", "about", "problem", "effect", "fix", "public"]
    assert list(found["facts"])[:5] == ["machine", "kernel", "packages", "system", "front_end"]
    assert found["facts"]["machine"] is None
    with simulate("1xT4"):
        start_cuda()
        json.dumps(gpu_magic.doctor().to_dict())
