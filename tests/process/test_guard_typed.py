"""The guard as it is met by those who type, in a shell in process: what is said once CUDA has started, and why it did."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.process.drivers import Driver, use_driver
from gpu_magic.testing import start_cuda
from tests.eight_gpus import registered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpu_magic.testing import Machine
    from tests.conftest import Fresh, Typed


def started(typed: Typed, choice: str = "") -> None:
    """Choose, and start CUDA before the next cell ends."""
    if choice:
        typed(f"%gpus {choice}")
    start_cuda()
    typed("1")


def mask() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.usefixtures("machine")
def test_the_same_choice_again_is_fine_and_another_changes_nothing(typed: Typed) -> None:
    started(typed, "2,0")
    uuids = typed("import gpu_magic; [gpu.uuid for gpu in gpu_magic.gpus()]").value
    for same in ("2,0", f"{uuids[2]},{uuids[0]}", "2,0 --strict"):
        done = typed(f"%gpus {same}")
        assert done.error is None
        assert done.text.startswith("cuda:0 = GPU 2")
        assert "Too late" not in done.text
    order = typed("%gpus 0,2").text
    assert "Only the order differs: GPU 0 and GPU 2 are visible as cuda:1 and cuda:0." in order
    inside = typed("%gpus 0").text
    assert "order" not in inside
    assert "\n  one cell: %%on_gpu 1\n" in inside
    assert "a script: %gpu_launch --gpus 0 python train.py\n" in inside
    outside = typed("%gpus 1").text
    assert "keeps GPU 2 (cuda:0), GPU 0 (cuda:1)." in outside
    assert "A script can use GPU 1 without a restart: %gpu_launch --gpus 1 python train.py\n" in outside
    assert mask() == "2,0"


def test_auto_again_keeps_what_it_has_also_after_a_reload(typed: Typed, machine: Machine) -> None:
    started(typed, "auto")
    machine.gpus[0].run("train.py", "maria", 60 << 30, work=90)
    assert typed("%gpus auto").text.startswith("cuda:0 = GPU 0")
    assert "Too late" in typed("%gpus auto:2").text
    typed("%reload_ext gpu_magic")
    assert typed("%gpus auto").text.startswith("cuda:0 = GPU 0")


@pytest.mark.machine("4xA100-80GB", mask="0")
@pytest.mark.usefixtures("machine")
def test_the_advice_is_what_was_typed(typed: Typed) -> None:
    started(typed)
    said = typed("%gpus 1 --force").text
    assert "Before CUDA starts: %gpus 1 --force\n" in said
    assert "%gpu_launch --gpus 1 --force python train.py\n" in said


@pytest.mark.usefixtures("machine")
def test_what_is_done_to_the_variable_after_cuda_has_read_it(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(typed, "1,3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    shown = typed("%gpus").text
    assert "was changed after CUDA started. This process keeps GPU 1 (cuda:0)" in shown
    said = typed("%gpus 1,3 --dry-run").text
    assert "CUDA_VISIBLE_DEVICES is '0'. It would be '1,3' again, as when CUDA started." in said
    assert mask() == "0"
    assert "was '0'. It is '1,3' again, as when CUDA started." in typed("%gpus 1,3").text
    assert mask() == "1,3"


@pytest.mark.usefixtures("machine")
def test_a_choice_within_the_process(typed: Typed, tmp_path: Path) -> None:
    started(typed, "1,3")
    with registered(tmp_path):  # a framework that is imported
        assert "cuda:0 = GPU 1" in typed("%gpus auto --in-process").text
        assert "cuda:1 = GPU 3" in typed("%gpus all --in-process").text
    assert "%%on_gpu cpu runs a cell on the CPU" in typed("%gpus none --in-process").text


@pytest.mark.usefixtures("machine")
def test_what_was_never_changed_can_be_reset_and_all_are_all(typed: Typed) -> None:
    started(typed)
    assert "Too late" not in typed("%gpus reset").text
    value = typed("import gpu_magic; c = gpu_magic.choose('0-3', by='uuid'); (c.mask, c.is_applied)").value
    assert value == (None, True)


@pytest.mark.usefixtures("machine")
def test_a_driver_that_was_started_while_all_gpus_were_hidden_keeps_none(typed: Typed) -> None:
    started(typed, "none")
    assert "This process has no GPU" in typed("%gpus 0").text


@pytest.mark.usefixtures("machine")
def test_filters_of_warnings_are_for_the_function_alone(typed: Typed) -> None:
    started(typed)
    typed("import warnings, gpu_magic")
    for action, count, error in (("ignore", 0, None), ("always", 3, None), ("error", 0, UserWarning)):
        begin = f"with warnings.catch_warnings(record=True) as caught:\n    warnings.simplefilter({action!r})\n    "
        done = typed(f"{begin}%gpus 1")
        assert done.text.startswith("Too late: cell [1] started CUDA.")
        done = typed(f"{begin}for _ in range(3): gpu_magic.choose(1)")
        assert isinstance(done.error, error or type(None))
        assert typed("len(caught)").value == count
    assert isinstance(typed("gpu_magic.choose('1', strict=True)").error, gpu_magic.CudaInitializedError)


@pytest.mark.usefixtures("machine")
def test_nobody_is_blamed_for_what_happened_while_nobody_watched(typed: Typed) -> None:
    typed("%unload_ext gpu_magic")
    started(typed)
    said = typed("import gpu_magic; print(gpu_magic.guard())").text
    assert said.startswith("CUDA has started. This process keeps GPU 0 (cuda:0)")
    assert "before gpu_magic was loaded" not in said


class CountingDriver(Driver):
    _names = ()
    asked = 0

    def is_started(self) -> bool:
        self.asked += 1
        return False


@pytest.mark.usefixtures("machine")
def test_the_watch_ends_when_cuda_has_started(typed: Typed) -> None:
    def watched() -> tuple[int, bool]:
        """Return how many finders there are, and whether the driver is asked after a cell."""
        driver = CountingDriver()
        before = use_driver(driver)
        typed("1")
        use_driver(before)
        return sum("gpu_magic" in type(one).__module__ for one in sys.meta_path), driver.asked > 0

    assert watched() == (1, True)
    started(typed)
    assert watched() == (0, False)
    assert "cell [2] started CUDA" in typed("%gpus 1").text
    assert typed("%reload_ext gpu_magic").text == ""
    assert "cell [2] started CUDA" in typed("%gpus 1").text


START = "start_cuda()"
PACKAGES = {
    "starter": f"import colorsys\nfrom gpu_magic.testing import start_cuda\n{START}\nimport another_of_tests",
    "late": f"from gpu_magic.testing import start_cuda\n{START}",
    "lazy": "def helper():\n    import sndhdr_of_tests",
    "late_parent/__init__": "",
    "late_parent/part": "import sndhdr_of_tests",
    "sndhdr_of_tests": "",
    "more_of_tests": "",
    "another_of_tests": "",
    "script": f"from gpu_magic.testing import start_cuda\n{START}",
}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, code in PACKAGES.items():
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(code)
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {each.partition("/")[0] for each in PACKAGES}:
            del sys.modules[name]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("cell", "by"),
    [
        ("import json\nimport starter", "(import starter)."),
        ("import starter\nimport more_of_tests", "(import starter)."),
        ("from starter import another_of_tests\nx = 1", "(import starter)."),
        ("import importlib; importlib.import_module('starter')\nx = 1", "(import starter)."),
        ("import late", "(import late)."),
        ("import late\nx = 1", "(import late, or a line after it)."),
        ("import late\nimport more_of_tests", "(import late, or a line after it)."),
        # An import that had ended long before is not to blame for what a line after it did.
        (
            f"import more_of_tests\n{START}\nimport lazy; lazy.helper()",
            "(import more_of_tests, or a line after it).",
        ),
        (f"import lazy\n{START}\nlazy.helper()", "(import lazy, or a line after it)."),
        (
            f"import more_of_tests\n{START}\nimport more_of_tests",
            "(import more_of_tests, or a line after it).",
        ),
        (f"try:\n    import not_there\nexcept ImportError:\n    pass\n{START}", "in cell [3]."),
        # Nor is one that a magic stands behind, or that had not yet run any code.
        ("import more_of_tests\n%run script.py", "(import more_of_tests, or a line after it)."),
        (
            f"import late_parent\n{START}\nimport late_parent.part",
            "(import late_parent, or a line after it).",
        ),
        (START, "in cell [3]."),
    ],
)
def test_it_names_the_import_as_far_as_it_can_be_told(
    typed: Typed, packages: Path, cell: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(packages)
    typed("from gpu_magic.testing import start_cuda")
    typed("%gpus 3")
    typed(cell)
    said = typed("import gpu_magic; print(gpu_magic.guard())").text
    assert "started in cell [3]" in said
    assert by in said


@pytest.mark.usefixtures("machine", "packages")
def test_the_import_that_finds_cuda_started_goes_on_to_the_next_finder(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finder that takes itself away in the middle of an import hides the one behind it from Python."""
    asked = []

    class Asked:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            asked.append(name)

    other = Asked()
    sys.meta_path.insert(1, other)
    typed("from gpu_magic.testing import start_cuda")
    typed(f"{START}\nimport sndhdr_of_tests")
    sys.meta_path.remove(other)
    assert "sndhdr_of_tests" in asked


def test_the_guard_asks_no_gpu_where_it_needs_none(fresh: Fresh) -> None:
    code = "import gpu_magic; print(gpu_magic.guard().state.value)"
    assert fresh(code, GPU_MAGIC_SIMULATE="bogus") == "absent\n"
