"""How a diagnosis is made and shown: the magic, the report, JSON, and sources and checks that fail."""

from __future__ import annotations

import json
import os
from dataclasses import FrozenInstanceError, replace
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.devices.inventory import Inventory
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.doctor.checks import check_front_end, check_leftovers
from gpu_magic.doctor.diagnosis import Diagnosis, diagnose, judge, without_private
from gpu_magic.doctor.facts import Build, Facts, Finding, Packages
from gpu_magic.process.front_end import FrontEnd, Pages
from gpu_magic.testing import simulate, start_cuda
from tests.doctor.conftest import inventory, kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

    from tests.conftest import Fresh
    from tests.doctor.conftest import Place


# The magic


def test_the_magic_shows_reports_and_writes_json(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    with simulate("4xA100-80GB", mask="'1'"):
        shell.run_line_magic("load_ext", "gpu_magic")

        def said(options: str = "") -> str:
            shell.run_line_magic("gpu_doctor", options)
            return capsys.readouterr().out

        shown = said()
        assert "Wrong: The quotes in CUDA_VISIBLE_DEVICES" in shown
        assert "      %gpus 1 --force\n" in shown
        assert "CUDA up to 13.0: fine\n" in shown
        report = said("--report")
        assert report.startswith("gpu_magic 0.1.0, Python 3.")
        assert "Wrong: The quotes" in report
        found = json.loads(said("--json"))
        assert found["facts"]["machine"]["simulated"] == "4xA100-80GB"
        assert found["facts"]["kernel"]["guard"]["state"] == "absent"
        assert found["facts"]["kernel"]["variables"]["mask"] == "'1'"
        for line, says in (
            ("torch", "its options are --report and --json"),
            ("--report --json", "--report and --json don't go together"),
            ("--repotr", "did you mean --report?"),
        ):
            shell.run_cell(f"%gpu_doctor {line}")
            assert says in "".join(capsys.readouterr())


def test_looking_changes_nothing_and_imports_nothing(fresh: Fresh) -> None:
    code = """
        import os, sys, gpu_magic
        before = dict(os.environ)
        gpu_magic.doctor()
        print([m for m in ("torch", "tensorflow", "jax", "keras", "cupy") if m in sys.modules])
        print(dict(os.environ) == before, gpu_magic.guard().state)
    """
    assert fresh(code, GPU_MAGIC_SIMULATE="2xA100-80GB") == "[]\nTrue State.ABSENT\n"


# What is shown


def shown(*findings: Finding, **facts: object) -> Diagnosis:
    return Diagnosis(findings, Facts(**facts))  # type: ignore[arg-type]


def test_each_finding_is_shown_with_what_mends_it() -> None:
    two = Finding(
        "wrong", "CuPy", "It is <b>wrong</b>.", "So it fails.", "pip uninstall x\npip install y\x1b"
    )
    found = shown(two, Finding("unknown", "x", "Not read."))
    assert repr(found).splitlines() == [
        "1 thing is wrong, 1 could not be read or checked.",
        "",
        "Wrong: It is <b>wrong</b>.",
        "  So it fails.",
        "      pip uninstall x",
        "      pip install y\ufffd",
        "",
        "Not known: Not read.",
    ]
    assert "pip uninstall x\npip install y\ufffd</pre>" in found._repr_html_()
    assert "<b>wrong" not in found._repr_html_()
    assert found.wrong == (two,)
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
    assert "do not tell" in rows["JAX"]
    assert rows["CUDA"] == "not started: the choice can still change"
    assert "built for CUDA 13.0\n" in repr(Diagnosis((Finding("wrong", "PyTorch", "No."),), facts))


def test_without_a_gpu_nothing_is_said_of_a_choice_and_nothing_called_fine() -> None:
    nothing = Inventory(problem="NVML is not here.")
    text = repr(Diagnosis((), Facts(nothing, kernel(nothing))))
    assert "choice" not in text
    assert "fine" not in text


def test_mig_and_compute_modes_are_told_of() -> None:
    machine = inventory("1xA100-80GB(3g.40gb,4g.40gb)")
    machine = replace(machine, gpus=(replace(machine[0], compute_mode="Prohibited"),))
    text = repr(Diagnosis((), Facts(machine)))
    assert "MIG, 2 instances" in text
    assert "compute mode Prohibited" in text


# This user's other processes, and the panel's page


def test_what_this_user_has_on_gpus() -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("train.py", "maria", 12 << 30, is_own=True)
        machine.gpus[0].run("other.py", "tom", 1 << 30)
        found = gpu_magic.gpus()
    (simulated,) = check_leftovers(Facts(found))
    assert "is yours too: it has 12.0 GiB on GPU 0" in simulated.what
    assert simulated.mend == ""  # nothing runs there that can be ended
    machine = replace(found, simulated="")
    pid = simulated.what.partition("pid ")[2].partition(")")[0]
    for program, mend in (("kernel", f"%gpu_ps end {pid}"), ("shell", f"kill {pid}")):
        (real,) = check_leftovers(Facts(machine, kernel(machine, program)))  # type: ignore[arg-type]
        assert real.mend == mend
    assert "train.py" not in real.public
    assert pid not in shown(real).report()


@pytest.mark.parametrize(
    ("front", "pages", "mends"),
    [
        (FrontEnd(True, "0.11.2", "5.0.17", "/opt/hub"), Pages(1, True), []),
        (
            FrontEnd(True, "", "5.0.17", "/opt/hub"),
            Pages(1, True),
            [],
        ),  # a page that answers has what it needs
        (FrontEnd(True, "", "5.0.17", "/opt/hub"), Pages(), ["/opt/hub/bin/python -m pip install anywidget"]),
        (FrontEnd(), Pages(1), ["pip install anywidget"]),
        (FrontEnd(), Pages(), []),
    ],
)
def test_the_page_s_side_of_the_panel(front: FrontEnd, pages: Pages, mends: list[str]) -> None:
    machine = inventory()
    facts = Facts(machine, kernel(machine), Packages(versions={"anywidget": "0.11.0"}), UNKNOWN, front, pages)
    found = list(check_front_end(facts))
    assert [one.mend for one in found] == mends
    assert not any("/opt" in one.public for one in found)
    assert list(check_front_end(replace(facts, kernel=kernel(machine, "ipython")))) == []


# What fails


def check_the_weather(_: Facts) -> Iterator[Finding]:
    yield Finding("wrong", "weather", "It rains.")
    raise RuntimeError("the barometer\nis broken")


def test_a_check_that_fails_costs_one_line() -> None:
    rain, failed = judge(Facts(packages=Packages()), checks=[check_the_weather]).findings
    assert rain.what == "It rains."
    assert failed.severity == "unknown"
    assert failed.what.endswith("RuntimeError: the barometer is broken")


def test_of_nothing_no_check_fails() -> None:
    """A source that could not be read is no trouble for a check."""
    assert repr(judge(Facts())) == "Nothing wrong was found."


def test_a_source_that_fails_is_one_line(fresh: Fresh) -> None:
    code = """
        import gpu_magic
        found = gpu_magic.doctor()
        print([(one.about, "8xNonsense" in one.what) for one in found.findings if one.severity == "unknown"])
        print(repr(found.facts.machine), found.facts.packages.versions["nvidia-ml-py"] != "")
    """
    said = "[('the GPUs', True), ('this process', True)]\nUNKNOWN True\n"
    assert fresh(code, GPU_MAGIC_SIMULATE="8xNonsense") == said


def test_a_file_system_that_does_not_answer_is_given_up(place: Place) -> None:
    (place.root / "proc/driver/nvidia").mkdir(parents=True)
    pipe = place.root / "proc/driver/nvidia/version"
    os.mkfifo(pipe)  # to open it waits for a writer
    with simulate("1xT4"):
        found = diagnose("python", place.root, seconds=0.5)
    os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
    (late,) = [one for one in found.findings if one.severity == "unknown"]
    assert (late.about, "in time" in late.what) == ("the system", True)
    assert found.facts.packages is not UNKNOWN
    assert found.facts.front_end is not UNKNOWN


def test_files_that_can_hold_anything(place: Place) -> None:
    place.write("proc/driver/nvidia/version", "\0\x1b[31m\n" * 1000)
    place.write("sys/bus/pci/devices/x/vendor", "\xff")
    (place.root / "dev").mkdir()
    (place.root / "dev/nvidia-uvm").mkdir()
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
        (
            "GPU-2a000000-0000-4000-8000-0123456789ab,MIG-1b000000-0000-4000-8000-0123456789ab",
            "GPU-2a00…,MIG-1b00…",
        ),
        ("MIG-GPU-8f3a1c52-0000-4000-8000-0123456789ab/1/0", "MIG-GPU-8f3a…"),
        ("by maria on gpu07", "by … on …"),
        ("marianne", "marianne"),
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
    names = ["/home/maria braun", "maria braun", "maria", "gpu07"]
    assert without_private(text, names) == without


def test_a_report_names_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulate("4xA100-80GB"):
        uuid = str(gpu_magic.gpus()[2].uuid)
    with monkeypatch.context() as patch, simulate("4xA100-80GB", mask=f"{uuid},/home/maria/x"):
        for name, value in (("HOME", "/home/maria"), ("USER", "maria"), ("HOSTNAME", "gpu07.example.org")):
            patch.setenv(name, value)
        found = gpu_magic.doctor()
        report = found.report()
    assert uuid in repr(found)
    assert f"{uuid[:8]}…" in report
    assert not [private for private in ("maria", "gpu07", uuid) if private in report]


def test_the_names_of_json_stay() -> None:
    """They are documented: another name for one of them breaks the programs that read it."""
    found = shown(Finding("wrong", "x", "y"), packages=Packages((Build("PyTorch", "2.13.0"),))).to_dict()
    assert list(found) == ["summary", "findings", "facts"]
    assert list(found["findings"][0]) == ["severity", "about", "what", "meaning", "mend", "public"]
    assert list(found["facts"])[:5] == ["machine", "kernel", "packages", "system", "front_end"]
    assert found["facts"]["machine"] is None
    with simulate("1xT4"):
        start_cuda()
        json.dumps(gpu_magic.doctor().to_dict())
