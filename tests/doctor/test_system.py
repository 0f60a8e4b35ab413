"""No driver, a container without GPUs, closed device files, WSL, Jetson: read from a root of their own."""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpu_magic.devices.binding import HUNG_DRIVER, NO_GPU, NO_LIBRARY, NOT_LOADED, OUTDATED, REFUSED
from gpu_magic.devices.model import Inventory
from gpu_magic.doctor.checks import check_cuda, check_device_files, check_driver, check_gpus
from gpu_magic.doctor.facts import DeviceFile, Facts, Packages, System
from gpu_magic.doctor.sources import read_system
from gpu_magic.process.drivers import State
from gpu_magic.process.guard import Guard
from tests.doctor.conftest import inventory, kernel
from tests.processes import needs_root

if TYPE_CHECKING:
    from tests.doctor.conftest import Place

GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide"
WSL_GUIDE = "https://docs.nvidia.com/cuda/wsl-user-guide"
WITH_ALL = "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …"
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
    ("where", "problem", "says", "mend"),
    [
        # No driver.
        (SOUND, NO_LIBRARY, "This machine has no NVIDIA GPU, and no NVIDIA driver. ", ""),
        ({}, f"{NO_LIBRARY} AMD says no.", "that can be seen, and no NVIDIA driver. AMD says no.", ""),
        (SOUND | GPU, NO_LIBRARY, "has an NVIDIA GPU, and no libraries of its driver. ", GUIDE),
        (LOADED, NO_LIBRARY, "no libraries of its driver (kernel module 580.65.06).", GUIDE),
        (JETSON, NO_LIBRARY, "This Jetson board has no NVML", ""),
        (JETSON | WSL, NO_LIBRARY, "Install it in Windows, and never in Linux:", WSL_GUIDE),
        (DOCKER | COLAB, NO_LIBRARY, "Colab has given this", "Runtime > Change runtime type > T4 GPU"),
        # A container without GPUs, or without a part of the driver.
        (DOCKER | OPEN, NO_LIBRARY, " Its host has some.", "docker run --gpus all …"),
        (PODMAN, NO_LIBRARY, " without GPUs. ", "podman run --device nvidia.com/gpu=all …"),
        (KUBERNETES, NO_LIBRARY, "container was", "resources: {limits: {nvidia.com/gpu: 1}}"),
        (APPTAINER, NO_LIBRARY, " started without GPUs. ", "apptainer exec --nv …"),
        (CGROUP, NO_LIBRARY, "not known.", "docker run --gpus all …"),
        (DOCKER | DEVICES, NO_LIBRARY, "and no NVML (libnvidia-ml.so.1).", WITH_ALL),
        # What the driver refuses.
        ({}, OUTDATED, OUTDATED, "sudo reboot"),
        (DOCKER, OUTDATED, "on the host, reboot the host. Else,", "docker restart …"),
        (APPTAINER, OUTDATED, ON_HOST, "sudo reboot"),
        ({}, NOT_LOADED, NOT_LOADED, "sudo modprobe nvidia"),
        (DOCKER, NOT_LOADED, ON_HOST, "sudo modprobe nvidia"),
        ({}, HUNG_DRIVER, HUNG_DRIVER, "sudo reboot"),
        ({}, NO_GPU, NO_GPU, "srun --gres=gpu:1 …"),
        (DOCKER, NO_GPU, "was started without GPUs.", "docker run --gpus all …"),
        ({}, REFUSED, REFUSED, "sudo chmod a+rw /dev/nvidia*"),
        (DOCKER, "NVML says something else.", "NVML says something else.", ""),
    ],
)
def test_why_no_gpu_can_be_read(
    place: Place, where: dict[str, str], problem: str, says: str, mend: str
) -> None:
    (found,) = place.look(where, problem)
    assert (found.severity, found.about, found.mend) == ("wrong", "driver", mend)
    assert says in f"{found.what} {found.meaning}"


@pytest.mark.parametrize(
    ("files", "capabilities", "limitation", "says"),
    [
        ({}, "utility", "", "This container has no CUDA driver: NVIDIA_DRIVER_CAPABILITIES=utility."),
        ({}, "all", "", ""),
        # With CDI, as Podman's, and with Apptainer nobody reads the variable, which can be the image's.
        ({"usr/lib/x86_64-linux-gnu/libcuda.so.1": ""}, "utility", "", ""),
        ({".singularity.d/libs/libcuda.so.1": ""}, "utility", "", ""),
        ({}, "all", "NVML is not here: only names are known.", "NVML is not here."),
    ],
)
def test_a_container_without_a_part_of_the_driver(
    place: Place, files: dict[str, str], capabilities: str, limitation: str, says: str
) -> None:
    where = DOCKER | DEVICES | files | {"NVIDIA_DRIVER_CAPABILITIES": capabilities}
    found = place.look(where, machine=inventory(limitation=limitation))
    severity = "worth knowing" if limitation else "wrong"
    assert [(one.severity, one.what, one.mend) for one in found] == [(severity, says, WITH_ALL)] * bool(says)


def test_another_pynvml_hides_nvidia_s() -> None:
    (found,) = check_driver(Facts(Inventory(problem=NO_LIBRARY), packages=Packages(binding_problem="Old.")))
    lines = ("uninstall -y pynvml", "install --force-reinstall nvidia-ml-py")
    assert found.mend.splitlines() == [f"python -m pip {line}" for line in lines]


@pytest.mark.parametrize(
    ("error", "container", "meaning", "mend"),
    [
        (803, "", RUN, "sudo reboot"),
        (802, "", RUN, "sudo systemctl restart nvidia-fabricmanager"),
        (802, "docker", RUN + ON_HOST, "sudo systemctl restart nvidia-fabricmanager"),
        (999, "docker", RUN + ON_HOST, "sudo sh -c 'modprobe -r nvidia_uvm && modprobe nvidia_uvm'"),
        (
            804,
            "docker",
            RUN,
            "sudo sh -c 'mv /usr/local/cuda/compat /usr/local/cuda/compat.unused && ldconfig'",
        ),
        (46, "", "", ""),
    ],
)
def test_what_keeps_cuda_from_starting(error: int, container: str, meaning: str, mend: str) -> None:
    machine = inventory()
    process = kernel(machine, guard=Guard(State.BROKEN, error=error))
    (found,) = check_cuda(Facts(machine, process, system=System(container=container)))
    assert f"(CUDA error {error})." in found.what
    assert (found.meaning, found.mend) == (meaning, mend)


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
    facts = Facts(Inventory(problem=REFUSED), packages=Packages(), system=system)
    assert [(one.severity, one.mend) for one in check_device_files(facts)] == [expected]
    assert bool(list(check_driver(facts))) == (not error and "nvidiactl" not in closed)  # it is said once


def test_a_device_file_of_memory_that_is_missing(place: Place) -> None:
    (found,) = place.look({"dev/nvidiactl": ""}, machine=inventory())
    assert found.what.startswith("/dev/nvidia-uvm is missing")
    assert found.mend == "sudo nvidia-modprobe -c 0 -u"
    assert place.look({"dev/nvidia-uvm": ""}, machine=inventory()) == []


@needs_root
def test_a_device_file_that_cuda_makes_itself_is_not_missing(place: Place) -> None:
    """After a start of the machine it is not there until the first program uses CUDA: nvidia-modprobe(1)."""
    place.write("usr/bin/nvidia-modprobe", mode=0o4755)
    assert place.look({"dev/nvidiactl": ""}, machine=inventory()) == []


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
