"""A kernel that a scheduler or a container has given GPUs to: by the environment that it was launched with."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.kernel.test_choose import CUDA_SEES
from tests.machine import CARDS, MIG, Driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

SLURM = {"SLURM_JOB_ID": "123", "SLURM_JOB_GPUS": "1,3", "CUDA_VISIBLE_DEVICES": "1,3"}


def test_in_a_slurm_job_others_are_refused_and_auto_and_all_take_its_own(
    start_kernel: Callable[..., Kernel],
) -> None:
    kernel = start_kernel(**SLURM).load()
    says = "CUDA_VISIBLE_DEVICES=1,3; allotted by Slurm job 123: GPUs 1, 3"
    shown = kernel.run("%gpus")
    assert f"Started with  {says}" in shown.text
    assert says in shown.html
    assert "not given" in shown.text
    assert (
        "GPU 2 is not among the GPUs that Slurm job 123 allotted to this process (GPUs 1, 3). --force overrides this."
        in (kernel.run("%gpus 2").refusal)
    )
    assert "cuda:1 = GPU 3" in kernel.run("%gpus all").said
    assert "cuda:1 = GPU" in kernel.run("%gpus auto:2").said
    assert "can pick only 2 GPUs" in kernel.run("%gpus auto:3").refusal
    assert kernel.run("%gpus 2 --force").status == "ok"
    # A child process has what its parent has forced.
    child = "import gpu_magic; print(gpu_magic.choose('all'))"
    reply = kernel.run(
        f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {child!r}], text=True))"
    )
    assert "cuda:0 = GPU 2" in reply.said


def test_in_a_container_the_job_has_the_gpus_of_the_host_s_numbers(
    start_kernel: Callable[..., Kernel],
) -> None:
    driver = Driver((replace(CARDS[0], minor=1), replace(CARDS[1], minor=3)))
    kernel = start_kernel(driver, **SLURM).load()
    says = "CUDA_VISIBLE_DEVICES=1,3 has the numbers of the host. Slurm job 123 has GPUs 0, 1 here."
    assert says in kernel.run("%gpus").text
    assert "cuda:1 = GPU 1" in kernel.run("%gpus all").said
    assert says not in kernel.run("%gpus").text


def test_a_cell_that_has_removed_the_mask_does_not_widen_the_job(start_kernel: Callable[..., Kernel]) -> None:
    """Also not one that ran before the kernel: a script of the job has removed it."""
    kernel = start_kernel(SLURM_JOB_ID="123", SLURM_JOB_GPUS="1,3").load()
    assert "CUDA_VISIBLE_DEVICES not set; allotted by Slurm job 123: GPUs 1, 3" in kernel.run("%gpus").text
    assert "allotted" in kernel.run("%gpus 0").refusal


def test_in_a_container_the_job_has_the_instances_of_the_host_s_number(
    start_kernel: Callable[..., Kernel],
) -> None:
    job = {"SLURM_JOB_ID": "123", "SLURM_JOB_GPUS": "2", "CUDA_VISIBLE_DEVICES": "2"}
    kernel = start_kernel(Driver((replace(CARDS[0], minor=2, mig=MIG),)), **job).load()
    says = "CUDA_VISIBLE_DEVICES=2 has the numbers of the host. Slurm job 123 has GPUs 0:0, 0:1 here."
    assert f"{says} To use them: %gpus auto" in kernel.run("%gpus").text
    assert "cuda:0 = MIG instance 0:0" in kernel.run("%gpus auto").said
    assert "cuda:0 = MIG instance 0:1" in kernel.run("%gpus 0:1").said
    assert "split by MIG" in kernel.run("%gpus 0").refusal


SPLIT = Driver((CARDS[0], replace(CARDS[1], mig=MIG)), version="550.54.15", cuda=12040)


def test_cuda_sees_the_mig_instance_that_was_named(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(SPLIT).load()
    for typed in ("1:1", f"MIG-{CARDS[1].uuid}/2/0", MIG[1].uuid[:8]):
        assert "cuda:0 = MIG instance 1:1" in kernel.run(f"%gpus {typed}").said
        seen = f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-ISc', {CUDA_SEES!r}], text=True))"
        assert kernel.run(seen).stdout.split() == [MIG[1].uuid.replace("MIG-", "GPU-")]
        assert "1:1" in kernel.run("%gpus").text
        kernel.run("%gpus reset")
    kernel.run("%gpus 1:1")
    assert kernel.run("%%on_gpu smi:1:1\n6 * 7").text == "42"
    refused = "MIG instance 1:0 is not visible here"
    assert refused in kernel.run("%%on_gpu smi:1:0\n1").stderr


def test_what_a_job_was_given_of_mig(start_kernel: Callable[..., Kernel]) -> None:
    """By a value of drivers before R470, and several of a job, which CUDA 12 can use one by one."""
    kernel = start_kernel(SPLIT, CUDA_VISIBLE_DEVICES=f"MIG-{CARDS[1].uuid}/2/0").load()
    assert "cuda:0 = MIG instance 1:1" in kernel.run("%gpus all").said
    assert "MIG instance 1:0 was not given to this process" in kernel.run("%gpus 1:0").refusal
    job = {"SLURM_JOB_ID": "9", "CUDA_VISIBLE_DEVICES": ",".join(part.uuid for part in MIG)}
    kernel = start_kernel(SPLIT, **job).load()
    shown = kernel.run("%gpus").text
    assert "allotted by Slurm job 9: GPUs 1:0, 1:1" in shown
    assert "CUDA 12.4 lets one process use one MIG instance and no other GPU. CUDA sees only MIG-0" in shown
    assert "cuda:0 = MIG instance 1:1" in kernel.run("%gpus 1:1").said


def test_engines_have_one_instance_each_as_cuda_sees_it(start_kernel: Callable[..., Kernel]) -> None:
    job = {"SLURM_JOB_ID": "9", "CUDA_VISIBLE_DEVICES": ",".join(part.uuid for part in MIG)}
    kernel = start_kernel(SPLIT, **job).load()
    assert kernel.run("%gpu_cluster").said.startswith("2 engines: 0 = MIG instance 1:0")
    shown = kernel.run(f"%%px --no-stream\n{CUDA_SEES}").stdout
    assert re.findall("GPU-[-0-9a-f]+", shown) == [part.uuid.replace("MIG-", "GPU-") for part in MIG]
