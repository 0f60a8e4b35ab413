"""The CUDA of a framework's build beside the driver's: real metadata in a folder."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from gpu_magic.devices.model import UNKNOWN, Inventory
from gpu_magic.doctor.checks import check_builds
from gpu_magic.doctor.facts import Build, Facts, Packages
from gpu_magic.doctor.sources import has_code, loaded_version, read_packages
from tests.conftest import torch_build
from tests.doctor.conftest import AMD, inventory

if TYPE_CHECKING:
    from tests.doctor.conftest import Place

INDEX = "https://download.pytorch.org/whl"
PAGE = "https://pytorch.org/get-started/locally"
CPU_ONLY_BUILD = "2.13.0 is a CPU-only build."
OLD, AMPERE, BLACKWELL = (7, 0), (8, 0), (12, 0)  # compute capabilities


# PyTorch


@pytest.mark.parametrize(
    ("built_for", "driver", "capability", "says", "index"),
    [
        # Of another kind: what installs one for the driver and the GPU.
        ("", "13.1", AMPERE, CPU_ONLY_BUILD, "cu130"),
        ("", "12.4", AMPERE, CPU_ONLY_BUILD, "cu126"),
        ("", "13.0", OLD, CPU_ONLY_BUILD, "cu126"),
        ("", "12.8", BLACKWELL, CPU_ONLY_BUILD, "cu128"),
        ("", "13.0", BLACKWELL, CPU_ONLY_BUILD, "cu130"),
        ("", "nonsense", AMPERE, CPU_ONLY_BUILD, ""),
        ("hip 7.2.26015", "13.0", AMPERE, "built for ROCm, and this machine has NVIDIA's GPUs.", "cu130"),
        ("xpu 20260001", "13.0", AMPERE, "built for Intel's GPUs (XPU), and this machine has", "cu130"),
        # For a newer major version than the driver's, or without code for the GPU.
        ("cuda 13.0", "12.2", AMPERE, "built for CUDA 13.0, and the driver runs CUDA up to 12.2.", "cu126"),
        ("cuda 13.0", "11.4", AMPERE, "built for CUDA 13.0, and the driver runs CUDA up to 11.4.", ""),
        ("cuda 13.0", "13.0", OLD, "which has no code for GPU 0 (NVIDIA A100-SXM4-80GB, compute ", "cu126"),
        # An older one runs, and so does a newer minor version.
        ("cuda 12.8", "12.2", AMPERE, "", ""),
        ("cuda 11.7", "13.0", AMPERE, "", ""),
        ("cuda 12.6", "12.6", AMPERE, "", ""),
    ],
)
def test_pytorch_s_build_beside_the_driver_and_the_gpu(
    place: Place, built_for: str, driver: str, capability: tuple[int, int], *, says: str, index: str
) -> None:
    place.install_torch(built_for)
    found = place.judge(inventory("1xA100-80GB", capability, cuda_version=driver), "kernel")
    assert [one.severity for one in found] == ["wrong"] * bool(says)
    lines = (
        ["%pip uninstall -y torch", f"%pip install torch --index-url {INDEX}/{index}"] if index else [PAGE]
    )
    for one in found:
        assert says in one.what
        assert "restart the kernel" in one.meaning
        assert ("CUDA 13 needs the driver 580.65.06 or newer." in one.meaning) == ("up to" in says)
        assert one.mend.splitlines() == lines


def test_a_gpu_that_has_code_beside_one_that_has_none_is_worth_knowing(place: Place) -> None:
    place.install_torch("cuda 13.0")
    (found,) = place.judge(inventory("1xV100-32GB+1xA100-80GB"))
    assert found.severity == "worth knowing"


@pytest.mark.parametrize(
    ("installer", "lines"),
    [
        ("pip", ["python -m pip uninstall -y {0}", "python -m pip install {0} --index-url {1}"]),
        ("uv", ["uv pip uninstall {0} --python {2}", "uv pip install {0} --index-url {1} --python {2}"]),
        ("conda", [PAGE]),
    ],
)
def test_what_has_installed_it_installs_the_other_build_and_its_companions(
    place: Place, installer: str, lines: list[str]
) -> None:
    place.install_torch(installer=installer)
    place.install("torchvision", "0.28.0+cpu")
    (found,) = place.judge(inventory())
    values = ("torch torchvision", f"{INDEX}/cu130", sys.executable)
    assert found.mend.splitlines() == [line.format(*values) for line in lines]


def test_which_gpus_a_cuda_has_code_for() -> None:
    has = [("12.6", (8, 0)), ("12.8", (12, 0)), ("12", (12, 0)), ("13", (7, 5)), ("12.10", (10, 0))]
    lacks = [("12.6", (12, 0)), ("11.7", (10, 0)), ("13.0", (7, 0)), ("12.5.1", (10, 0))]
    assert [has_code(*pair) for pair in has + lacks] == [True] * len(has) + [False] * len(lacks)


def test_its_file_says_what_it_was_built_for_and_what_is_imported_is_older(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.install_torch("hip 7.2.26015", label="+rocm7.2")
    build = place.builds()["PyTorch"]
    assert (build.version, build.built_for, build.runtime) == ("2.13.0+rocm7.2", "ROCm", "7.2.26015")
    module = ModuleType("torch")
    module.__version__ = "2.13.0+cpu"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    (found,) = place.judge(inventory())
    assert found.what == "PyTorch 2.13.0+cpu is imported here. 2.13.0+rocm7.2 was installed later."
    assert "restart Python" in found.meaning


def test_the_pytorch_of_these_tests_is_what_it_says() -> None:
    (build,) = (one for one in read_packages(sys.path).builds if one.framework == "PyTorch")
    assert (build.version, build.built_for == "CUDA") == torch_build()


# The others

OF_JAX, PLUGIN, OLD_PLUGIN = "jax jaxlib", "jax-cuda13-plugin", "jax-cuda12-plugin jax-cuda12-pjrt"
NEW_JAX, OLD_JAX, OLD_CUPY = '-U "jax[cuda13]"', '-U "jax[cuda12]"', "cupy-cuda12x"
TENSORFLOW = '"tensorflow[and-cuda]"'


@pytest.mark.parametrize(
    ("packages", "driver", "says", "removed", "installed"),
    [
        (OF_JAX, "13.0", "CPU-only", "", NEW_JAX),
        (f"{OF_JAX} {OLD_PLUGIN}", "13.0", "", "", ""),
        (f"{OF_JAX} {PLUGIN}", "12.2", "built for CUDA 13", PLUGIN, OLD_JAX),
        (f"{OF_JAX} {PLUGIN} {OLD_PLUGIN}", "13.0", f"{PLUGIN} and jax-cuda12-plugin", OLD_PLUGIN, NEW_JAX),
        (f"{OF_JAX} {PLUGIN}=0.9.1", "13.0", f"{PLUGIN} is 0.9.1, jaxlib 0.10.2, and JAX", "", NEW_JAX),
        ("cupy-cuda13x", "12.2", "built for CUDA 13", "cupy-cuda13x", OLD_CUPY),
        (
            "cupy-cuda12x cupy-cuda11x",
            "12.2",
            "are installed together",
            "cupy-cuda12x cupy-cuda11x",
            OLD_CUPY,
        ),
        ("cupy", "13.0", "", "", ""),
        ("tensorflow-cpu", "13.0", "TensorFlow 0.10.2 is a CPU-only build.", "tensorflow-cpu", TENSORFLOW),
        ("tensorflow nvidia-cudnn-cu13", "13.0", "lacks CUDA's libraries (cuDNN)", "", TENSORFLOW),
        ("tensorflow nvidia-cudnn-cu12", "13.0", "", "", ""),
    ],
)
def test_what_their_packages_tell(
    place: Place, packages: str, driver: str, says: str, *, removed: str, installed: str
) -> None:
    for package in packages.split():
        name, _, its_version = package.partition("=")
        place.install(name, *filter(None, [its_version]))
    found = place.judge(inventory(cuda_version=driver))
    assert [says in one.what for one in found] == [True] * bool(says)
    lines = [f"python -m pip uninstall -y {removed}"] * bool(removed)
    lines += [f"python -m pip install {installed}"] * bool(installed)
    assert [line for one in found for line in one.mend.splitlines()] == lines


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("usr/lib/x86_64-linux-gnu/libcudnn.so.9", ""),
        ("apps/cudnn/9.3/lib/libcudnn.so.9", ""),  # as a cluster's modules put it into LD_LIBRARY_PATH
        ("proc/self/maps", "7f3a1c000000-7f3a1c200000 r--p 00000000 00:2a 11 /nix/store/x/libcudnn.so.9\n"),
        ("etc/ld.so.cache", "\0libcudnn.so.9\0/opt/cudnn/lib/libcudnn.so.9\0"),
    ],
)
def test_where_tensorflow_finds_cuda_s_libraries(place: Place, path: str, text: str) -> None:
    place.install("tensorflow")
    assert place.judge(Inventory()) == []  # without a GPU they are not missed
    assert len(place.judge(inventory())) == 1
    place.write(path, text)
    assert place.judge(inventory(), library_path="/nowhere:/apps/cudnn/9.3/lib") == []


# One beside another, and what is odd

CPU_ONLY = Build("TensorFlow", "2.21.0", "CPU", distributions=("tensorflow-cpu",))
LACKING = replace(CPU_ONLY, built_for="CUDA", runtime="12.5.1", lacks="cuDNN")
TORCH = Build("PyTorch", "2.13.0", "CUDA", "13.0", distributions=("torch",))
IMPORTED = replace(TORCH, built_for="CPU", runtime="", loaded="2.13.0")
ASIDE, WRONG = ("worth knowing", "TensorFlow"), ("wrong", "PyTorch")


@pytest.mark.parametrize(
    ("builds", "machine", "expected", "is_mended"),
    [
        # One that can't use the GPU, beside one that can, may be meant; the one that is imported is not.
        ([TORCH, CPU_ONLY], inventory(), [ASIDE], True),
        ([TORCH, LACKING], inventory(), [ASIDE], True),
        ([IMPORTED, CPU_ONLY], inventory(), [WRONG, ASIDE], True),
        # Without a GPU, and with simulated ones.
        ([CPU_ONLY], Inventory(), [ASIDE], False),
        ([CPU_ONLY], inventory(simulated="4xA100-80GB"), [ASIDE], False),
        # AMD's GPUs need a build for ROCm.
        ([TORCH], AMD, [WRONG], True),
        ([replace(TORCH, built_for="ROCm")], AMD, [], True),
    ],
)
def test_how_severe_it_is(
    builds: list[Build], machine: Inventory, expected: list[tuple[str, str]], *, is_mended: bool
) -> None:
    found = list(check_builds(Facts(machine, packages=Packages(tuple(builds)))))
    assert [(one.severity, one.about) for one in found] == expected
    assert all(bool(one.mend) == is_mended for one in found)


def test_odd_installations_cost_nothing(place: Place) -> None:
    (place.packages / "torch").mkdir()  # a folder of the user's
    (place.install("cupy", "14.0.0") / "INSTALLER").write_bytes(b"\xff")
    (place.packages / "jax-0.10.2.dist-info").mkdir()  # an installation that was interrupted
    assert list(place.builds()) == ["CuPy"]
    for name in ("jax", "jaxlib"):  # conda's jaxlib does not tell
        place.install(name, "0.7.2", installer="conda")
    assert place.builds()["JAX"].built_for is UNKNOWN
    assert place.judge(inventory()) == []


def test_what_is_no_module_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for odd in (object(), None, type("Odd", (), {"__dict__": property(lambda self: None)})()):
        monkeypatch.setitem(sys.modules, "torch", odd)
        assert loaded_version("torch") == ""
