"""Who gave this process its GPUs, a scheduler or a container, and which: read from its launch environment.

Sources:

- Slurm: sbatch and srun, "Output environment variables": SLURM_JOB_GPUS and SLURM_STEP_GPUS are "not relative
  to any device cgroup, even if devices are constrained"; gres.html, "GPU Management": with ConstrainDevices
  the job's CUDA_VISIBLE_DEVICES counts from 0 among what it can see; `common_gres_set_env` in
  src/plugins/gres/common/gres_common.c: the numbers are those of the device files (/dev/nvidia2). Slurm 25.11
  writes UUIDs into CUDA_VISIBLE_DEVICES, and numbers into SLURM_JOB_GPUS (slurm-operator #112).
- Slurm with AMD's GPUs: `gres_common_gpu_set_env` in the same file sets ROCR_VISIBLE_DEVICES, and with it
  CUDA_VISIBLE_DEVICES unless the GPUs have `Flags=amd_gpu_env` or AutoDetect=rsmi (gres.conf). SLURM_JOB_GPUS
  has their places in the host's list, in which AutoDetect=rsmi puts them in rocm-smi's order.
- LSF: "NVIDIA GPU access enforcement": CUDA_VISIBLE_DEVICES alone; with cgroups it counts from 0.
- PBS: its cgroups hook writes UUIDs into CUDA_VISIBLE_DEVICES (openpbs #1168).
- Containers: NVIDIA Container Toolkit, "GPU enumeration": NVIDIA_VISIBLE_DEVICES has the host's numbers or
  UUIDs, and the container sees those alone; `all` is set in CUDA's base images, so it says nothing; `void`
  means that it is not this variable that gives GPUs, which is so where Kubernetes does by CDI.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Grant", "read_grant"]

_LONGEST = 60  # characters of a job's name
_UUID = r"(?:GPU|MIG|MIG-GPU)-[0-9A-Fa-f-]+"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a scheduler or a container has given to this process.

    Parameters
    ----------
    by
        Who gave it: "Slurm job 123", "the container"; empty where nobody is known.
    gpus
        Its own list of them, besides the variables that frameworks read: UUIDs, or numbers of device files;
        None: none.
    listed
        The same as it was written; empty where there is none.
    count
        How many it gave, where it tells no more than that; 0: not known.

    """

    by: str = ""
    gpus: tuple[str, ...] | None = None
    listed: str = ""
    count: int = 0


def read_grant(environment: Mapping[str, str]) -> Grant:
    """Return who gave this process its GPUs.

    Parameters
    ----------
    environment
        The variables that it was launched with. A job's number alone does not say that it was given GPUs
        here: Slurm's salloc sets it in a shell on the host that it is typed on.

    """
    has_mask = "CUDA_VISIBLE_DEVICES" in environment
    listed = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    slurm = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    if listed or (slurm and (has_mask or "ROCR_VISIBLE_DEVICES" in environment)):
        entries = listed.split(",")
        is_list = all(re.fullmatch(rf"[0-9]{{1,4}}|{_UUID}", entry) for entry in entries)
        return Grant(_job("Slurm", slurm), tuple(entries) if is_list else None, listed)
    if (job := environment.get("LSB_JOBID")) and has_mask:
        return Grant(_job("LSF", job))
    if (job := environment.get("PBS_JOBID")) and has_mask:
        return Grant(_job("PBS", job))
    return _read_container(environment)


def _job(scheduler: str, number: str | None) -> str:
    return f"{scheduler} job {shortened(number, _LONGEST)}" if number else scheduler


def _read_container(environment: Mapping[str, str]) -> Grant:
    listed = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    is_pod = "KUBERNETES_SERVICE_HOST" in environment
    by = "Kubernetes" if is_pod else "the container"
    entries = tuple(listed.split(","))
    if all(re.fullmatch(_UUID, entry) for entry in entries):
        return Grant(by, entries, listed)
    if all(re.fullmatch(r"[0-9]{1,4}(:[0-9]{1,2})?", entry) for entry in entries):
        return Grant(by, count=len(entries))
    return Grant(by) if is_pod and listed == "void" else Grant()
