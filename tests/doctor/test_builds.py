"""The CUDA of a framework's build beside the driver's: real metadata in a folder."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from gpu_magic.devices.inventory import Inventory
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.doctor.checks import check_builds
from gpu_magic.doctor.facts import Build, Facts, Packages
from gpu_magic.doctor.sources import fitting_build, has_code, loaded_version
from tests.conftest import ROOT
from tests.doctor.conftest import inventory

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh
    from tests.doctor.conftest import Place

INDEX = "https://download.pytorch.org/whl"


def row(place: Place, framework: str) -> tuple[object, str]:
    build = place.builds()[framework]
    return build.built_for, build.runtime


# PyTorch


@pytest.mark.parametrize(
    ("cuda", "capability", "index"),
    [
        ("13.1", (8, 0), "cu130"),
        ("12.4", (8, 0), "cu126"),
        ("13.0", (7, 0), "cu126"),
        ("12.8", (12, 0), "cu128"),
        ("13.0", (12, 0), "cu130"),
    ],
)
def test_a_cpu_only_pytorch_comes_with_what_installs_one_for_the_driver(
    place: Place, cuda: str, capability: tuple[int, int], index: str
) -> None:
    place.install_torch("2.13.0+cpu", None)
    (found,) = place.judge(inventory("1xA100-80GB", capability, cuda_version=cuda), "kernel")
    assert (found.severity, found.what) == ("wrong", "PyTorch 2.13.0+cpu is a CPU-only build.")
    assert "restart the kernel" in found.meaning
    assert found.mend.splitlines() == [
        "%pip uninstall -y torch",
        f"%pip install torch --index-url {INDEX}/{index}",
    ]


def test_its_companions_are_installed_with_it(place: Place) -> None:
    place.install_torch("2.13.0+cpu", None)
    place.install("torchvision", "0.28.0+cpu")
    (found,) = place.judge(inventory())
    assert "install torch torchvision --index-url" in found.mend


@pytest.mark.parametrize(
    ("installer", "mend"),
    [
        ("uv", f"uv pip install torch --index-url {INDEX}/cu130 --python {sys.executable}"),
        ("conda", "https://pytorch.org/get-started/locally"),
    ],
)
def test_what_has_installed_it_installs_the_other_build(place: Place, installer: str, mend: str) -> None:
    (place.install_torch("2.13.0+cpu", None) / "INSTALLER").write_text(installer)
    (found,) = place.judge(inventory())
    assert found.mend.splitlines()[-1] == mend


@pytest.mark.parametrize(
    ("cuda", "more", "built"),
    [
        ("13.0", "", ("CUDA", "13.0")),
        (None, "", ("CPU", "")),
        (None, "hip: Optional[str] = '7.2.26015'", ("ROCm", "7.2.26015")),
        (None, "hip: Optional[str] = None\nxpu: Optional[str] = '20260001'", ("Intel's GPUs (XPU)", "")),
    ],
)
def test_its_file_tells_what_it_was_built_for(
    place: Place, cuda: str | None, more: str, built: tuple[str, str]
) -> None:
    place.install_torch("2.13.0", cuda, more=more)
    assert row(place, "PyTorch") == built
    found = place.judge(inventory())
    assert bool(found) == (built[0] != "CUDA")
    assert all(one.severity == "wrong" and "cu130" in one.mend for one in found)


def test_a_build_for_a_newer_major_version_than_the_driver_s(place: Place) -> None:
    place.install_torch("2.13.0", "13.0", label="+cu130")
    (found,) = place.judge(inventory(cuda_version="12.2"))
    assert found.severity == "wrong"
    assert "built for CUDA 13.0, and the driver runs CUDA up to 12.2" in found.what
    assert "580.65.06" in found.meaning
    assert found.mend.endswith("cu126")
    (old,) = place.judge(inventory(cuda_version="11.4"))
    assert old.mend == "https://pytorch.org/get-started/locally"  # no build for it is known


@pytest.mark.parametrize(("cuda", "driver"), [("12.8", "12.2"), ("11.7", "13.0"), ("12.6", "12.6")])
def test_an_older_build_runs_and_so_does_a_newer_minor_version(place: Place, cuda: str, driver: str) -> None:
    place.install_torch("2.7.0", cuda)
    assert place.judge(inventory(cuda_version=driver)) == []


@pytest.mark.parametrize(
    ("cuda", "capability", "has"),
    [
        ("12.6", (8, 0), True),
        ("12.6", (12, 0), False),
        ("12.8", (12, 0), True),
        ("12", (12, 0), True),
        ("11.7", (10, 0), False),
        ("13.0", (7, 0), False),
        ("13", (7, 5), True),
        ("12.5.1", (10, 0), False),
        ("12.10", (10, 0), True),
    ],
)
def test_which_gpus_a_cuda_has_code_for(cuda: str, capability: tuple[int, int], *, has: bool) -> None:
    assert has_code(cuda, capability) is has


def test_a_gpu_that_a_build_has_no_code_for(place: Place) -> None:
    place.install_torch("2.13.0", "13.0")
    (found,) = place.judge(inventory("1xV100-32GB"))
    assert found.severity == "wrong"
    assert "no code for GPU 0" in found.what
    (found,) = place.judge(inventory("1xV100-32GB+1xA100-80GB"))
    assert found.severity == "worth knowing"


def test_what_is_installed_since_the_import(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.install_torch("2.13.0", "13.0", label="+cu130")
    module = ModuleType("torch")
    module.__version__ = "2.13.0+cpu"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    (found,) = place.judge(inventory())
    assert found.what == "PyTorch 2.13.0+cpu is imported here. 2.13.0+cu130 was installed later."
    assert "restart Python" in found.meaning


# TensorFlow


def test_tensorflow_cpu(place: Place) -> None:
    place.install_tensorflow("tensorflow-cpu", "")
    (found,) = place.judge(inventory())
    assert found.what == "TensorFlow 2.21.0 is a CPU-only build."
    assert found.mend.splitlines() == [
        "python -m pip uninstall -y tensorflow-cpu",
        'python -m pip install "tensorflow[and-cuda]"',
    ]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("usr/lib/x86_64-linux-gnu/libcudnn.so.9", ""),
        ("apps/cudnn/9.3/lib/libcudnn.so.9", ""),  # as a cluster's modules put it into LD_LIBRARY_PATH
        ("proc/self/maps", "7f3a1c000000-7f3a1c200000 r--p 00000000 00:2a 11 /nix/store/x/libcudnn.so.9\n"),
        ("etc/ld.so.cache", "\0libcudnn.so.9\0/opt/cudnn/lib/libcudnn.so.9\0"),
    ],
)
def test_tensorflow_needs_cuda_s_libraries(place: Place, path: str, text: str) -> None:
    place.install_tensorflow("tensorflow", "12.5.1")
    place.install("nvidia-cudnn-cu13", "9.13.0.50")  # of another CUDA
    (found,) = place.judge(inventory())
    assert "lacks CUDA's libraries (cuDNN)" in found.what
    assert found.mend == 'python -m pip install "tensorflow[and-cuda]"'
    assert place.judge(Inventory()) == []  # without a GPU they are not missed
    place.write(path, text)
    assert place.judge(inventory(), library_path="/nowhere:/apps/cudnn/9.3/lib") == []


def test_pip_brings_them(place: Place) -> None:
    place.install_tensorflow("tensorflow", "12.5.1")
    place.install("nvidia-cudnn-cu12", "9.3.0.75")
    assert place.judge(inventory()) == []


# JAX and CuPy


@pytest.mark.parametrize(
    ("packages", "driver", "what", "mend"),
    [
        ("jax jaxlib", "13.0", "CPU-only", ['install -U "jax[cuda13]"']),
        ("jax jaxlib jax-cuda12-plugin jax-cuda12-pjrt", "13.0", "", []),
        (
            "jax jaxlib jax-cuda13-plugin",
            "12.2",
            "built for CUDA 13",
            ["uninstall -y jax-cuda13-plugin", 'install -U "jax[cuda12]"'],
        ),
        (
            "jax jaxlib jax-cuda13-plugin jax-cuda12-plugin jax-cuda12-pjrt",
            "13.0",
            "jax-cuda13-plugin and jax-cuda12-plugin are installed together",
            ["uninstall -y jax-cuda12-plugin jax-cuda12-pjrt", 'install -U "jax[cuda13]"'],
        ),
        (
            "cupy-cuda13x",
            "12.2",
            "built for CUDA 13",
            ["uninstall -y cupy-cuda13x", "install cupy-cuda12x"],
        ),
        (
            "cupy-cuda12x cupy-cuda11x",
            "12.2",
            "installed together",
            ["uninstall -y cupy-cuda12x cupy-cuda11x", "install cupy-cuda12x"],
        ),
        ("cupy", "13.0", "", []),
    ],
)
def test_jax_and_cupy_tell_by_their_packages(
    place: Place, packages: str, driver: str, what: str, mend: list[str]
) -> None:
    for name in packages.split():
        place.install(name, "0.10.2")
    found = place.judge(inventory(cuda_version=driver))
    assert [what in one.what for one in found] == [True] * bool(what)
    assert [line.removeprefix("python -m pip ") for one in found for line in one.mend.splitlines()] == mend


def test_conda_s_jaxlib_does_not_tell(place: Place) -> None:
    for name in ("jax", "jaxlib"):
        place.install(name, "0.7.2", installer="conda")
    assert place.builds()["JAX"].built_for is UNKNOWN
    assert place.judge(inventory()) == []


def test_jax_leaves_out_a_plugin_of_another_version(place: Place) -> None:
    for name, version in (("jax", "0.10.2"), ("jaxlib", "0.10.2"), ("jax-cuda13-plugin", "0.9.1")):
        place.install(name, version)
    (found,) = place.judge(inventory())
    assert "jax-cuda13-plugin is 0.9.1, jaxlib 0.10.2, and JAX leaves it out" in found.what


# One beside another, and what is odd


CPU_ONLY = Build("TensorFlow", "2.21.0", "CPU", distributions=("tensorflow-cpu",))
TORCH = Build("PyTorch", "2.13.0", "CUDA", "13.0", distributions=("torch",))


def severities(*builds: Build, machine: Inventory | None = None) -> list[tuple[str, str, bool]]:
    found = check_builds(Facts(inventory() if machine is None else machine, packages=Packages(builds)))
    return [(one.severity, one.about, bool(one.mend)) for one in found]


def test_a_cpu_only_build_beside_one_that_works_may_be_meant() -> None:
    assert severities(TORCH, CPU_ONLY) == [("worth knowing", "TensorFlow", True)]
    lacking = replace(CPU_ONLY, built_for="CUDA", runtime="12.5.1", lacks="cuDNN")
    assert severities(TORCH, lacking) == [("worth knowing", "TensorFlow", True)]


def test_the_framework_that_is_imported_comes_first() -> None:
    torch = replace(TORCH, built_for="CPU", runtime="", loaded="2.13.0")
    assert severities(torch, CPU_ONLY) == [("wrong", "PyTorch", True), ("worth knowing", "TensorFlow", True)]


def test_without_a_gpu_and_with_simulated_ones_a_cpu_only_build_is_no_fault() -> None:
    assert severities(CPU_ONLY, machine=Inventory()) == [("worth knowing", "TensorFlow", False)]
    simulated = inventory()
    simulated = replace(simulated, simulated="4xA100-80GB")
    assert severities(CPU_ONLY, machine=simulated) == [("worth knowing", "TensorFlow", False)]


def test_amd_s_gpus_need_a_build_for_rocm() -> None:
    amd = replace(inventory(), gpus=tuple(replace(gpu, vendor="amd") for gpu in inventory()))
    assert severities(TORCH, machine=amd) == [("wrong", "PyTorch", True)]
    assert severities(replace(TORCH, built_for="ROCm"), machine=amd) == []


def test_what_is_not_known_of_the_driver_gives_the_page() -> None:
    facts = Facts(inventory(cuda_version="nonsense"))
    assert fitting_build(CPU_ONLY, facts) == "https://www.tensorflow.org/install/pip"


def test_odd_installations_cost_nothing(place: Place) -> None:
    (place.packages / "torch").mkdir()  # a folder of the user's
    (place.packages / "jax-0.10.2.dist-info").mkdir()  # an installation that was interrupted
    (place.install("cupy", "14.0.0") / "INSTALLER").write_bytes(b"\xff")
    assert list(place.builds()) == ["CuPy"]


def test_a_module_that_loads_itself_when_it_is_asked_is_not_loaded(fresh: Fresh, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("print('loaded')\n__version__ = '1.0'")
    code = """
        import importlib.util
        import sys
        from gpu_magic.doctor.sources import loaded_version
        spec = importlib.util.find_spec("torch")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        sys.modules["torch"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        print([loaded_version("torch")])
    """
    assert fresh(code, PYTHONPATH=f"{tmp_path}:{ROOT}") == "['']\n"


@pytest.mark.parametrize(
    "odd", [object(), None, type("Odd", (), {"__dict__": property(lambda self: None)})()]
)
def test_what_is_no_module_is_not_loaded(monkeypatch: pytest.MonkeyPatch, odd: object) -> None:
    monkeypatch.setitem(sys.modules, "torch", odd)  # type: ignore[arg-type] # anything can stand there
    assert loaded_version("torch") == ""
