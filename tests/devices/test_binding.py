"""Other packages that are called pynvml, in place of nvidia-ml-py or over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
import pytest

from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh

PROGRAMS = ROOT / "tests" / "programs"
TOO_OLD = (
    "The module pynvml here is too old, or not NVIDIA's: pip uninstall pynvml, then "
    "pip install --force-reinstall nvidia-ml-py, and restart Python."
)


def test_an_old_pynvml_is_said_with_the_command_that_mends_it(fresh: Fresh) -> None:
    shown = fresh(
        "import gpu_magic; print(gpu_magic.gpus().problem)", PYTHONPATH=f"{PROGRAMS / 'pynvml_11'}:{ROOT}"
    )
    assert shown == f"{TOO_OLD}\n"


def test_with_an_old_pynvml_choosing_fails_in_one_line(fresh: Fresh) -> None:
    code = """
        import gpu_magic
        try:
            gpu_magic.choose(0)
        except gpu_magic.ChoiceError as error:
            print(error)
    """
    assert fresh(code, PYTHONPATH=f"{PROGRAMS / 'pynvml_11'}:{ROOT}") == f"{TOO_OLD}\n"


SAY = """
    import gpu_magic
    for ask in (lambda: gpu_magic.gpus(), lambda: gpu_magic.choose(0)):
        try:
            print(getattr(ask(), "problem", ""))
        except gpu_magic.GpuMagicError as error:
            print(error)
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "gpu_magic")
    import contextlib, sys
    for magic in shell.magics_manager.magics["line"]:
        if magic.startswith("gpu") and magic not in ("gpu_time", "gpu_launch", "gpu_fit", "gpu_free", "gpu_tasks"):
            with contextlib.redirect_stderr(sys.stdout):
                shell.run_cell(f"%{magic}")
    shell.Completer.complete("%gpus ")
"""
# Some of the magics can be explained without it.
EXPLAIN = """
    import contextlib, sys
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "gpu_magic")
    with contextlib.redirect_stderr(sys.stdout):
        for magic in shell.magics_manager.magics["line"]:
            if magic.startswith("gpu"):
                shell.run_cell(f"%{magic} --help")
                print(shell.object_inspect(f"%{magic}")["docstring"])
"""


@pytest.mark.parametrize("code", ["", "import nothing_of_this_name", "raise SystemError('x')", "1 +"])
def test_a_file_of_ones_own_that_hides_it_is_named(fresh: Fresh, tmp_path: Path, code: str) -> None:
    (tmp_path / "pynvml.py").write_text(code)
    said = fresh(SAY, PYTHONPATH=f"{tmp_path}:{ROOT}").splitlines()
    mend = f"{tmp_path}/pynvml.py hides NVIDIA's module of this name: rename it, and restart Python."
    assert len(said) > 6
    assert [line for line in said if mend not in line] == []


def test_the_help_of_magics_has_no_traceback(fresh: Fresh, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("")
    said = fresh(EXPLAIN, PYTHONPATH=f"{tmp_path}:{ROOT}")
    mend = f"{tmp_path}/pynvml.py hides NVIDIA's module of this name: rename it, and restart Python."
    assert said.count(mend) >= 4  # twice for %gpus, and for others
    assert "Traceback" not in said
    assert "gpu_magic/" not in said


def test_nvidia_s_own_module_works_wherever_it_lies(fresh: Fresh, tmp_path: Path) -> None:
    """Also without what pip notes of it, as where it was copied to a cluster's nodes."""
    (tmp_path / "pynvml.py").symlink_to(pynvml.__file__)
    code = "import gpu_magic; gpu_magic.gpus(); print(gpu_magic.devices.binding.pynvml.__file__)"
    assert fresh(code, PYTHONPATH=f"{tmp_path}:{ROOT}") == f"{tmp_path}/pynvml.py\n"


def test_without_it_the_command_that_installs_it_is_said(fresh: Fresh) -> None:
    """Python's own modules only, and those of ours."""
    hide = """
        import sys
        class Hide:
            def find_spec(self, name, path=None, target=None):
                if name == "pynvml":
                    raise ModuleNotFoundError("No module named 'pynvml'", name=name)
        sys.meta_path.insert(0, Hide())
        import gpu_magic
        try:
            gpu_magic.gpus()
        except gpu_magic.BindingError as error:
            print(error)
    """
    mend = "pip install --force-reinstall nvidia-ml-py, and restart Python."
    says = f"NVIDIA's package nvidia-ml-py can't be imported: {mend}"
    assert fresh(hide) == f"{says}\n"


def test_the_warning_of_a_wrapper_is_not_shown_in_our_name(fresh: Fresh) -> None:
    code = """
        import warnings
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            import gpu_magic
            gpu_magic.gpus()
        import pynvml
        print([str(warning.message) for warning in shown])
    """
    assert fresh(code, PYTHONPATH=f"{PROGRAMS / 'pynvml_13'}:{ROOT}") == "[]\n"


def test_the_wrapper_s_stand_in_does_warn_others(fresh: Fresh) -> None:
    code = """
        import warnings
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            import pynvml
        print(len(shown))
    """
    assert fresh(code, PYTHONPATH=f"{PROGRAMS / 'pynvml_13'}:{ROOT}") == "1\n"
