"""A kernel that a scheduler or a container has given GPUs to: by the environment that it was launched with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.kernel.test_choose import CUDA_SEES
from tests.machine import CARDS, MIG, Driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

SLURM = {"SLURM_JOB_ID": "123", "SLURM_JOB_GPUS": "1,3", "CUDA_VISIBLE_DEVICES": "1,3"}
# What a job sees of a machine of eight where cgroups hide the rest.
HIDDEN = Driver(tuple(replace(card, minor=minor) for card, minor in zip(CARDS[:2], (2, 5), strict=True)))


def load(kernel: Kernel) -> Kernel:
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    return kernel


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        (SLURM, "CUDA_VISIBLE_DEVICES=1,3; allotted by Slurm job 123: GPUs 1, 3"),
        (
            {"LSB_JOBID": "7", "CUDA_VISIBLE_DEVICES": "2"},
            "CUDA_VISIBLE_DEVICES=2; allotted by LSF job 7: GPU 2",
        ),
        (
            {"PBS_JOBID": "8.host", "CUDA_VISIBLE_DEVICES": CARDS[2].uuid},
            f"CUDA_VISIBLE_DEVICES={CARDS[2].uuid}; allotted by PBS job 8.host: GPU 2",
        ),
        (
            {"NVIDIA_VISIBLE_DEVICES": CARDS[0].uuid},
            "CUDA_VISIBLE_DEVICES not set; allotted by the container: GPU 0",
        ),
        (
            {"NVIDIA_VISIBLE_DEVICES": "void", "KUBERNETES_SERVICE_HOST": "10.0.0.1"},
            "CUDA_VISIBLE_DEVICES not set; allotted by Kubernetes: GPUs 0, 1, 2, 3",
        ),
    ],
)
def test_the_table_says_who_gave_which_gpus(
    start_kernel: Callable[..., Kernel], variables: dict[str, str], says: str
) -> None:
    shown = load(start_kernel(**variables)).run("%gpus")
    assert f"Started with  {says}" in shown.text
    assert says in shown.html


def test_in_a_slurm_job_others_are_refused_and_auto_and_all_take_its_own(
    start_kernel: Callable[..., Kernel],
) -> None:
    kernel = load(start_kernel(**SLURM))
    assert "not given" in kernel.run("%gpus").text
    assert "GPU 2 is outside what Slurm job 123 allotted to this process (GPUs 1, 3); --force overrides." in (
        kernel.run("%gpus 2").stderr
    )
    assert "cuda:1 = GPU 3" in kernel.run("%gpus all").stdout
    assert "cuda:1 = GPU" in kernel.run("%gpus auto:2").stdout
    assert "only 2 can be picked" in kernel.run("%gpus auto:3").stderr
    assert kernel.run("%gpus 2 --force").status == "ok"


def test_a_child_process_has_what_its_parent_has_forced(start_kernel: Callable[..., Kernel]) -> None:
    kernel = load(start_kernel(**SLURM))
    kernel.run("%gpus 2 --force")
    child = "import gpu_magic; print(gpu_magic.choose('all'))"
    reply = kernel.run(
        f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {child!r}], text=True))"
    )
    assert "cuda:0 = GPU 2" in reply.stdout


def test_where_cgroups_hide_other_gpus_the_numbers_are_those_that_nvidia_smi_shows_there(
    start_kernel: Callable[..., Kernel],
) -> None:
    job = {"SLURM_JOB_ID": "123", "SLURM_JOB_GPUS": "2,5", "CUDA_VISIBLE_DEVICES": "0,1"}
    kernel = load(start_kernel(HIDDEN, **job))
    assert "allotted by Slurm job 123: GPUs 0, 1" in kernel.run("%gpus").text
    assert "cuda:0 = GPU 1" in kernel.run("%gpus 1").stdout


def test_a_cell_that_has_removed_the_mask_does_not_widen_the_job(start_kernel: Callable[..., Kernel]) -> None:
    """Also not one that ran before the kernel: a script of the job has removed it."""
    kernel = load(start_kernel(SLURM_JOB_ID="123", SLURM_JOB_GPUS="1,3"))
    assert "CUDA_VISIBLE_DEVICES not set; allotted by Slurm job 123: GPUs 1, 3" in kernel.run("%gpus").text
    assert "cuda:1 = GPU 3" in kernel.run("%gpus all").stdout
    assert "allotted" in kernel.run("%gpus 0").stderr


SPLIT = Driver((CARDS[0], replace(CARDS[1], mig=MIG)), version="550.54.15", cuda=12040)


@pytest.mark.parametrize("typed", ["1:1", f"MIG-{CARDS[1].uuid}/2/0", MIG[1].uuid[:8]])
def test_cuda_sees_the_mig_instance_that_was_named(start_kernel: Callable[..., Kernel], typed: str) -> None:
    kernel = load(start_kernel(SPLIT))
    assert "cuda:0 = MIG instance 1:1" in kernel.run(f"%gpus {typed}").stdout
    assert kernel.run(CUDA_SEES).stdout.split() == [MIG[1].uuid.replace("MIG-", "GPU-")]
    assert "1:1" in kernel.run("%gpus").text


def test_a_cell_runs_on_a_mig_instance_by_nvidia_smi_s_number(
    start_kernel: Callable[..., Kernel],
) -> None:
    kernel = load(start_kernel(SPLIT))
    kernel.run("%gpus 1:1")
    assert kernel.run("%%on_gpu smi:1:1\n6 * 7").text == "42"
    assert (
        "MIG instance 1:0 is not among the GPUs of this process" in kernel.run("%%on_gpu smi:1:0\n1").stderr
    )


def test_a_launch_value_of_drivers_before_r470_is_an_allotment(start_kernel: Callable[..., Kernel]) -> None:
    kernel = load(start_kernel(SPLIT, CUDA_VISIBLE_DEVICES=f"MIG-{CARDS[1].uuid}/2/0"))
    assert "cuda:0 = MIG instance 1:1" in kernel.run("%gpus all").stdout
    assert "MIG instance 1:0 is outside what this process was given" in kernel.run("%gpus 1:0").stderr


def test_the_second_of_several_mig_instances_that_a_job_has_can_be_chosen(
    start_kernel: Callable[..., Kernel],
) -> None:
    job = {"SLURM_JOB_ID": "9", "CUDA_VISIBLE_DEVICES": ",".join(part.uuid for part in MIG)}
    kernel = load(start_kernel(SPLIT, **job))
    shown = kernel.run("%gpus").text
    assert "allotted by Slurm job 9: GPUs 1:0, 1:1" in shown
    assert "CUDA 12.4 lets one process use one MIG instance and no other GPU: CUDA sees MIG-0" in shown
    assert "cuda:0 = MIG instance 1:1" in kernel.run("%gpus 1:1").stdout
