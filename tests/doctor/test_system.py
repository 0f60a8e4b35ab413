"""No driver, a container without GPUs, closed device files, WSL, Jetson: read from a root of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpu_magic.devices.binding import HUNG_DRIVER, NO_GPU, NO_LIBRARY, NOT_LOADED, OUTDATED, REFUSED
from gpu_magic.devices.inventory import Inventory
from gpu_magic.doctor.checks import check_cuda, check_device_files, check_driver, check_gpus
from gpu_magic.doctor.facts import DeviceFile, Facts, Packages, System
from gpu_magic.process.guard import Guard
from gpu_magic.process.state import State
from tests.doctor.conftest import inventory, kernel
from tests.processes import needs_root

if TYPE_CHECKING:
    from tests.conftest import Fresh
    from tests.doctor.conftest import Place

MODULE = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Thu Jul 24 18:22:44 UTC 2025\n"
    "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n"
)
OPEN_MODULE = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (dvs-builder@U16)\n"
)
GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide"


def put_gpu_on_the_bus(place: Place) -> None:
    place.write("sys/bus/pci/devices/0000:07:00.0/vendor", "0x10de\n")
    place.write("sys/bus/pci/devices/0000:07:00.0/class", "0x030200\n")
    place.write("sys/bus/pci/devices/0000:07:00.1/vendor", "0x10de\n")  # its sound
    place.write("sys/bus/pci/devices/0000:07:00.1/class", "0x040300\n")


# No GPU can be read


def test_a_machine_without_a_gpu(place: Place) -> None:
    place.write("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n")
    (found,) = place.look(NO_LIBRARY)
    assert (found.severity, found.mend) == ("wrong", "")
    assert "no NVIDIA GPU, and no NVIDIA driver" in found.what


def test_a_gpu_without_a_driver_and_a_module_without_its_libraries(place: Place) -> None:
    put_gpu_on_the_bus(place)
    (found,) = place.look(NO_LIBRARY)
    assert ("no libraries of its driver" in found.what, found.mend) == (True, GUIDE)
    place.write("proc/driver/nvidia/version", MODULE)
    (found,) = place.look(NO_LIBRARY)
    assert ("(kernel module 580.65.06)" in found.what, found.mend) == (True, GUIDE)


def test_why_amd_s_gpus_can_t_be_read_stays(place: Place) -> None:
    (found,) = place.look(f"{NO_LIBRARY} The AMD driver does not answer.")
    assert "The AMD driver does not answer." in found.meaning


@pytest.mark.parametrize(
    ("file", "variables", "mend"),
    [
        (".dockerenv", {}, "docker run --gpus all …"),
        ("run/.containerenv", {}, "podman run --device nvidia.com/gpu=all …"),
        ("none", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "resources: {limits: {nvidia.com/gpu: 1}}"),
        ("none", {"APPTAINER_CONTAINER": "/images/torch.sif"}, "apptainer exec --nv …"),
    ],
)
def test_a_container_without_gpus(place: Place, file: str, variables: dict[str, str], mend: str) -> None:
    place.write(file)
    place.write("proc/driver/nvidia/version", OPEN_MODULE)  # the host's
    (found,) = place.look(NO_LIBRARY, **variables)
    assert (found.severity, found.meaning, found.mend) == ("wrong", "Its host has some.", mend)
    (found,) = place.look(NO_GPU, **variables)
    assert found.mend == mend


def test_a_container_on_a_host_of_which_nothing_is_known(place: Place) -> None:
    place.write("proc/self/cgroup", "12:devices:/docker/3f1c\n")
    (found,) = place.look(NO_LIBRARY)
    assert "not known" in found.meaning


def test_a_container_without_a_part_of_the_driver(place: Place) -> None:
    place.write(".dockerenv")
    place.devices()
    (found,) = place.look(NO_LIBRARY, NVIDIA_DRIVER_CAPABILITIES="compute")
    assert "no NVML" in found.what
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in found.mend
    (found,) = place.look(machine=inventory(), NVIDIA_DRIVER_CAPABILITIES="utility")
    assert "no CUDA driver" in found.what
    assert place.look(machine=inventory(), NVIDIA_DRIVER_CAPABILITIES="all") == []
    (found,) = place.look(machine=inventory(limitation="NVML is not here: only names are known."))
    assert found.severity == "worth knowing"


@pytest.mark.parametrize(
    "path", ["usr/lib/x86_64-linux-gnu/libcuda.so.1", ".singularity.d/libs/libcuda.so.1"]
)
def test_a_container_that_has_cuda_has_it_whatever_the_variable_says(place: Place, path: str) -> None:
    """With CDI, as Podman's, and with Apptainer nobody reads the variable, which can be the image's."""
    place.write(".dockerenv")
    place.write(path)
    assert place.look(machine=inventory(), NVIDIA_DRIVER_CAPABILITIES="utility") == []


@pytest.mark.parametrize(
    ("problem", "mend", "in_container"),
    [
        (OUTDATED, "sudo reboot", "docker restart …"),
        (NOT_LOADED, "sudo modprobe nvidia", "sudo modprobe nvidia"),
        (HUNG_DRIVER, "sudo reboot", "sudo reboot"),
        (NO_GPU, "srun --gres=gpu:1 …", "docker run --gpus all …"),
        (REFUSED, "sudo chmod a+rw /dev/nvidia*", "sudo chmod a+rw /dev/nvidia*"),
        ("NVML says something else.", "", ""),
    ],
)
def test_what_the_driver_refuses(place: Place, problem: str, mend: str, in_container: str) -> None:
    (found,) = place.look(problem)
    assert (found.severity, found.mend) == ("wrong", mend)
    place.write(".dockerenv")
    (found,) = place.look(problem)
    assert found.mend == in_container
    if problem in (OUTDATED, NOT_LOADED, HUNG_DRIVER):
        assert "host" in found.meaning


def test_another_pynvml_hides_nvidia_s() -> None:
    packages = Packages(binding_problem="The module pynvml here is too old.")
    (found,) = check_driver(Facts(Inventory(problem=NO_LIBRARY), packages=packages))
    assert found.mend.splitlines() == [
        "python -m pip uninstall -y pynvml",
        "python -m pip install --force-reinstall nvidia-ml-py",
    ]


def test_a_service_that_has_given_none(place: Place) -> None:
    place.write(".dockerenv")
    (found,) = place.look(NO_LIBRARY, COLAB_RELEASE_TAG="release-colab-external_20261101")
    assert found.mend == "Runtime > Change runtime type > T4 GPU"


def test_wsl_and_jetson(place: Place) -> None:
    assert place.look(machine=inventory()) == []
    place.write("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3\n")
    (found,) = place.look(NO_LIBRARY)
    assert "Jetson" in found.what
    place.write("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    (found,) = place.look(NO_LIBRARY)
    assert "never in Linux" in found.meaning


# CUDA in a container


@pytest.mark.parametrize(("error", "is_of_host"), [(802, True), (999, True), (804, False)])
def test_what_keeps_cuda_from_starting_in_a_container(error: int, *, is_of_host: bool) -> None:
    machine = inventory()
    process = kernel(machine, guard=Guard(State.BROKEN, error=error))
    (found,) = check_cuda(Facts(machine, process, system=System(container="docker")))
    assert found.mend
    assert ("host of this container" in found.meaning) == is_of_host


# Device files

# Root without the capabilities by which it opens every file (capset(2), 1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH).
POWERLESS = """
import ctypes, os
from pathlib import Path
if os.getuid() == 0:
    libc, header, sets = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    sets[0], sets[1] = sets[0] & ~6, sets[1] & ~6
    assert libc.capset(header, sets) == 0
from gpu_magic.doctor.sources import read_system
print(*[f"{file.path} {file.is_permitted} {file.error}" for file in read_system({}, Path(ROOT)).devices], sep="\\n")
"""


def test_device_files_that_are_closed_to_this_user(place: Place, fresh: Fresh) -> None:
    place.devices()
    for name in ("nvidiactl", "nvidia1"):
        (place.root / "dev" / name).chmod(0)
    assert fresh(f"ROOT = {str(place.root)!r}\n{POWERLESS}").splitlines() == [
        "/dev/nvidiactl False EACCES",
        "/dev/nvidia-uvm True ",
        "/dev/nvidia0 True ",
        "/dev/nvidia1 False ",
    ]


def of_files(*closed: str, error: str = "", **more: str) -> list[tuple[str, str]]:
    """Return what is found where files are closed, or opening the control files ends with an error."""
    names = ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")
    errors = dict.fromkeys(names[:2], error)
    files = tuple(DeviceFile(f"/dev/{name}", name not in closed, errors.get(name, "")) for name in names)
    system = System(devices=files, **more)  # type: ignore[arg-type]
    return [(one.severity, one.mend) for one in check_device_files(Facts(system=system))]


def test_closed_device_files_are_wrong_and_those_of_others_gpus_are_not() -> None:
    """A scheduler closes the others' files: those that this user was given are open."""
    assert of_files("nvidiactl", "nvidia0") == [("wrong", "sudo chmod a+rw /dev/nvidia*")]
    assert of_files("nvidia0", "nvidia1") == [("wrong", "sudo chmod a+rw /dev/nvidia*")]
    assert of_files("nvidia1") == [("worth knowing", "")]
    closed = System(devices=(DeviceFile("/dev/nvidiactl", is_permitted=False),))
    driver = check_driver(Facts(Inventory(problem=REFUSED), packages=Packages(), system=closed))
    assert list(driver) == []  # it is said once


@pytest.mark.parametrize(
    ("container", "mend"), [("docker", "docker restart …"), ("kubernetes", "kubectl delete pod …"), ("", "")]
)
def test_a_container_that_has_lost_its_gpus(container: str, mend: str) -> None:
    """No file that is made here answers EPERM: a cgroup does, which has lost the device."""
    assert of_files(error="EPERM", container=container) == [("wrong", mend)]


def test_a_device_file_of_memory_that_is_missing(place: Place) -> None:
    place.devices("nvidiactl", "nvidia0")
    (found,) = place.look(machine=inventory())
    assert found.what.startswith("/dev/nvidia-uvm is missing")
    assert found.mend == "sudo nvidia-modprobe -c 0 -u"


@needs_root
def test_a_device_file_that_cuda_makes_itself_is_not_missing(place: Place) -> None:
    """After a start of the machine it is not there until the first program uses CUDA: nvidia-modprobe(1)."""
    place.devices("nvidiactl", "nvidia0")
    place.write("usr/bin/nvidia-modprobe", mode=0o4755)
    assert place.look(machine=inventory()) == []


# GPUs that CUDA can't use


def test_gpus_that_cuda_can_t_use() -> None:
    machine = inventory("2xA100-80GB")
    first, second = machine.gpus
    lost = replace(second, problem="not answering: the driver says this GPU is lost")
    prohibited = replace(first, compute_mode="Prohibited")
    taken = replace(first, compute_mode="Exclusive_Process", status=replace(first.status, utilization=90))
    empty = replace(first, is_split=True)

    def found(*gpus: object, mask: str | None = None, **more: str) -> list[tuple[str, str]]:
        changed = replace(machine, gpus=gpus)
        facts = Facts(changed, kernel(changed, mask=mask), system=System(**more))  # type: ignore[arg-type]
        return [(one.severity, one.mend) for one in check_gpus(facts)]

    assert found(first, lost) == [("wrong", "%gpus 0")]
    assert found(lost) == found(lost, container="docker") == [("wrong", "sudo reboot")]
    assert found(first, lost, mask=str(first.uuid)) == [("worth knowing", "")]  # this process does not see it
    assert found(prohibited, second) == [("wrong", "sudo nvidia-smi -i 0 -c DEFAULT")]
    assert found(taken, second) == [("worth knowing", "%gpus auto")]
    assert found(taken) == [("wrong", "sudo nvidia-smi -i 0 -c DEFAULT")]
    assert found(empty, second) == [("wrong", "sudo nvidia-smi mig -i 0 -cgi 0 -C")]
