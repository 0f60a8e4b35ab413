"""NVIDIA's binding: what hides it or is too old, and what is known of GPUs where its library is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
import pytest

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.nvml import Nvml
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select
from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Fresh

PROGRAMS = ROOT / "tests" / "programs"
TOO_OLD = (
    "The module pynvml is too old, or not NVIDIA's. Restart Python after this: "
    "pip uninstall -y pynvml && pip install --force-reinstall nvidia-ml-py"
)
ASK = """
    import gpu_magic
    for ask in (lambda: gpu_magic.gpus(), lambda: gpu_magic.choose(0)):
        try:
            print(getattr(ask(), "problem", ""))
        except gpu_magic.GpuMagicError as error:
            print(error)
"""
# Some of the magics can be explained without it.
MAGICS = """
    import contextlib, sys
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "gpu_magic")
    without = ("gpu_time", "gpu_launch", "gpu_fit", "gpu_free", "gpu_park", "gpu_tasks", "gpu_unpark")
    with contextlib.redirect_stderr(sys.stdout):
        for magic in shell.magics_manager.magics["line"]:
            if magic.startswith("gpu") and magic not in without:
                shell.run_cell(f"%{magic}")
        print("HELP")
        for magic in shell.magics_manager.magics["line"]:
            if magic.startswith("gpu"):
                shell.run_cell(f"%{magic} --help")
                print(shell.object_inspect(f"%{magic}")["docstring"])
    shell.Completer.complete("%gpus ")
"""


def test_an_old_pynvml_is_told_with_the_command_that_mends_it(fresh: Fresh) -> None:
    assert fresh(ASK, PYTHONPATH=f"{PROGRAMS / 'pynvml_11'}:{ROOT}") == f"{TOO_OLD}\n" * 2


@pytest.mark.parametrize("code", ["", "import nothing_of_this_name", "raise SystemError('x')", "1 +"])
def test_a_file_of_ones_own_that_hides_it_is_named(fresh: Fresh, tmp_path: Path, code: str) -> None:
    (tmp_path / "pynvml.py").write_text(code)
    mend = f"{tmp_path}/pynvml.py hides NVIDIA's module of this name. Rename it, then restart Python."
    assert fresh(ASK, PYTHONPATH=f"{tmp_path}:{ROOT}") == f"{mend}\n" * 2
    if not code:
        ran, helped = fresh(MAGICS, PYTHONPATH=f"{tmp_path}:{ROOT}").split("HELP\n")
        assert len(ran.splitlines()) > 4
        assert [line for line in ran.splitlines() if mend not in line] == []
        assert helped.count(mend) >= 2  # of the magics whose help needs it
        assert "Traceback" not in helped
        assert "gpu_magic/" not in helped


def test_nvidia_s_own_module_works_wherever_it_lies(fresh: Fresh, tmp_path: Path) -> None:
    """Also without what pip notes of it, as where it was copied to a cluster's nodes."""
    (tmp_path / "pynvml.py").symlink_to(pynvml.__file__)
    code = "import gpu_magic; gpu_magic.gpus(); print(gpu_magic.devices.binding.pynvml.__file__)"
    assert fresh(code, PYTHONPATH=f"{tmp_path}:{ROOT}") == f"{tmp_path}/pynvml.py\n"


def test_without_it_the_command_that_installs_it_is_told(fresh: Fresh) -> None:
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
    mend = "Restart Python after this: pip install --force-reinstall nvidia-ml-py"
    assert fresh(hide) == f"NVIDIA's package nvidia-ml-py cannot be imported. {mend}\n"


@pytest.mark.parametrize(("first", "warnings"), [("gpu_magic.gpus()", 0), ("import pynvml", 1)])
def test_the_warning_of_a_wrapper_is_not_shown_in_our_name(fresh: Fresh, first: str, warnings: int) -> None:
    code = f"""
        import warnings
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            import gpu_magic
            {first}
        import pynvml
        print(len(shown))
    """
    assert fresh(code, PYTHONPATH=f"{PROGRAMS / 'pynvml_13'}:{ROOT}") == f"{warnings}\n"


# GPUs without NVML, as in a container without the driver capability "utility": what /proc tells of them.
UUIDS = tuple(f"GPU-{number}a000000-0000-4000-8000-0123456789ab" for number in range(4))
UNUSED = "GPU-????????-????-????-????-????????????"  # before its first use
INFORMATION = """\
Model: \t\t NVIDIA A100-SXM4-80GB
IRQ:   \t\t 79
GPU UUID: \t {uuid}
Video BIOS: \t 92.00.45.00.03
Device Minor: \t {minor}
GPU Excluded:\t {excluded}
"""


class _MissingLibrary:
    """What lies beneath pynvml where libnvidia-ml.so.1 is missing, also on a machine that has it."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: int(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Nvml]:
    """Return a reader in a container without NVML, and a way to put GPUs there; by default it can use them."""
    monkeypatch.setattr(pynvml, "nvmlLib", _MissingLibrary())
    monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    def put(*gpus: tuple[str, str, int], excluded: str = "No", can_be_used: bool = True) -> Nvml:
        for bus_id, uuid, minor in gpus:
            folder = tmp_path / "proc/driver/nvidia/gpus" / bus_id
            folder.mkdir(parents=True)
            facts = {"uuid": uuid, "minor": minor, "excluded": excluded}
            (folder / "information").write_text(INFORMATION.format(**facts))
            (tmp_path / "dev").mkdir(exist_ok=True)
            if can_be_used:
                (tmp_path / f"dev/nvidia{minor}").touch()
        return Nvml(root=tmp_path)

    return put


def test_without_nvml_gpus_are_known_by_proc_and_can_be_chosen(container: Callable[..., Nvml]) -> None:
    """It was given three of five; minors are not in bus order."""
    container(("0000:0b:00.0", UUIDS[3], 0), can_be_used=False)
    container(("0000:0c:00.0", UUIDS[3], 9), excluded="Yes")
    nvml = container(*zip(("0000:07:00.0", "0000:48:00.0", "0000:c8:00.0"), UUIDS, (3, 1, 2), strict=False))
    machine = nvml.inventory()
    assert [(gpu.index, gpu.uuid) for gpu in machine] == list(enumerate(UUIDS[:3]))
    assert (machine[0].name, machine[1].bus_id) == ("NVIDIA A100-SXM4-80GB", "00000000:48:00.0")
    assert machine[0].memory_total is machine[0].status.memory_used is machine[0].is_busy is UNKNOWN
    assert machine.problem is None
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in str(machine.limitation)
    for wanted, mask in [("2,0", "2,0"), ("GPU-1a", "1"), ("all", "0,1,2")]:
        selection = select(parse(wanted), machine, (None, None))
        assert (selection.mask, selection.variables["CUDA_DEVICE_ORDER"]) == (mask, "PCI_BUS_ID")
    with pytest.raises(ChoiceError, match="can pick no GPU"):
        select(parse("auto"), machine, (None, None))


def test_the_only_gpu_is_picked_and_a_uuid_that_is_not_known_yet_is_unknown(
    container: Callable[..., Nvml],
) -> None:
    only = container(("0000:07:00.0", UUIDS[0], 0)).inventory()
    assert select(parse("auto"), only, (None, None)).mask == "0"
    both = container(("0000:0b:00.0", UNUSED, 1)).inventory()
    assert both[1].uuid is UNKNOWN
    assert select(parse("1"), both, (None, None)).mask == "1"


def test_gpus_that_were_not_given_to_a_container_are_none(container: Callable[..., Nvml]) -> None:
    inventory = container(("0000:07:00.0", UUIDS[0], 0), can_be_used=False).inventory()
    assert len(inventory) == 0
    assert "NVML is missing" in str(inventory.problem)
