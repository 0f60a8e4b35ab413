"""Other packages that are called pynvml, in place of nvidia-ml-py or over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conftest import ROOT

if TYPE_CHECKING:
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
