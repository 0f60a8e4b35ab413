"""The CUDA of a framework's build beside the driver's: real metadata in a folder, read by a fresh process."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT
from tests.machine import CARDS, Driver

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh
    from tests.diagnosis.conftest import Machine

INDEX = "https://download.pytorch.org/whl"
TF_INFO = (
    '"""Auto-generated module providing information about the build."""\nimport collections\n\n'
    "build_info = collections.OrderedDict([('cpu_compiler', '/usr/lib/llvm-18/bin/clang'), {}])\n"
)
TF_CUDA = "('cuda_compute_capabilities', ['sm_60', 'compute_90']), ('cuda_version', '12.5.1'), ('is_cuda_build', True)"


def install_tensorflow(machine: Machine, name: str, version: str, values: str) -> None:
    machine.install(name, version)
    folder = machine.packages / "tensorflow" / "python" / "platform"
    folder.mkdir(parents=True)
    (machine.packages / "tensorflow" / "__init__.py").touch()
    (folder / "build_info.py").write_text(TF_INFO.format(values))


# PyTorch


@pytest.mark.parametrize(("cuda", "label"), [("13.0", "cu130"), ("12.4", "cu126")])
def test_a_cpu_only_pytorch_is_said_with_the_build_that_fits_the_driver(
    machine: Machine, cuda: str, label: str
) -> None:
    major, minor = cuda.split(".")
    machine.driver = Driver(CARDS, version="550.54.14", cuda=int(major) * 1000 + int(minor) * 10)
    machine.install_torch("2.13.0+cpu", None)
    page = machine.page()
    found = page.about("PyTorch")
    assert (found["severity"], found["what"]) == ("wrong", "PyTorch 2.13.0+cpu is a CPU-only build.")
    assert "torch.cuda.is_available() is False" in found["meaning"]
    assert found["mend"] == f"python -m pip install torch==2.13.0+{label} --index-url {INDEX}/{label}"
    assert page.text.splitlines()[0] == "1 thing is wrong."
    assert page.row("PyTorch") == "2.13.0+cpu, CPU only"
    assert page.loaded == []


def test_its_companions_are_installed_with_it(machine: Machine) -> None:
    machine.install_torch("2.13.0+cpu", None)
    machine.install("torchvision", "0.28.0+cpu")
    mend = machine.page().about("PyTorch")["mend"]
    assert "torch==2.13.0+cu130 torchvision==0.28.0+cu130 --index-url" in mend


@pytest.mark.parametrize(
    ("installer", "begins"),
    [("uv", f"uv pip install --python {sys.executable} torch=="), ("conda", "conda install ")],
)
def test_what_has_installed_it_installs_the_other_build(
    machine: Machine, installer: str, begins: str
) -> None:
    machine.install_torch("2.13.0+cpu", None)
    (machine.packages / "torch-2.13.0+cpu.dist-info" / "INSTALLER").write_text(installer)
    assert machine.page().about("PyTorch")["mend"].startswith(begins)


def test_the_wheel_of_pypi_tells_its_cuda_in_a_file(machine: Machine) -> None:
    machine.install_torch("2.13.0", "13.0", label="+cu130")
    page = machine.page()
    assert page.findings == []
    assert page.row("PyTorch") == "2.13.0+cu130, built for CUDA 13.0: fine"


@pytest.mark.parametrize(
    ("version", "requires", "row"),
    [
        ("2.6.0+cu124", (), "built for CUDA 12.4: fine"),
        (
            "2.7.0",
            ("nvidia-cuda-runtime-cu12==12.6.77; platform_system == 'Linux'",),
            "built for CUDA 12.6: fine",
        ),
        ("2.13.0", ("nvidia-cuda-runtime (==13.0.96)",), "built for CUDA 13.0: fine"),
        ("2.13.0+rocm7.2", (), "built for ROCm 7.2"),
        ("2.13.0", ("filelock",), "for a CUDA version that its files do not tell"),
    ],
)
def test_without_that_file_the_metadata_tells_it(
    machine: Machine, version: str, requires: tuple[str, ...], row: str
) -> None:
    machine.install("torch", version, *requires)
    assert machine.page().row("PyTorch") == f"{version}, {row}"


def test_a_build_for_a_newer_cuda_than_the_driver_s_is_said_with_the_driver_it_needs(
    machine: Machine,
) -> None:
    machine.driver = Driver(CARDS, version="535.104.05", cuda=12020)
    machine.install_torch("2.13.0", "13.0", label="+cu130")
    found = machine.page().about("PyTorch")
    assert found["severity"] == "wrong"
    assert found["what"] == (
        "PyTorch 2.13.0+cu130 was built for CUDA 13.0, and the driver (535.104.05) runs CUDA up to 12.2."
    )
    assert found["meaning"].startswith("CUDA 13 needs the driver 580.65.06 or newer. With this driver: ")
    assert found["mend"] == f"python -m pip install torch==2.13.0+cu126 --index-url {INDEX}/cu126"


def test_where_no_build_fits_the_driver_that_is_said(machine: Machine) -> None:
    machine.driver = Driver(CARDS, version="470.82.01", cuda=11040)
    machine.install_torch("2.13.0", "13.0", label="+cu130")
    found = machine.page().about("PyTorch")
    assert found["mend"] == ""
    assert "it needs a newer driver" in found["meaning"]


def test_a_newer_minor_release_runs_and_its_limit_is_said(machine: Machine) -> None:
    machine.driver = Driver(CARDS, version="535.104.05", cuda=12020)
    machine.install_torch("2.7.0", "12.8", label="+cu128")
    page = machine.page()
    assert page.findings == []
    assert "minor version compatibility" in page.row("PyTorch")
    assert "PTX" in page.row("PyTorch")
    assert page.row("PyTorch").endswith(": fine")


@pytest.mark.parametrize("version", ["2.14.0.dev20261101", "2.7.0a0"])
def test_a_version_that_is_published_nowhere_is_not_named(machine: Machine, version: str) -> None:
    machine.install_torch(version, None, label="+cpu")
    assert (
        machine.page()
        .about("PyTorch")["mend"]
        .startswith("python -m pip install --force-reinstall torch --index")
    )


def test_before_cuda_11_a_newer_minor_release_does_not_run(machine: Machine) -> None:
    machine.driver = Driver(CARDS, version="418.87.00", cuda=10010)
    machine.install_torch("1.12.1", "10.2", label="+cu102")
    assert machine.page().about("PyTorch")["severity"] == "wrong"


def test_a_copy_that_hides_another_one(machine: Machine, tmp_path: Path) -> None:
    machine.install_torch("2.13.0", "13.0", label="+cu130")
    machine.packages = tmp_path / "users"
    machine.packages.mkdir()
    machine.install_torch("2.12.0+cpu", None)
    machine.packages = tmp_path / "packages"
    page = machine.page(f"sys.path.insert(0, {str(tmp_path / 'users')!r})")
    cpu_only, several = page.all_about("PyTorch")
    assert cpu_only["what"] == "PyTorch 2.12.0+cpu is a CPU-only build."
    assert several["what"] == "PyTorch is installed more than once: 2.12.0+cpu hides 2.13.0."
    assert several["mend"] == "python -m pip uninstall -y torch"
    behind = machine.page(f"sys.path.append({str(tmp_path / 'users')!r})")
    assert (
        behind.findings == []
    )  # what is taken is fine, as in an environment that sees the system's packages


@pytest.mark.parametrize(
    ("vision", "mends"),
    [
        ("0.28.0+cpu", [f"python -m pip install torchvision==0.28.0+cu130 --index-url {INDEX}/cu130"]),
        ("0.28.0+cu126", [f"python -m pip install torchvision==0.28.0+cu130 --index-url {INDEX}/cu130"]),
        ("0.28.0+cu132", []),
        ("0.28.0", []),
        ("0.28.0a0+abc", []),
    ],
)
def test_a_companion_for_another_build(machine: Machine, vision: str, mends: list[str]) -> None:
    machine.install_torch("2.13.0", "13.0", label="+cu130")
    machine.install("torchvision", vision)
    assert [found["mend"] for found in machine.page().all_about("PyTorch")] == mends


def test_a_companion_of_one_s_own_is_not_named_as_published(machine: Machine) -> None:
    machine.install_torch("2.13.0+cpu", None)
    machine.install("torchvision", "0.28.0a0+abc")
    assert "torch==2.13.0+cu130 torchvision --index-url" in machine.page().about("PyTorch")["mend"]


def test_a_build_for_intel_s_gpus_is_no_cpu_only_build(machine: Machine) -> None:
    machine.install_torch("2.13.0", None, label="+xpu")
    file = machine.packages / "torch" / "version.py"
    file.write_text(file.read_text() + "rocm: Optional[str] = None\nxpu: Optional[str] = '20260001'\n")
    page = machine.page()
    assert page.wrong == [
        "PyTorch 2.13.0+xpu was built for Intel's GPUs (XPU), and this machine has NVIDIA's."
    ]
    assert page.row("PyTorch") == "2.13.0+xpu, built for Intel's GPUs (XPU)"


def test_an_old_build_runs_with_a_new_driver(machine: Machine) -> None:
    machine.install_torch("1.13.1", "11.7", label="+cu117")
    assert machine.page().findings == []


def test_what_is_installed_since_the_import_is_said(machine: Machine) -> None:
    machine.install_torch("2.13.0", None, label="+cpu")
    later = (
        "import torch; from pathlib import Path; file = Path(packages, 'torch', 'version.py'); "
        "file.write_text(file.read_text().replace('+cpu', '+cu130').replace('= None', \"= '13.0'\", 1))"
    )
    found = machine.page(later).about("PyTorch")
    assert found["what"] == "PyTorch 2.13.0+cpu is imported here, and 2.13.0+cu130 is installed since."
    assert found["mend"] == "Start Python anew."


def test_a_build_for_amd_s_gpus_is_wrong_here(machine: Machine) -> None:
    machine.install("torch", "2.13.0+rocm7.2")
    found = machine.page().about("PyTorch")
    assert "built for AMD's GPUs (ROCm), and this machine has NVIDIA's" in found["what"]
    assert "+cu130" in found["mend"]


@pytest.mark.parametrize(
    "left",
    ["nothing", "a folder of the user's", "a broken dist-info", "no package beside the metadata"],
)
def test_odd_installations_cost_nothing(machine: Machine, left: str) -> None:
    if left == "a folder of the user's":
        (machine.packages / "torch").mkdir()
    if left == "a broken dist-info":
        (machine.packages / "torch-2.13.0.dist-info").mkdir()
    if left == "no package beside the metadata":
        machine.install("jax", "0.10.2")
    page = machine.page()
    assert [finding for finding in page.findings if finding["severity"] == "unknown"] == []
    assert "PyTorch" not in page.text


@pytest.mark.parametrize(
    "odd",
    [
        "Path(packages, 'torch-2.13.0.dist-info', 'INSTALLER').write_bytes(b'\\xff')",
        "Path(packages, 'pynvml-13.0.1.dist-info', 'RECORD').write_bytes(b'\"a\\nb,\\xff,')",
        "sys.path += [b'/usr/lib', Path('/nowhere'), None, 3]",
        "sys.modules['torch'] = object()",
        "sys.modules['torch'] = None",
    ],
)
def test_one_thing_that_is_odd_does_not_hide_the_rest(machine: Machine, odd: str) -> None:
    machine.install_torch("2.13.0", "13.0", label="+cu130")
    machine.install("pynvml", "13.0.1")
    page = machine.page(odd)
    assert page.row("PyTorch") == "2.13.0+cu130, built for CUDA 13.0: fine"
    assert [finding["about"] for finding in page.findings] == ["NVML's binding"]


# TensorFlow


def test_tensorflow_cpu(machine: Machine) -> None:
    install_tensorflow(machine, "tensorflow-cpu", "2.21.0", "('is_cuda_build', False)")
    found = machine.page().about("TensorFlow")
    assert found["what"] == "TensorFlow 2.21.0 is a CPU-only build."
    assert found["mend"].splitlines() == [
        "python -m pip uninstall -y tensorflow-cpu",
        'python -m pip install "tensorflow[and-cuda]==2.21.0"',
    ]


def test_tensorflow_with_cuda_s_libraries_is_fine(machine: Machine) -> None:
    install_tensorflow(machine, "tensorflow", "2.21.0", TF_CUDA)
    machine.install("nvidia-cudnn-cu12", "9.3.0.75")
    page = machine.page()
    assert page.findings == []
    assert page.row("TensorFlow") == "2.21.0, built for CUDA 12.5.1: fine"


def test_tensorflow_without_cuda_s_libraries(machine: Machine) -> None:
    install_tensorflow(machine, "tensorflow", "2.21.0", TF_CUDA)
    found = machine.page().about("TensorFlow")
    assert "lacks CUDA's libraries (cuDNN)" in found["what"]
    assert "tensorflow[and-cuda]" in found["mend"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("usr/lib/x86_64-linux-gnu/libcudnn.so.9", ""),
        ("apps/cudnn/9.3/lib/libcudnn.so.9", ""),  # as a cluster's modules put it into LD_LIBRARY_PATH
        (
            "proc/self/maps",
            "7f3a1c000000-7f3a1c200000 r--p 00000000 00:2a 11 /nix/store/x/lib/libcudnn.so.9\n",
        ),
        ("etc/ld.so.cache", "\0libcudnn.so.9\0/opt/cudnn/lib/libcudnn.so.9\0"),
    ],
)
def test_tensorflow_finds_them_in_the_system(machine: Machine, path: str, text: str) -> None:
    install_tensorflow(machine, "tensorflow", "2.21.0", TF_CUDA)
    machine.write(path, text)
    library_path = f"{machine.native}:/apps/cudnn/9.3/lib"
    assert machine.page(LD_LIBRARY_PATH=library_path).findings == []


def test_tensorflow_does_not_find_those_of_another_cuda(machine: Machine) -> None:
    """PyTorch for CUDA 13 brings cuDNN, and cuBLAS for CUDA 13 alone."""
    install_tensorflow(machine, "tensorflow", "2.21.0", TF_CUDA)
    machine.install("nvidia-cudnn-cu13", "9.13.0.50")
    assert "lacks CUDA's libraries" in machine.page().about("TensorFlow")["what"]


def test_what_is_lacking_for_gpus_is_no_fault_without_one(machine: Machine) -> None:
    """`pip install tensorflow` and `jax[cuda12]` are common on machines that have no GPU."""
    machine.driver = None
    install_tensorflow(machine, "tensorflow", "2.21.0", TF_CUDA)
    for name, version in (("jax", "0.10.2"), ("jaxlib", "0.10.2"), ("jax-cuda12-plugin", "0.9.1")):
        machine.install(name, version)
    page = machine.page()
    assert page.all_about("TensorFlow") == page.all_about("JAX") == []


def test_what_a_framework_lacks_that_is_not_in_use_may_be_meant(machine: Machine) -> None:
    machine.install_torch("2.13.0", "13.0", label="+cu130")
    install_tensorflow(machine, "tensorflow", "2.21.0", TF_CUDA)
    page = machine.page()
    assert page.wrong == []
    assert page.about("TensorFlow")["severity"] == "worth knowing"


def test_another_tensorflow_is_removed_before(machine: Machine) -> None:
    """Both have the same files: what lies over each other is a finding of its own."""
    install_tensorflow(machine, "tf-nightly-cpu", "2.22.0.dev20261101", "('is_cuda_build', False)")
    assert machine.page().about("TensorFlow")["mend"].splitlines() == [
        "python -m pip uninstall -y tf-nightly-cpu",
        'python -m pip install "tf-nightly[and-cuda]==2.22.0.dev20261101"',
    ]


# JAX


def test_jaxlib_alone_is_cpu_only(machine: Machine) -> None:
    machine.install("jax", "0.10.2")
    machine.install("jaxlib", "0.10.2")
    found = machine.page().about("JAX")
    assert found["what"] == "JAX 0.10.2 is a CPU-only build."
    assert found["mend"] == 'python -m pip install "jax[cuda13]==0.10.2"'


def test_jax_with_its_plugin_is_fine(machine: Machine) -> None:
    for name in ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt"):
        machine.install(name, "0.10.2")
    page = machine.page()
    assert page.findings == []
    assert page.row("JAX") == "0.10.2, built for CUDA 12: fine"


def test_conda_s_jaxlib_does_not_tell(machine: Machine) -> None:
    for name in ("jax", "jaxlib"):
        machine.install(name, "0.7.2", installer="conda")
    page = machine.page()
    assert page.findings == []
    assert page.row("JAX") == "0.7.2, for a CUDA version that its files do not tell"


def test_jax_leaves_out_a_plugin_of_another_version(machine: Machine) -> None:
    for name, version in (("jax", "0.10.2"), ("jaxlib", "0.10.2"), ("jax-cuda12-plugin", "0.9.1")):
        machine.install(name, version)
    found = machine.page().about("JAX")
    assert "jax-cuda12-plugin is 0.9.1, jaxlib 0.10.2, and JAX leaves it out" in found["what"]


def test_jax_for_cuda_13_on_a_driver_of_12(machine: Machine) -> None:
    machine.driver = Driver(CARDS, version="535.104.05", cuda=12020)
    for name in ("jax", "jaxlib", "jax-cuda13-plugin"):
        machine.install(name, "0.10.2")
    assert machine.page().about("JAX")["mend"].splitlines() == [
        "python -m pip uninstall -y jax-cuda13-plugin",
        'python -m pip install "jax[cuda12]==0.10.2"',
    ]


def test_a_plugin_of_another_version_is_replaced_by_one_for_the_same_cuda(machine: Machine) -> None:
    """The driver runs CUDA 13, and a plug-in for CUDA 13 would leave the old one for CUDA 12 where it is."""
    for name, version in (("jax", "0.10.2"), ("jaxlib", "0.10.2"), ("jax-cuda12-plugin", "0.9.1")):
        machine.install(name, version)
    assert machine.page().about("JAX")["mend"] == 'python -m pip install "jax[cuda12]==0.10.2"'


def test_a_release_of_jax_without_cuda_13_gets_the_plugin_for_cuda_12(machine: Machine) -> None:
    """Of an extra that a release does not have pip says so, and installs the CPU's build."""
    machine.install("jax", "0.4.30", extras=["cuda", "cuda12", "cuda12-local"])
    machine.install("jaxlib", "0.4.30")
    assert machine.page().about("JAX")["mend"] == 'python -m pip install "jax[cuda12]==0.4.30"'


def test_a_jaxlib_that_jax_refuses(machine: Machine) -> None:
    """jax/_src/lib/__init__.py raises a RuntimeError for a newer one."""
    for name, version in (("jax", "0.9.0"), ("jaxlib", "0.10.2"), ("jax-cuda13-plugin", "0.10.2")):
        machine.install(name, version)
    found = machine.page().about("JAX")
    assert "jaxlib 0.10.2 is newer than it" in found["what"]
    assert found["mend"] == 'python -m pip install "jax[cuda13]==0.9.0"'


def test_two_plugins_of_jax(machine: Machine) -> None:
    for name in ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt", "jax-cuda13-plugin"):
        machine.install(name, "0.10.2")
    found = machine.page().about("JAX")
    assert (found["severity"], found["what"]) == (
        "worth knowing",
        "jax-cuda13-plugin and jax-cuda12-plugin are both installed.",
    )
    assert found["mend"] == "python -m pip uninstall -y jax-cuda12-plugin jax-cuda12-pjrt"


# CuPy


def test_cupy_for_a_newer_cuda(machine: Machine) -> None:
    machine.driver = Driver(CARDS, version="535.104.05", cuda=12020)
    machine.install("cupy-cuda13x", "14.0.0")
    assert machine.page().about("CuPy")["mend"].splitlines() == [
        "python -m pip uninstall -y cupy-cuda13x",
        "python -m pip install cupy-cuda12x",
    ]


def test_two_cupys_over_each_other(machine: Machine) -> None:
    machine.install("cupy-cuda12x", "13.6.0")
    machine.install("cupy-cuda11x", "13.6.0")
    found = machine.page().about("CuPy")
    assert found["severity"] == "worth knowing"
    assert found["mend"].splitlines() == [
        "python -m pip uninstall -y cupy-cuda12x cupy-cuda11x",
        "python -m pip install cupy-cuda12x",
    ]


def test_what_is_said_of_a_cupy_ends_once_it_is_done(machine: Machine) -> None:
    machine.driver = Driver(CARDS, version="535.104.05", cuda=12020)
    for name in ("cupy-cuda13x", "cupy-cuda12x"):  # as it was until now: the other one, installed over it
        machine.install(name, "14.0.0")
    mends = {found["mend"] for found in machine.page().all_about("CuPy")}
    assert mends == {
        "python -m pip uninstall -y cupy-cuda13x cupy-cuda12x\npython -m pip install cupy-cuda12x"
    }


def test_two_lines_are_shown_as_two_lines(machine: Machine) -> None:
    machine.install("cupy-cuda12x", "13.6.0")
    machine.install("cupy-cuda11x", "13.6.0")
    page = machine.page()
    lines = "      python -m pip uninstall -y cupy-cuda12x cupy-cuda11x\n      python -m pip install cupy-cuda12x\n"
    assert lines in page.text
    assert lines.replace("      ", "  ") in page.report
    assert "cupy-cuda11x\npython -m pip install" in page.html


# One beside another


def test_a_cpu_only_build_beside_one_that_works_may_be_meant(machine: Machine) -> None:
    machine.install_torch("2.13.0", "13.0", label="+cu130")
    install_tensorflow(machine, "tensorflow-cpu", "2.21.0", "('is_cuda_build', False)")
    page = machine.page()
    assert page.wrong == []
    assert page.about("TensorFlow")["severity"] == "worth knowing"
    assert page.text.startswith("Nothing wrong was found. 1 is worth knowing.")


def test_a_module_that_loads_itself_when_it_is_asked_is_not_loaded(fresh: Fresh, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("print('loaded')\n__version__ = '1.0'")
    code = """
        import importlib.util
        import sys
        from gpu_magic.diagnosis.builds import loaded_version
        spec = importlib.util.find_spec("torch")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        sys.modules["torch"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        print([loaded_version("torch")])
        class Odd:
            __dict__ = property(lambda self: None)
        sys.modules["torch"] = Odd()
        print([loaded_version("torch")])
        sys.modules["torch"] = None
        print([loaded_version("torch")])
    """
    assert fresh(code, PYTHONPATH=f"{tmp_path}:{ROOT}") == "['']\n['']\n['']\n"


def test_the_framework_that_is_imported_comes_first(machine: Machine) -> None:
    machine.install_torch("2.13.0", None, label="+cpu")
    install_tensorflow(machine, "tensorflow-cpu", "2.21.0", "('is_cuda_build', False)")
    assert len(machine.page().wrong) == 2
    page = machine.page("import torch")
    assert page.wrong == ["PyTorch 2.13.0+cpu is a CPU-only build."]
    assert page.about("TensorFlow")["severity"] == "worth knowing"


def test_without_a_gpu_a_cpu_only_build_is_no_fault(machine: Machine) -> None:
    machine.driver = None
    machine.install_torch("2.13.0+cpu", None)
    page = machine.page()
    assert page.about("PyTorch")["severity"] == "worth knowing"
    assert page.about("PyTorch")["mend"] == ""
    assert page.about("driver")["severity"] == "wrong"


def test_all_is_fine_is_said(machine: Machine) -> None:
    machine.driver = Driver(tuple(replace(card) for card in CARDS))
    machine.install_torch("2.13.0", "13.0", label="+cu130")
    machine.devices()
    page = machine.page()
    assert page.text.splitlines()[0] == "Nothing wrong was found."
    assert page.row("driver") == "580.65.06, CUDA up to 13.0: fine"
    assert page.row("device files") == "/dev/nvidiactl, /dev/nvidia-uvm and those of 4 GPUs: fine"
