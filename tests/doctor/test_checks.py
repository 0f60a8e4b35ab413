"""What is read of a machine and of installed packages, and what is found of it.

No driver, a container without GPUs, closed device files, WSL, Jetson: from a root of their own. The CUDA of a
framework's build beside the driver's: by real metadata in a folder.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from gpu_magic.devices.model import UNKNOWN, GpuProcess, Inventory
from gpu_magic.devices.problems import Cause, GpuCause, GpuProblem, Problem
from gpu_magic.doctor.checks import (
    check_builds,
    check_cuda,
    check_device_files,
    check_driver,
    check_ended_processes,
    check_gpus,
)
from gpu_magic.doctor.facts import Build, DeviceFile, Facts, Packages, System
from gpu_magic.doctor.sources import loaded_version, read_packages, read_system
from gpu_magic.process.drivers import State
from gpu_magic.process.guard import Guard
from tests.conftest import torch_build
from tests.doctor.conftest import AMD, inventory, kernel
from tests.processes import needs_root

if TYPE_CHECKING:
    from gpu_magic.devices.model import Gpu
    from tests.doctor.conftest import Place

GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide"
WSL_GUIDE = "https://docs.nvidia.com/cuda/wsl-user-guide"
WITH_ALL = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …"
COMPAT = "/usr/local/cuda/compat"
RUN, ON_HOST = "Run this, and restart the kernel.", " On the host of this container:"


def pci(name: str, kind: str) -> dict[str, str]:
    """Return the files of one of NVIDIA's devices on the PCI bus."""
    return {
        f"sys/bus/pci/devices/{name}/{file}": text for file, text in (("vendor", "0x10de\n"), ("class", kind))
    }


# Files of a machine, and variables of a process.
SOUND, GPU = pci("0000:07:00.1", "0x040300\n"), pci("0000:07:00.0", "0x030200\n")
VERSION = "proc/driver/nvidia/version"  # in any container it is the host's
LOADED = {
    VERSION: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Thu Jul 24\nGCC version:  13.3.0\n"
}
OPEN = {
    VERSION: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (dvs@U16)\n"
}
JETSON = {"etc/nv_tegra_release": "# R36 (release), REVISION: 4.3\n"}
WSL = {"proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"}
DOCKER, PODMAN = {".dockerenv": ""}, {"run/.containerenv": ""}
CGROUP = {"proc/self/cgroup": "12:devices:/docker/3f1c\n"}
KUBERNETES, APPTAINER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {"APPTAINER_CONTAINER": "/images/torch.sif"}
COLAB = {"COLAB_RELEASE_TAG": "release-colab-external_20261101"}
NAMES = ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")
DEVICES = {f"dev/{name}": "" for name in NAMES}


# No GPU can be read


@pytest.mark.parametrize(
    ("where", "problem", "says", "fix"),
    [
        # No driver.
        (SOUND, Cause.NO_LIBRARY, "This machine has no NVIDIA GPU and no NVIDIA driver. ", ""),
        (
            {},
            Problem(Cause.NO_LIBRARY, amd=Problem(Cause.AMD_ERROR, "no")),
            "has no visible NVIDIA GPU and no NVIDIA driver. AMD SMI does not answer: no.",
            "",
        ),
        (SOUND | GPU, Cause.NO_LIBRARY, "has an NVIDIA GPU, but not the driver's libraries. ", GUIDE),
        (LOADED, Cause.NO_LIBRARY, "not the driver's libraries (kernel module 580.65.06).", GUIDE),
        (JETSON, Cause.NO_LIBRARY, "This Jetson board has no NVML", ""),
        (JETSON | WSL, Cause.NO_LIBRARY, "Install it in Windows, not in Linux:", WSL_GUIDE),
        (
            DOCKER | COLAB,
            Cause.NO_LIBRARY,
            "This notebook has no GPU on Colab",
            "Runtime > Change runtime type > T4 GPU",
        ),
        # A container without GPUs, or without a part of the driver.
        (DOCKER | OPEN, Cause.NO_LIBRARY, " Its host has GPUs.", "docker run --gpus all …"),
        (PODMAN, Cause.NO_LIBRARY, " without GPUs. ", "podman run --device nvidia.com/gpu=all …"),
        (KUBERNETES, Cause.NO_LIBRARY, "container was", "resources: {limits: {nvidia.com/gpu: 1}}"),
        (APPTAINER, Cause.NO_LIBRARY, " started without GPUs. ", "apptainer exec --nv …"),
        (CGROUP, Cause.NO_LIBRARY, "unknown.", "docker run --gpus all …"),
        (DOCKER | DEVICES, Cause.NO_LIBRARY, "but no NVML (libnvidia-ml.so.1).", WITH_ALL),
        # What the driver refuses.
        ({}, Cause.OUTDATED, str(Problem(Cause.OUTDATED)), "sudo reboot"),
        (DOCKER, Cause.OUTDATED, "on the host, reboot the host. Otherwise,", "docker restart …"),
        (APPTAINER, Cause.OUTDATED, ON_HOST, "sudo reboot"),
        ({}, Cause.NOT_LOADED, str(Problem(Cause.NOT_LOADED)), "sudo modprobe nvidia"),
        (DOCKER, Cause.NOT_LOADED, ON_HOST, "sudo modprobe nvidia"),
        ({}, Cause.HUNG, str(Problem(Cause.HUNG)), "sudo reboot"),
        ({}, Cause.NO_GPU, str(Problem(Cause.NO_GPU)), "srun --gres=gpu:1 …"),
        (DOCKER, Cause.NO_GPU, "was started without GPUs.", "docker run --gpus all …"),
        (DOCKER, Cause.CUT_OFF, "(999). This container has probably lost its GPUs.", "docker restart …"),
        ({}, Cause.CUT_OFF, str(Problem(Cause.CUT_OFF)), ""),
        ({}, Cause.REFUSED, str(Problem(Cause.REFUSED)), "sudo chmod a+rw /dev/nvidia*"),
        (
            DOCKER,
            Problem(Cause.ERROR, "something else"),
            "The NVIDIA driver does not answer: something else.",
            "",
        ),
    ],
)
def test_why_no_gpu_can_be_read(
    place: Place, where: dict[str, str], problem: Cause | Problem, says: str, fix: str
) -> None:
    (found,) = place.look(where, Problem(problem) if isinstance(problem, Cause) else problem)
    assert (found.severity, found.about, found.fix) == ("wrong", "driver", fix)
    assert says in f"{found.problem} {found.effect}"


@pytest.mark.parametrize(
    ("files", "capabilities", "limitation", "says"),
    [
        ({}, "utility", None, "This container has no CUDA driver: NVIDIA_DRIVER_CAPABILITIES=utility."),
        ({}, "all", None, ""),
        # With CDI, as Podman's, and with Apptainer nobody reads the variable, which can be the image's.
        ({"usr/lib/x86_64-linux-gnu/libcuda.so.1": ""}, "utility", None, ""),
        ({".singularity.d/libs/libcuda.so.1": ""}, "utility", None, ""),
        ({}, "all", Problem(Cause.NO_FIGURES), f"{Problem(Cause.NO_FIGURES).what}."),
    ],
)
def test_a_container_without_a_part_of_the_driver(
    place: Place, files: dict[str, str], capabilities: str, limitation: Problem | None, says: str
) -> None:
    where = DOCKER | DEVICES | files | {"NVIDIA_DRIVER_CAPABILITIES": capabilities}
    found = place.look(where, machine=inventory(limitation=limitation))
    severity = "worth knowing" if limitation else "wrong"
    assert [(one.severity, one.problem, one.fix) for one in found] == [(severity, says, WITH_ALL)] * bool(
        says
    )


def test_outside_of_a_container_nobody_reads_what_parts_of_the_driver_it_has(place: Place) -> None:
    assert place.look(DEVICES | {"NVIDIA_DRIVER_CAPABILITIES": "utility"}, machine=inventory()) == []


def test_another_pynvml_hides_nvidia_s() -> None:
    (found,) = check_driver(
        Facts(
            Inventory(problem=Problem(Cause.NO_LIBRARY)),
            packages=Packages(binding_problem=Problem(Cause.WRONG_BINDING)),
        )
    )
    lines = ("uninstall -y pynvml", "install --force-reinstall nvidia-ml-py")
    assert found.fix.splitlines() == [f"python -m pip {line}" for line in lines]


@pytest.mark.parametrize(
    ("error", "container", "effect", "fix"),
    [
        (803, "", RUN, "sudo reboot"),
        (802, "", RUN, "sudo systemctl restart nvidia-fabricmanager"),
        (802, "docker", RUN + ON_HOST, "sudo systemctl restart nvidia-fabricmanager"),
        (999, "docker", RUN + ON_HOST, "sudo sh -c 'modprobe -r nvidia_uvm && modprobe nvidia_uvm'"),
        (804, "docker", RUN, f"sudo sh -c 'mv {COMPAT} {COMPAT}.unused && ldconfig'"),
        (46, "", "", ""),
    ],
)
def test_what_keeps_cuda_from_starting(error: int, container: str, effect: str, fix: str) -> None:
    machine = inventory()
    process = kernel(machine, guard=Guard(State.BROKEN, error=error))
    (found,) = check_cuda(Facts(machine, process, system=System(container=container)))
    assert f"CUDA fails with error {error}" in found.problem
    assert (found.effect, found.fix) == (effect, fix)


# Device files


def test_device_files_that_are_closed_to_this_user(place: Place) -> None:
    for path in DEVICES:
        place.write(path)
    for name in ("nvidiactl", "nvidia1"):
        (place.root / "dev" / name).chmod(0)
    found: list[tuple[str, bool, str]] = []

    def read() -> None:
        if os.getuid() == 0:  # capset(2): this thread's, without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
            libc, header = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0)
            powers = (ctypes.c_uint32 * 6)()
            assert libc.capget(header, powers) == 0
            powers[0], powers[1] = powers[0] & ~6, powers[1] & ~6
            assert libc.capset(header, powers) == 0
        found.extend((one.path, one.is_permitted, one.error) for one in read_system({}, place.root).devices)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    (control, memory, first, second) = found
    assert (control, memory) == (("/dev/nvidiactl", False, "EACCES"), ("/dev/nvidia-uvm", True, ""))
    assert (first, second) == (("/dev/nvidia0", True, ""), ("/dev/nvidia1", False, ""))


@pytest.mark.parametrize(
    ("closed", "error", "container", "expected"),
    [
        ("nvidiactl nvidia0", "", "", ("wrong", "sudo chmod a+rw /dev/nvidia*")),
        ("nvidia0 nvidia1", "", "", ("wrong", "sudo chmod a+rw /dev/nvidia*")),
        # A scheduler closes the files of GPUs that others were given: those of this user are open.
        ("nvidia1", "", "", ("worth knowing", "")),
        # A container has lost its GPUs. No file that is made here answers EPERM: a cgroup does.
        ("", "EPERM", "docker", ("wrong", "docker restart …")),
        ("", "EPERM", "kubernetes", ("wrong", "kubectl delete pod …")),
        ("", "EPERM", "", ("wrong", "")),
    ],
)
def test_closed_device_files(closed: str, error: str, container: str, expected: tuple[str, str]) -> None:
    errors = dict.fromkeys(NAMES[:2], error)
    files = [DeviceFile(f"/dev/{one}", one not in closed.split(), errors.get(one, "")) for one in NAMES]
    system = System(container=container, devices=tuple(files))
    facts = Facts(Inventory(problem=Problem(Cause.REFUSED)), packages=Packages(), system=system)
    assert [(one.severity, one.fix) for one in check_device_files(facts)] == [expected]
    assert bool(list(check_driver(facts))) == (not error and "nvidiactl" not in closed)  # it is said once


def test_a_device_file_of_memory_that_is_missing(place: Place) -> None:
    (found,) = place.look({"dev/nvidiactl": ""}, machine=inventory())
    assert found.problem.startswith("/dev/nvidia-uvm is missing")
    assert found.fix == "sudo nvidia-modprobe -c 0 -u"
    assert place.look({"dev/nvidia-uvm": ""}, machine=inventory()) == []


@needs_root
def test_a_device_file_that_cuda_makes_itself_is_not_missing(place: Place) -> None:
    """After a start of the machine it is not there until the first program uses CUDA: nvidia-modprobe(1)."""
    place.write("usr/bin/nvidia-modprobe", mode=0o4755)
    assert place.look({"dev/nvidiactl": ""}, machine=inventory()) == []


# GPUs that CUDA can't use


def test_memory_of_a_process_that_has_ended() -> None:
    machine = inventory("2xA100-80GB")
    ghost = GpuProcess(4711, memory=32 << 30, has_ended=True)
    first, second = machine.gpus
    second = second._replace(minor=3, status=second.status._replace(processes=(ghost,)))
    (found,) = check_ended_processes(Facts(replace(machine, gpus=(first, second))))
    assert (found.severity, found.problem.partition(" has")[0]) == ("worth knowing", "Process 4711")
    assert found.fix.splitlines() == ["sudo fuser -v /dev/nvidia3", "sudo nvidia-smi --gpu-reset -i 1"]


def test_a_process_that_has_ended_is_told_once_of_an_instance_and_its_gpu() -> None:
    machine = inventory("1xA100-80GB(3g.40gb,4g.40gb)")
    ghost = GpuProcess(4711, memory=32 << 30, has_ended=True)
    (gpu,) = machine.gpus
    one, other = (part._replace(status=part.status._replace(processes=())) for part in gpu.mig)
    other = other._replace(status=other.status._replace(processes=(ghost,)))
    gpu = gpu._replace(status=gpu.status._replace(processes=(ghost,)), mig=(one, other))
    (found,) = check_ended_processes(Facts(replace(machine, gpus=(gpu,))))
    assert "on MIG instance 0:1" in found.problem


def test_gpus_that_cuda_can_t_use() -> None:
    machine = inventory("2xA100-80GB")
    first, second = machine.gpus
    lost = second._replace(problem=GpuProblem(GpuCause.LOST))
    cut_off = second._replace(problem=GpuProblem(GpuCause.CUT_OFF))
    prohibited = first._replace(compute_mode="Prohibited")
    taken = first._replace(compute_mode="Exclusive_Process", status=first.status._replace(utilization=90))
    empty = first._replace(is_split=True)

    def found(*gpus: Gpu, mask: str | None = None, **more: str) -> list[tuple[str, str]]:
        changed = replace(machine, gpus=gpus)
        facts = Facts(changed, kernel(changed, mask=mask), system=System(**more))  # type: ignore[arg-type]
        return [(one.severity, one.fix) for one in check_gpus(facts)]

    assert found(first, lost) == [("wrong", "%gpus 0")]
    assert found(lost) == found(lost, container="docker") == [("wrong", "sudo reboot")]
    assert found(first, cut_off, container="docker") == [("wrong", "docker restart …")]
    assert found(first, lost, mask=str(first.uuid)) == [("worth knowing", "")]  # this process does not see it
    assert found(prohibited, second) == [("wrong", "sudo nvidia-smi -i 0 -c DEFAULT")]
    assert found(taken, second) == [("worth knowing", "%gpus auto")]
    assert found(taken) == [("wrong", "sudo nvidia-smi -i 0 -c DEFAULT")]
    assert found(empty, second) == [("wrong", "sudo nvidia-smi mig -i 0 -cgi 0 -C")]


# Builds of frameworks

PAGE = "https://pytorch.org/get-started/locally"
CPU_ONLY_BUILD = "2.13.0 is a CPU-only build."


# PyTorch


@pytest.mark.parametrize(
    ("built_for", "driver", "says"),
    [
        # Of another kind.
        ("", "13.1", CPU_ONLY_BUILD),
        ("", "nonsense", CPU_ONLY_BUILD),
        ("hip 7.2.26015", "13.0", "built for ROCm, but this machine has NVIDIA GPUs."),
        ("xpu 20260001", "13.0", "built for Intel's GPUs (XPU), but this machine has"),
        # For a newer major version than the driver's.
        ("cuda 13.0", "12.2", "built for CUDA 13.0, but the driver runs CUDA only up to 12.2."),
        # An older one runs, and so does a newer minor version.
        ("cuda 12.8", "12.2", ""),
        ("cuda 11.7", "13.0", ""),
        ("cuda 12.6", "12.6", ""),
    ],
)
def test_pytorch_s_build_beside_the_driver(place: Place, built_for: str, driver: str, says: str) -> None:
    place.install_torch(built_for)
    found = place.judge(inventory(cuda_version=driver), "kernel")
    assert [(one.severity, one.fix) for one in found] == [("wrong", PAGE)] * bool(says)
    for one in found:
        assert says in one.problem
        assert "restart the kernel" in one.effect


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
    assert found.problem == "PyTorch 2.13.0+cpu is imported. 2.13.0+rocm7.2 was installed later."
    assert "restart Python" in found.effect


def test_the_pytorch_of_these_tests_is_what_it_says() -> None:
    (build,) = (one for one in read_packages(sys.path).builds if one.framework == "PyTorch")
    assert (build.version, build.built_for == "CUDA") == torch_build()


# The others

OF_JAX, PLUGIN, OLD_PLUGIN = "jax jaxlib", "jax-cuda13-plugin", "jax-cuda12-plugin jax-cuda12-pjrt"


@pytest.mark.parametrize(
    ("packages", "driver", "says"),
    [
        (OF_JAX, "13.0", "CPU-only"),
        (f"{OF_JAX} {OLD_PLUGIN}", "13.0", ""),
        (f"{OF_JAX} {PLUGIN}", "12.2", "built for CUDA 13"),
        (f"{OF_JAX} {PLUGIN} {OLD_PLUGIN}", "13.0", f"{PLUGIN} and jax-cuda12-plugin"),
        (f"{OF_JAX} {PLUGIN}=0.9.1", "13.0", f"{PLUGIN} is 0.9.1 but jaxlib 0.10.2, so JAX"),
        ("cupy-cuda13x", "12.2", "built for CUDA 13"),
        ("cupy-cuda12x cupy-cuda11x", "12.2", "conflict with each other"),
        ("cupy", "13.0", ""),
        ("tensorflow-cpu", "13.0", "TensorFlow 0.10.2 is a CPU-only build."),
        ("tensorflow nvidia-cudnn-cu13", "13.0", "lacks CUDA's libraries (cuDNN)"),
        ("tensorflow nvidia-cudnn-cu12", "13.0", ""),
    ],
)
def test_what_their_packages_tell(place: Place, packages: str, driver: str, says: str) -> None:
    for package in packages.split():
        name, _, its_version = package.partition("=")
        place.install(name, *filter(None, [its_version]))
    found = place.judge(inventory(cuda_version=driver))
    assert [says in one.problem for one in found] == [True] * bool(says)
    assert all(one.fix.startswith("https://") for one in found)


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
    ("builds", "machine", "expected", "has_fix"),
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
    builds: list[Build], machine: Inventory, expected: list[tuple[str, str]], *, has_fix: bool
) -> None:
    found = list(check_builds(Facts(machine, packages=Packages(tuple(builds)))))
    assert [(one.severity, one.about) for one in found] == expected
    assert all(bool(one.fix) == has_fix for one in found)


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
