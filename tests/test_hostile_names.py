"""Other people's text in a page: whatever a name, a mask or a note holds, a notebook shows it as text.

Whoever shares a machine chooses what a process, a notebook or a task is called, and others' tables show it.
"""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_magic
from gpu_magic.cluster.cluster import Engine, EngineTable
from gpu_magic.devices.model import Claim, Gpu, GpuProcess, GpuStatus, Inventory, MigInstance, OtherGpus
from gpu_magic.devices.problems import Cause, GpuCause, GpuProblem, Problem
from gpu_magic.doctor.diagnosis import Diagnosis
from gpu_magic.doctor.facts import Build, DeviceFile, Facts, Finding, Kernel, Packages, System
from gpu_magic.fit.fit import Fit
from gpu_magic.gpus.choice import Choice, TooLate
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.select import Selection
from gpu_magic.gpus.table import Gpus
from gpu_magic.launch.output import Output, RankFolds
from gpu_magic.measure.record import CellUsage, GpuUsage, History, Sample
from gpu_magic.objects.memory import Freed
from gpu_magic.panel.front_end import Missing
from gpu_magic.panel.widget import fallback
from gpu_magic.park.park import Parking
from gpu_magic.process.drivers import State
from gpu_magic.process.given import Grant
from gpu_magic.process.guard import Guard
from gpu_magic.process.mask import MASK, Variables
from gpu_magic.process.watch import Start
from gpu_magic.processes.processes import OwnProcess, OwnProcesses
from gpu_magic.testing import simulate
from gpu_magic.text import html_block
from tests.conftest import ROOT
from tests.inputs import check_refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

# It closes an attribute in either quotes, and begins a tag and a character; and it fits into what is cut.
HOSTILE = "<b'\">&lt"
HARMLESS = "x" * len(HOSTILE)
GIB = 1 << 30
UUID = "GPU-1"
CLOSING_TAG = re.compile(r"</[a-z]")


def status(*processes: GpuProcess, claims: tuple[Claim, ...] = ()) -> GpuStatus:
    return GpuStatus(GIB, GIB, 1, 30, 50.0, processes, claims)


def gpu(name: str = "A100", of: GpuStatus | None = None, **more: Any) -> Gpu:
    return Gpu(0, UUID, name, "0", 80 * GIB, of or status(), **more)


def gpus(*there: Gpu, kernel: dict[str, Any] | None = None, **more: Any) -> Gpus:
    return Gpus(Inventory(there or (gpu(),), **more), **(kernel or {}))


def mine(name: str = "train.py", what: str = "", simulated: str = "") -> OwnProcesses:
    there = MigInstance("MIG-1", "MIG", 0, 0)
    process = OwnProcess(4711, name, what, "", {there: GIB}, "", 1, 1)
    return OwnProcesses([process], [there], simulated)


def engines(engine: Engine) -> EngineTable:
    other = Engine(1, (gpu(),), "node-b")
    return EngineTable([("0", one.gpus, "?", "idle") for one in (engine, other)])


def usage(code: str = "train()", problem: str = "", **of_gpu: Any) -> CellUsage:
    samples = tuple(Sample(float(at), GIB, 50) for at in range(5))
    used = {"name": "cuda:0", "gpu": "GPU 0", "uuid": UUID, "peak": GIB, "samples": samples, **of_gpu}
    return CellUsage(1, code, 0.0, 9.0, 1.0, 1.0, () if problem else (GpuUsage(**used),), problem)


def doctor(*findings: Finding, **facts: Any) -> Diagnosis:
    return Diagnosis(findings, Facts(**facts))


def doctor_of_kernel(**more: Any) -> Diagnosis:
    return doctor(
        kernel=Kernel(
            "kernel", Guard(State.LIVE), **{"variables": Variables(), "launched": Variables(), **more}
        )
    )


def choice(*there: Gpu, mask: str = "0", **more: Any) -> Choice:
    selection = Selection(there, {MASK: mask})
    return Choice(selection, is_applied=True, is_dry_run=False, is_simulated=False, **more)


def fit(part: str = "gradients", label: str = "GPU 0", note: str = "") -> Fit:
    return Fit({part: GIB}, None, None, {}, f"1.0 GiB: fits on {label}.", (note,))


def folds(folder: Path, title: str = "Rank 0", wrote: str = "text", error: str = "") -> RankFolds:
    """Return what is shown of a command that has ended, of which one rank has written something."""
    (folder / "rank").write_text(wrote)
    output = Output("0", title, lambda: [folder / "rank"])
    return RankFolds([output], (output, error) if error else None)


# What is hostile, and the page that shows it, or what shows itself as one.
PLACES: dict[str, Callable[[str, Path], Any]] = {
    "a GPU's name": lambda text, _: gpus(gpu(text)),
    "a GPU's problem": lambda text, _: gpus(gpu(problem=GpuProblem(GpuCause.ERROR, text))),
    "a MIG instance's name": lambda text, _: gpus(gpu(mig=(MigInstance("MIG-1", text, 0, 0),))),
    "a MIG instance's UUID": lambda text, _: gpus(gpu(mig=(MigInstance(text, "MIG", 0, 0),))),
    "a process's name": lambda text, _: gpus(gpu(of=status(GpuProcess(1, text, "tom", GIB)))),
    "a process's owner": lambda text, _: gpus(gpu(of=status(GpuProcess(1, "a.py", text, GIB)))),
    "a process's notebook": lambda text, _: gpus(
        gpu(of=status(GpuProcess(1, "ipykernel", "me", GIB, is_same_user=True, notebook=f"/home/{text}")))
    ),
    "a claim's owner": lambda text, _: gpus(gpu(of=status(claims=(Claim(text, 0.0),)))),
    "a claim's notebook": lambda text, _: gpus(gpu(of=status(claims=(Claim("tom", 0.0, 1, text),)))),
    "a launched task": lambda text, _: gpus(kernel={"launched": ((UUID, Claim("me", 0.0, 1, text)),)}),
    "the mask": lambda text, _: gpus(kernel={"now": Variables(f"GPU-{text}")}),
    "the order": lambda text, _: gpus(kernel={"now": Variables("0", text)}),
    "the inherited mask": lambda text, _: gpus(kernel={"inherited": Variables(f"GPU-{text}")}),
    "AMD's variable": lambda text, _: gpus(vendor="amd", kernel={"now": Variables(hip=text)}),
    "AMD's inherited variable": lambda text, _: gpus(vendor="amd", kernel={"inherited": Variables(hip=text)}),
    "the name of a GPU of the other vendor": lambda text, _: gpus(others=OtherGpus("amd", (text,))),
    "who gave the GPUs": lambda text, _: gpus(kernel={"grant": Grant(text)}),
    "what has started CUDA": lambda text, _: gpus(kernel={"guard": Guard(State.FROZEN, Start(cause=text))}),
    "what is wrong with a mask": lambda text, _: gpus(kernel={"now": Variables(f"{UUID},GPU-{text}")}),
    "why no GPU can be read": lambda text, _: gpus(problem=Problem(Cause.ERROR, text)),
    "why no figure can be read": lambda text, _: gpus(limitation=Problem(Cause.ERROR, text)),
    "the simulated machine": lambda text, _: gpus(simulated=text),
    "the driver's version": lambda text, _: gpus(driver_version=text),
    "CUDA's version": lambda text, _: gpus(cuda_version=text),
    "an engine's host": lambda text, _: engines(Engine(0, (gpu(),), text)),
    "an engine's GPU": lambda text, _: engines(Engine(0, (gpu(text),), "node-a")),
    "one's own process": lambda text, _: mine(text),
    "what one's own process is": lambda text, _: mine(what=text),
    "one's own processes on a simulated machine": lambda text, _: mine(simulated=text),
    "a finding": lambda text, _: doctor(Finding("wrong", "driver", text)),
    "the effect of a finding": lambda text, _: doctor(Finding("unknown", "driver", "It is old.", text)),
    "the fix of a finding": lambda text, _: doctor(
        Finding("wrong", "driver", "It is old.", "", f"rm a\n{text}")
    ),
    "the doctor's GPU": lambda text, _: doctor(machine=Inventory((gpu(text),))),
    "the doctor's driver": lambda text, _: doctor(machine=Inventory((gpu(),), text)),
    "the doctor's framework": lambda text, _: doctor(packages=Packages((Build(text, "2"),))),
    "the doctor's version": lambda text, _: doctor(packages=Packages((Build("JAX", text),))),
    "the doctor's mask": lambda text, _: doctor_of_kernel(variables=Variables(mask=text)),
    "the doctor's container": lambda text, _: doctor(system=System(container=text)),
    "the doctor's capabilities": lambda text, _: doctor(system=System(capabilities=text)),
    "the doctor's device files": lambda text, _: doctor(system=System(devices=(DeviceFile(f"/dev/{text}"),))),
    "the doctor's packages": lambda text, _: doctor(packages=Packages(versions={"ipython": text})),
    "a chosen GPU": lambda text, _: choice(gpu(text)),
    "another user of a chosen GPU": lambda text, _: choice(gpu(of=status(claims=(Claim(text, 0.0),)))),
    "a variable that is restored": lambda text, _: choice(is_reset=True, mask=text),
    "what was freed": lambda text, _: Freed({}, {}, {text: GIB}, {}, {}, 0, f"Dropped {text}."),
    "what was parked": lambda text, _: Parking({text: GIB}, {}, {}, f"Parked {text}."),
    "why a choice came too late": lambda text, _: TooLate(
        Guard(State.FROZEN, Start(cause=text)), (), "", Options()
    ),
    "a part of a step": lambda text, _: fit(part=text),
    "the GPU that a step fits on": lambda text, _: fit(label=text),
    "what was assumed of a step": lambda text, _: fit(note=text),
    "a measured cell's code": lambda text, _: History([usage(text)]),
    "a measured cell's GPU": lambda text, _: History([usage(gpu=text)]),
    "the GPU beside a chart": lambda text, _: usage(gpu=text),
    "who counted the memory": lambda text, _: usage(peak_by=text),
    "why no GPU was measured": lambda text, _: usage(problem=text),
    "a cell's short line": lambda text, _: html_block(usage(gpu=text).summary(), ""),
    "what a panel's page lacks": lambda text, _: fallback(
        "key", "place", "", Missing(text, "pip install anywidget")
    ),
    "what mends a panel's page": lambda text, _: fallback(
        "key", "place", "", Missing("It is not there.", text)
    ),
    "a rank's title": lambda text, folder: folds(folder, title=text),
    "a rank's output": lambda text, folder: folds(folder, wrote=text),
    "a rank's error": lambda text, folder: folds(folder, error=f"Traceback\n{text}"),
}


class Page(HTMLParser):
    """What a browser makes of a page: its tags with their attributes, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.parts: list[Any] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parts.append((tag, [(name, plain(value or "")) for name, value in attrs]))

    def handle_endtag(self, tag: str) -> None:
        self.parts.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text += data
        if not (self.parts and isinstance(self.parts[-1], list)):
            self.parts.append([""])
        self.parts[-1][0] = plain(self.parts[-1][0] + data)

    def handle_comment(self, data: str) -> None:
        self.parts.append(("!", data))

    def handle_decl(self, decl: str) -> None:
        self.handle_comment(decl)

    unknown_decl = handle_pi = handle_comment


def plain(text: str) -> str:
    """Return what a harmless text would have given in its place."""
    return text.replace(HOSTILE, HARMLESS)


def html_of(shown: Any) -> str:
    return shown if isinstance(shown, str) else shown._repr_html_()


@pytest.mark.parametrize("place", PLACES)
def test_other_peoples_text_stays_text(place: str, shell: InteractiveShell, tmp_path: Path) -> None:
    hostile, harmless = (Page(html_of(PLACES[place](text, tmp_path))) for text in (HOSTILE, HARMLESS))
    assert HOSTILE in hostile.text
    assert hostile.parts == harmless.parts


def test_what_makes_html_is_in_the_table(shell: InteractiveShell, tmp_path: Path) -> None:
    modules, classes = set(), set()
    for file in (ROOT / "gpu_magic").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and CLOSING_TAG.search(node.value)
            ):
                modules.add(str(file.relative_to(ROOT / "gpu_magic")))
            if isinstance(node, ast.ClassDef) and "_repr_html_" in (
                getattr(one, "name", "") for one in node.body
            ):
                classes.add(node.name)
    shown = {type(place(HARMLESS, tmp_path)).__name__ for place in PLACES.values()}
    assert classes == shown - {"str"}
    assert modules == {
        "text.py",
        "doctor/diagnosis.py",
        "gpus/table.py",
        "fit/fit.py",
        "measure/record.py",
        "launch/output.py",
        "panel/widget.py",
    }


NAME = st.text(max_size=100) | st.sampled_from(
    ["</style><script>", "\x1b[2J", "\r", "\u2028", "</td>", "\u202e"]
)


@given(st.lists(NAME, min_size=5, max_size=5), st.text(max_size=20).filter(lambda mask: "\0" not in mask))
def test_any_names_of_the_machine_make_no_lines_and_no_tags_of_their_own(names: list[str], mask: str) -> None:
    """The names of a GPU, the driver, a program, its user and its notebook, read through pynvml."""
    tables = []
    for model, driver, program, user, notebook in (names, ["A100", "580.65", "train.py", "maria", "a.ipynb"]):
        with simulate("2xA100-80GB", mask=mask or "0", order="PCI_BUS_ID", clock=lambda: 0.0) as machine:
            first = machine.gpus[0]
            first.model = first.model._replace(name=cut(model, 90))
            machine.driver = cut(driver, 45)
            first.run(program, user, GIB, work=50, age=60, is_same_user=True, notebook=notebook)
            gpus = gpu_magic.gpus()
            lines = f"{gpus}\n{gpu_magic.my_processes()}".split("\n")
            try:
                lines += str(gpu_magic.choose("0", only_free=True, force=True)).split("\n")
            except gpu_magic.GpuMagicError as error:
                check_refusal(error)
            assert all(line.isprintable() for line in lines)
            page = Page(gpus._repr_html_())
            tables.append(
                (len(repr(gpus).split("\n")), {part[0] for part in page.parts if type(part) is tuple})
            )
    (hostile_lines, hostile_tags), (plain_lines, plain_tags) = tables
    assert hostile_lines == plain_lines
    assert hostile_tags <= plain_tags


def cut(name: str, most: int) -> str:
    """Return a name as long as NVML's can be, in bytes."""
    return name.encode(errors="replace")[:most].decode(errors="ignore")
