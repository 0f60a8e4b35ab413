"""`%load_ext gpu_magic` loads little, and everything works from then on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from traitlets import TraitError

from tests.conftest import ROOT

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tests.conftest import Fresh

ANSI = re.compile(r"\x1b\[[0-9;]*m")
LOAD = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
before = set(sys.modules)
shell.run_line_magic("load_ext", "gpu_magic")
"""


def test_it_loads_what_watches_and_nothing_else(fresh: Fresh) -> None:
    shown = fresh(
        f"{LOAD}\nprint(*sorted(name for name in set(sys.modules) - before if 'gpu_magic' in name))"
    )
    process = (".process", ".process.drivers", ".process.environment", ".process.watch")
    modules = ("", ".finders", ".interrupts", *process, ".shell", ".shell.cells", ".shell.extension")
    assert shown.split() == [f"gpu_magic{module}" for module in modules]


def test_two_shells_can_have_it(fresh: Fresh) -> None:
    shown = fresh(
        f"{LOAD}\none, two = InteractiveShell(), InteractiveShell()\n"
        "for each in (one, two):\n    each.run_line_magic('load_ext', 'gpu_magic')\n"
        "for each in (two, one):\n    each.run_line_magic('unload_ext', 'gpu_magic')\n"
        "print(*(each.input_transformers_post + each.events.callbacks['post_run_cell'] for each in (one, two)))"
    )
    assert shown == "[] []\n"


@pytest.mark.parametrize(
    ("magic", "says", "file"),
    [
        ("%gpus", "Show the GPUs of this machine", "gpus/magic.py"),
        ("%%on_gpu", "Run a cell on one GPU", "on_gpu/magic.py"),
        ("%where", "the devices that hold variables", "objects/magic.py"),
        ("%to_gpu", "Move variables, with all that they hold, to a GPU", "move/magic.py"),
        ("%to_cpu", "Move variables to the CPU", "move/magic.py"),
        ("%gpu_free", "Free GPU memory", "objects/magic.py"),
        ("%gpu_panel", "live panel", "panel/magic.py"),
        ("%gpu_doctor", "and the commands that fix it", "doctor/magic.py"),
    ],
)
def test_help_is_the_magic_s_own(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], magic: str, says: str, file: str
) -> None:
    shell.run_line_magic("load_ext", "gpu_magic")
    shell.run_cell(f"{magic}?")
    shown = capsys.readouterr().out
    assert says in shown
    assert f"gpu_magic/{file}" in shown
    shell.run_cell(f"{magic}??")
    assert f"def {magic.strip('%')}" in ANSI.sub("", capsys.readouterr().out)


def test_all_of_them_are_listed(shell: InteractiveShell) -> None:
    shell.run_line_magic("load_ext", "gpu_magic")
    docs = shell.magics_manager.lsmagic_docs(brief=True)
    assert docs["cell"]["on_gpu"].startswith("Run a cell on one GPU")
    assert {"gpus", "where", "to_gpu", "to_cpu", "gpu_free", "gpu_panel"} <= docs["line"].keys()
    assert docs["line"]["where"].startswith("Show the devices")


def test_the_page_looks_for_a_kernel_s_panel_after_each_of_them(shell: InteractiveShell) -> None:
    lists = shell.magics_manager.magics.values()
    before = {name for names in lists for name in names}
    shell.run_line_magic("load_ext", "gpu_magic")
    page = (ROOT / "gpu_magic" / "labextension" / "page" / "extension.js").read_text(encoding="utf-8")
    mentions = re.search(r"^const MENTIONS =\s+/gpu_magic\|%\(([\w|]+)\)\\b/;$", page, re.MULTILINE)
    assert mentions
    assert set(mentions[1].split("|")) == {name for names in lists for name in names} - before


def test_the_configuration_is_listed_shown_and_set(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_line_magic("load_ext", "gpu_magic")
    shell.run_line_magic("config", "")
    assert "    GpuMagics\n" in capsys.readouterr().out
    shell.run_line_magic("config", "GpuMagics")
    shown = capsys.readouterr().out
    assert "GpuMagics.on_frozen=<Enum>" in shown
    assert "Current: 'warn'" in shown
    shell.run_line_magic("config", "GpuMagics.on_frozen = 'error'")
    assert shell.run_line_magic("config", "GpuMagics.on_frozen") == "error"


@pytest.mark.parametrize("value", ["False", "'off'", "0", "None", "''"])
def test_each_value_that_means_off_turns_claims_off(shell: InteractiveShell, value: str) -> None:
    shell.run_line_magic("load_ext", "gpu_magic")
    shell.run_line_magic("config", f"GpuMagics.claims = {value}")
    assert shell.run_line_magic("config", "GpuMagics.claims") is False
    shell.run_line_magic("config", "GpuMagics.claims = True")


def test_a_bad_value_in_the_configuration_adds_nothing(shell: InteractiveShell) -> None:
    shell.config.GpuMagics.on_frozen = "explode"
    with pytest.raises(TraitError, match="on_frozen") as refused:
        shell.run_line_magic("load_ext", "gpu_magic")
    (line,) = refused.value._render_traceback_()  # type: ignore[attr-defined] # IPython's protocol
    assert line.endswith("It is in IPython's configuration; gpu_magic is not loaded.")
    assert shell.find_line_magic("gpus") is None
    shell.config.GpuMagics.on_frozen = "error"
    shell.run_line_magic("load_ext", "gpu_magic")
    assert shell.run_line_magic("config", "GpuMagics.on_frozen") == "error"
