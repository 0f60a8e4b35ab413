"""No driver, a container without GPUs, closed device files, WSL, Jetson, MPS: a root of their own, read by a fresh process."""

from __future__ import annotations

import os
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpu_magic.diagnosis.checks.device_files import check_device_files
from gpu_magic.diagnosis.facts import DeviceFile, Facts, System
from tests.conftest import ROOT
from tests.machine import CARDS, MIG, Driver
from tests.processes import missing, needs_root

if TYPE_CHECKING:
    from tests.diagnosis.conftest import Machine

MODULE = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Thu Jul 24 18:22:44 UTC 2025\n"
    "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n"
)
OPEN_MODULE = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (dvs-builder@U16)\n"
)
PROGRAMS = ROOT / "tests" / "programs"


def put_gpu_on_the_bus(machine: Machine) -> None:
    machine.write("sys/bus/pci/devices/0000:07:00.0/vendor", "0x10de\n")
    machine.write("sys/bus/pci/devices/0000:07:00.0/class", "0x030200\n")
    machine.write("sys/bus/pci/devices/0000:07:00.1/vendor", "0x10de\n")  # its sound
    machine.write("sys/bus/pci/devices/0000:07:00.1/class", "0x040300\n")


# No GPU can be read


def test_a_machine_without_a_gpu(machine: Machine) -> None:
    machine.driver = None
    machine.write("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n")
    found = machine.page().about("driver")
    assert found["what"] == "This machine has no NVIDIA GPU, and no NVIDIA driver."


def test_a_gpu_without_a_driver(machine: Machine) -> None:
    machine.driver = None
    put_gpu_on_the_bus(machine)
    found = machine.page().about("driver")
    assert found["what"] == "This machine has an NVIDIA GPU, and no driver for it."
    assert found["mend"].startswith("https://docs.nvidia.com/")


def test_a_build_is_not_called_fine_where_no_driver_could_be_asked(machine: Machine) -> None:
    machine.driver = None
    put_gpu_on_the_bus(machine)
    machine.install_torch("2.13.0", "13.0", label="+cu130")
    assert machine.page().row("PyTorch") == "2.13.0+cu130, built for CUDA 13.0"


def test_a_module_without_its_libraries(machine: Machine) -> None:
    machine.driver = None
    machine.write("proc/driver/nvidia/version", MODULE)
    assert "(580.65.06), and its libraries are missing" in machine.page().about("driver")["what"]


@pytest.mark.parametrize(
    ("file", "variables", "mend"),
    [
        (".dockerenv", {}, "docker run --gpus all …"),
        ("run/.containerenv", {}, "podman run --device nvidia.com/gpu=all …"),
        ("none", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "resources: {limits: {nvidia.com/gpu: 1}}"),
        ("none", {"APPTAINER_CONTAINER": "/images/torch.sif"}, "apptainer exec --nv …"),
    ],
)
def test_a_container_without_gpus(machine: Machine, file: str, variables: dict[str, str], mend: str) -> None:
    machine.driver = None
    machine.write(file)
    machine.write("proc/driver/nvidia/version", OPEN_MODULE)  # the host's
    found = machine.page(**variables).about("driver")
    assert found["severity"] == "wrong"
    assert found["what"] == "This container was started without GPUs, and its host has them."
    assert found["mend"] == mend


def test_a_container_on_a_host_of_which_nothing_is_known(machine: Machine) -> None:
    machine.driver = None
    machine.write("proc/self/cgroup", "12:devices:/docker/3f1c\n")
    what = machine.page().about("driver")["what"]
    assert (
        what == "This container was started without GPUs; whether its host has any can't be seen from here."
    )


def test_a_container_with_device_files_and_without_nvml(machine: Machine) -> None:
    machine.driver = None
    machine.write(".dockerenv")
    machine.devices()
    found = machine.page(NVIDIA_DRIVER_CAPABILITIES="compute").about("driver")
    assert found["what"] == "This container has device files of GPUs, and no NVML (libnvidia-ml.so.1)."
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in found["mend"]


def test_a_container_without_the_capability_compute_has_no_cuda(machine: Machine) -> None:
    machine.write(".dockerenv")
    machine.devices()
    page = machine.page(NVIDIA_DRIVER_CAPABILITIES="utility")
    assert page.wrong == ["This container has no CUDA driver: NVIDIA_DRIVER_CAPABILITIES=utility."]
    assert "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility" in page.about("driver")["mend"]
    assert machine.page(NVIDIA_DRIVER_CAPABILITIES="all").findings == []


@pytest.mark.parametrize(
    "path", ["usr/lib/x86_64-linux-gnu/libcuda.so.1", ".singularity.d/libs/libcuda.so.1"]
)
def test_a_container_that_has_cuda_has_it_whatever_the_variable_says(machine: Machine, path: str) -> None:
    """With CDI, as Podman's, and with Apptainer nobody reads the variable, which can be the image's."""
    machine.write(".dockerenv")
    machine.write(path)
    machine.devices()
    assert machine.page(NVIDIA_DRIVER_CAPABILITIES="utility").findings == []


def test_a_service_that_has_given_none(machine: Machine) -> None:
    machine.driver = None
    machine.write(".dockerenv")
    found = machine.page(COLAB_RELEASE_TAG="release-colab-external_20261101").about("driver")
    assert found["mend"] == "Runtime > Change runtime type > T4 GPU"


@pytest.mark.parametrize(
    ("refusal", "what", "mend"),
    [
        (18, "was updated while its old kernel module is still loaded", "sudo reboot"),
        (9, "its kernel module is not loaded", "sudo modprobe nvidia"),
        (4, "refuses this user", "sudo chmod a+rw /dev/nvidia*"),
    ],
)
def test_what_the_driver_refuses(machine: Machine, refusal: int, what: str, mend: str) -> None:
    machine.driver = Driver(CARDS, refuse=refusal)
    found = machine.page().about("driver")
    assert what in found["what"]
    assert found["mend"] == mend


@pytest.mark.parametrize(
    ("refusal", "what"),
    [
        (18, "libraries of another version than its host's kernel module"),
        (9, "its kernel module is not loaded"),
    ],
)
def test_a_container_s_driver_is_its_host_s(machine: Machine, refusal: int, what: str) -> None:
    """In a container neither `reboot` nor `modprobe` works, and one that is started anew has the new driver."""
    machine.driver = Driver(CARDS, refuse=refusal)
    machine.write(".dockerenv")
    found = machine.page().about("driver")
    assert what in found["what"]
    assert "host" in found["meaning"]
    assert found["mend"] == ("docker restart …" if refusal == 18 else "sudo modprobe nvidia")


def test_a_reboot_in_a_container_is_its_host_s(machine: Machine) -> None:
    machine.driver = Driver(CARDS[:1]).losing(0)
    found = machine.page().about("GPUs")
    assert (found["meaning"], found["mend"]) == ("", "sudo reboot")
    machine.write(".dockerenv")
    found = machine.page().about("GPUs")
    assert (found["meaning"], found["mend"]) == ("On the host of this container:", "sudo reboot")


@pytest.mark.parametrize(("error", "is_of_host"), [(802, True), (999, True), (804, False), (46, False)])
def test_what_keeps_cuda_from_starting_in_a_container(
    machine: Machine, error: int, *, is_of_host: bool
) -> None:
    machine.write(".dockerenv")
    start = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
    found = machine.page(start, PRETEND_CUDA_ERROR=str(error)).about("CUDA")
    assert ("host of this container" in found["meaning"]) == is_of_host


def test_a_driver_without_a_gpu_in_a_container(machine: Machine) -> None:
    machine.driver = Driver(())
    machine.write(".dockerenv")
    found = machine.page().about("driver")
    assert found["what"] == "The NVIDIA driver is there, and this process has no GPU of it."
    assert found["mend"] == "docker run --gpus all …"


# Device files


# Root without the capabilities by which it opens every file (capset(2), 1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH).
POWERLESS = """
import ctypes
libc, header, sets = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert libc.capget(header, sets) == 0
sets[0], sets[1] = sets[0] & ~6, sets[1] & ~6
assert libc.capset(header, sets) == 0
"""


def close(machine: Machine, mode: int) -> None:
    for file in (machine.root / "dev").iterdir():
        file.chmod(mode)


def test_device_files_that_are_closed_to_this_user(machine: Machine) -> None:
    machine.driver = Driver(CARDS, refuse=4)
    machine.devices()
    close(machine, 0)
    page = machine.page(before=POWERLESS if os.getuid() == 0 else "")
    assert page.wrong == ["This user may not open /dev/nvidiactl and 5 more device files."]
    assert page.about("device files")["mend"] == "sudo chmod a+rw /dev/nvidia*"


@needs_root
def test_device_files_of_a_group_are_opened_by_joining_it(machine: Machine) -> None:
    import grp
    import shutil

    groups = {one.gr_name for one in grp.getgrall()}
    group = next((name for name in ("video", "render") if name in groups), None)
    if group is None:
        missing("there is neither a group video nor a group render here")
    machine.devices("nvidiactl", "nvidia-uvm", "nvidia0")
    for file in (machine.root / "dev").iterdir():
        shutil.chown(file, group=group)
    close(machine, 0o060)
    found = machine.page(before=POWERLESS).about("device files")
    assert found["what"] == "This user may not open /dev/nvidiactl, /dev/nvidia-uvm and /dev/nvidia0."
    assert found["mend"] == f'sudo usermod -aG {group} "$USER"'


def test_a_device_file_of_memory_that_is_missing(machine: Machine) -> None:
    machine.devices("nvidiactl", "nvidia0")
    found = machine.page().about("device files")
    assert found["what"].startswith("/dev/nvidia-uvm is missing")
    assert found["mend"] == "sudo nvidia-modprobe -c 0 -u"


@needs_root
def test_a_device_file_that_cuda_makes_itself_is_not_missing(machine: Machine) -> None:
    """After a start of the machine it is not there until the first program uses CUDA: nvidia-modprobe(1)."""
    machine.devices("nvidiactl", "nvidia0")
    machine.write("usr/bin/nvidia-modprobe", mode=0o4755)
    page = machine.page()
    assert page.findings == []
    assert page.row("device files") == "/dev/nvidiactl and those of 1 GPU: fine"
    (machine.root / "usr/bin/nvidia-modprobe").chmod(0o755)
    assert machine.page().about("device files")["what"].startswith("/dev/nvidia-uvm is missing")


def test_files_of_gpus_that_others_were_given(machine: Machine) -> None:
    """A scheduler closes the others' files: those that this user was given are open."""
    machine.devices()
    for number in (0, 3):
        (machine.root / f"dev/nvidia{number}").chmod(0)
    page = machine.page(before=POWERLESS if os.getuid() == 0 else "")
    assert page.wrong == []
    found = page.about("device files")
    assert found["severity"] == "worth knowing"
    assert found["what"] == "This user may not open /dev/nvidia0 and /dev/nvidia3."
    assert "CUDA leaves them out" in found["meaning"]


@needs_root
def test_a_device_file_with_no_driver_behind_it(machine: Machine) -> None:
    try:
        os.mknod(machine.root / "device", 0o20666, os.makedev(250, 254))  # a number that nothing has
        os.close(os.open(machine.root / "device", os.O_RDWR))
    except OSError as error:
        if error.errno not in (6, 19):  # ENXIO, ENODEV
            missing(f"no device file can be opened here: {error}")
    machine.devices("nvidia0")
    (machine.root / "device").rename(machine.root / "dev/nvidiactl")
    found = machine.page().about("device files")
    assert found["what"].startswith("/dev/nvidiactl is there, and no driver behind it")
    assert found["mend"].startswith("sudo modprobe nvidia")


@pytest.mark.parametrize(
    ("container", "mend"), [("docker", "docker restart …"), ("kubernetes", "kubectl delete pod …"), ("", "")]
)
def test_a_container_that_has_lost_its_gpus(container: str, mend: str) -> None:
    """No file that is made here answers EPERM: a cgroup does, which has lost the device."""
    files = tuple(DeviceFile(f"/dev/{name}", error="EPERM") for name in ("nvidiactl", "nvidia-uvm"))
    (found,) = check_device_files(Facts(system=System(container=container, devices=files)))
    assert "refuses NVIDIA's device files, though their permissions are open" in found.what
    assert found.mend == mend


# WSL and Jetson


def test_wsl_without_a_gpu_of_windows(machine: Machine) -> None:
    machine.driver = None
    machine.write("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    assert machine.page().about("driver")["mend"] == "wsl --update"


def test_wsl_without_a_driver_in_windows(machine: Machine) -> None:
    machine.driver = None
    machine.write("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    machine.write("dev/dxg")
    found = machine.page().about("driver")
    assert "Windows has no NVIDIA driver for this Linux" in found["what"]
    assert "never in Linux" in found["meaning"]


def test_wsl_that_works_needs_no_device_files(machine: Machine) -> None:
    machine.write("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    machine.write("dev/dxg")
    machine.write("usr/lib/wsl/lib/libcuda.so.1")
    page = machine.page()
    assert page.findings == []
    assert page.row("system") == "WSL"


def test_a_jetson_board_has_builds_of_its_own(machine: Machine) -> None:
    machine.driver = None
    machine.write("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n")
    machine.install_torch("2.8.0", None, label="+cpu")
    page = machine.page()
    assert page.about("driver")["severity"] == "worth knowing"
    assert page.about("PyTorch")["severity"] == "wrong"
    assert "--index-url https://pypi.jetson-ai-lab.io/jp6/cu126" in page.about("PyTorch")["mend"]


# GPUs that CUDA can't use


def test_a_lost_gpu_is_left_out(machine: Machine) -> None:
    machine.driver = Driver(CARDS).losing(1)
    found = machine.page().about("GPUs")
    assert found["what"] == "GPU 1 is not answering: the driver says this GPU is lost."
    assert found["mend"] == "gpu_magic.choose('0,2,3')"


def test_a_gpu_in_compute_mode_prohibited(machine: Machine) -> None:
    machine.driver = Driver((replace(CARDS[0], mode=2), *CARDS[1:]))
    found = machine.page().about("GPUs")
    assert found["what"] == "GPU 0 is in compute mode Prohibited: no process can use CUDA on it."
    assert found["mend"] == "sudo nvidia-smi -i 0 -c DEFAULT"


def test_the_only_gpu_in_an_exclusive_mode_that_another_process_has(machine: Machine) -> None:
    machine.driver = Driver((replace(CARDS[0], mode=3, used=60 << 30, processes=((1, 59 << 30),)),))
    found = machine.page().about("GPUs")
    assert found["severity"] == "wrong"
    assert "Exclusive_Process, and another process has it" in found["what"]


def test_mig_is_told_of(machine: Machine) -> None:
    machine.driver = Driver((replace(CARDS[0], mig=MIG), *CARDS[1:]))
    assert "MIG, 2 instances" in machine.page().row("GPUs")


# MPS, NVML's binding, the page


def test_mps_that_does_not_run_where_it_is_looked_for(machine: Machine) -> None:
    page = machine.page(CUDA_MPS_PIPE_DIRECTORY="/home/maria/mps")
    assert page.about("MPS")["mend"] == "nvidia-cuda-mps-control -d"
    assert "maria" not in page.report
    machine.write("home/maria/mps/control")
    assert machine.page(CUDA_MPS_PIPE_DIRECTORY="/home/maria/mps").findings == []


def test_a_share_of_the_gpu_is_told(machine: Machine) -> None:
    found = machine.page(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="25").about("MPS")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25" in found["what"]


def test_the_deprecated_pynvml_beside_nvidia_s(machine: Machine) -> None:
    machine.install("pynvml", "13.0.1", files=["pynvml_utils/__init__.py"])
    found = machine.page().about("NVML's binding")
    assert (found["severity"], found["mend"]) == ("worth knowing", "python -m pip uninstall -y pynvml")


def test_an_old_pynvml_that_hides_nvidia_s(machine: Machine) -> None:
    machine.install("pynvml", "11.4.1", files=["pynvml/__init__.py"])
    page = machine.page(PYTHONPATH=f"{PROGRAMS / 'pynvml_11'}:{ROOT}")
    found = page.about("NVML's binding")
    assert found["severity"] == "wrong"
    assert found["what"] == "The package pynvml 11.4.1 hides NVIDIA's own, nvidia-ml-py: no GPU can be read."
    assert found["mend"] == "python -m pip uninstall -y pynvml"
    assert len(page.wrong) == 1  # and not once more, as what the driver says


def test_an_older_one_has_overwritten_it(machine: Machine) -> None:
    machine.install("pynvml", "8.0.4", files=["pynvml.py"])
    page = machine.page(PYTHONPATH=f"{PROGRAMS / 'pynvml_11'}:{ROOT}")
    assert page.about("NVML's binding")["mend"].splitlines() == [
        "python -m pip uninstall -y pynvml",
        "python -m pip install --force-reinstall nvidia-ml-py",
    ]


def test_an_older_one_is_not_removed_with_nvidia_s_file(machine: Machine) -> None:
    """What was installed last works: to remove pynvml removes pynvml.py, which is nvidia-ml-py's."""
    machine.install("pynvml", "8.0.4", files=["pynvml.py"])
    found = machine.page().about("NVML's binding")
    assert found["severity"] == "worth knowing"
    assert found["mend"].splitlines() == [
        "python -m pip uninstall -y pynvml",
        "python -m pip install --force-reinstall nvidia-ml-py",
    ]


def test_a_source_that_fails_is_one_line(machine: Machine) -> None:
    page = machine.page(GPU_MAGIC_SIMULATE="8xNonsense")
    (found,) = (finding for finding in page.findings if finding["about"] == "the GPUs")
    assert found["severity"] == "unknown"
    assert "\n" not in found["what"]
    assert page.facts["machine"] is None
    assert page.facts["packages"] is not None


def test_files_that_can_hold_anything(machine: Machine) -> None:
    machine.write("proc/driver/nvidia/version", "\0\x1b[31m\n" * 1000)
    machine.write("etc/nv_tegra_release", "R36")
    machine.write("sys/bus/pci/devices/x/vendor", "\xff")
    (machine.root / "dev").mkdir()
    (machine.root / "dev/nvidia-uvm").mkdir()
    (machine.root / "dev/nvidia0").symlink_to("nowhere")
    page = machine.page(CUDA_VISIBLE_DEVICES="\x1b[31m<b>")
    assert [finding for finding in page.findings if finding["severity"] == "unknown"] == []
    assert "\x1b" not in page.text + page.html + page.report
    assert "<b>" not in page.html.replace("<b>Wrong", "").replace("<p><b>", "")


def test_a_report_names_nobody(machine: Machine) -> None:
    home = Path(machine.folder) / "maria"
    page = machine.page(
        HOME=str(home),
        USER="maria",
        HOSTNAME="gpu07.example.org",
        CUDA_VISIBLE_DEVICES=f"{CARDS[2].uuid},{home}/x",
    )
    assert "GPU-2a00…" in page.report
    assert CARDS[2].uuid in page.text
    for private in ("maria", "gpu07", str(machine.folder), CARDS[2].uuid):
        assert private not in page.report


def test_a_file_system_that_does_not_answer_is_given_up(machine: Machine) -> None:
    (machine.root / "proc/driver/nvidia").mkdir(parents=True)
    os.mkfifo(machine.root / "proc/driver/nvidia/version")  # to open it waits for a writer
    program = """
        import sys
        from pathlib import Path
        import gpu_magic.api.diagnosis
        from gpu_magic.diagnosis.gathering import gather
        from gpu_magic.process.session import current
        facts, unread = gather(current(), "python", root=Path(sys.argv[1]), seconds=3.0)
        print(*[finding.what for finding in unread], sep="\\n")
        print(facts.packages.version("nvidia-ml-py") != "", facts.front_end)
    """
    shown = machine.run(textwrap.dedent(program), str(machine.root)).splitlines()
    assert shown[0] == "What there is to know of the system could not be read: it did not answer in time"
    assert shown[1].startswith("True FrontEnd(")
