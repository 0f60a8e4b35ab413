"""The GPUs that a process was given: those that CUDA or HIP sees with the variables of the process's start.

The list of a scheduler or a container tells who gave the GPUs. It also tells which GPUs these are if no
variable names GPUs, or if it is unknown which GPUs the numbers in the variable mean. If the variables name
GPUs that the list lacks, a note warns.

Sources:

- Slurm: sbatch and srun, "Output environment variables": SLURM_JOB_GPUS and SLURM_STEP_GPUS are "not relative
  to any device cgroup, even if devices are constrained"; gres.html, "GPU Management": with ConstrainDevices
  the job's CUDA_VISIBLE_DEVICES counts from 0 among what it can see; `common_gres_set_env` in
  src/plugins/gres/common/gres_common.c: the numbers are those of the device files (/dev/nvidia2). Slurm 25.11
  writes UUIDs into CUDA_VISIBLE_DEVICES and numbers into SLURM_JOB_GPUS (slurm-operator #112).
- Slurm with AMD's GPUs: `gres_common_gpu_set_env` in the same file sets ROCR_VISIBLE_DEVICES, and with it
  CUDA_VISIBLE_DEVICES unless the GPUs have `Flags=amd_gpu_env` or AutoDetect=rsmi (gres.conf). SLURM_JOB_GPUS
  has their positions in the host's list, which AutoDetect=rsmi sorts as rocm-smi does.
- LSF: "NVIDIA GPU access enforcement": only CUDA_VISIBLE_DEVICES. With cgroups, it counts from 0.
- PBS: its cgroups hook writes UUIDs into CUDA_VISIBLE_DEVICES (openpbs #1168).
- Containers: NVIDIA Container Toolkit, "GPU enumeration": NVIDIA_VISIBLE_DEVICES has the host's numbers or
  UUIDs, and the container sees only those GPUs. CUDA's base images set `all`, so `all` has no meaning. `void`
  means that this variable does not give the GPUs, for example because Kubernetes gives them by CDI.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpu_magic.devices.model import UNKNOWN, Device, Gpu, Unknown, parts, with_instances
from gpu_magic.errors import ChoiceError
from gpu_magic.process.find import check_usable, find, mig_instances, whole_gpus
from gpu_magic.process.mask import Flaw, Note, Reading, Variables
from gpu_magic.process.visible import in_force, read_visible
from gpu_magic.text import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_magic.devices.model import Inventory

__all__ = ["Given", "Grant", "is_within", "read_grant"]

_Devices = tuple[Device, ...] | Unknown
# The number of the first GPU's device file: /dev/nvidia0, /dev/dri/renderD128.
_FIRST_FILE = {"nvidia": 0, "amd": 128}
_LONGEST = 60  # characters of a job's name
_UUID = r"(?:GPU|MIG|MIG-GPU)-[0-9A-Fa-f-]+"
_NUMBER = r"[0-9]{1,4}"


class Grant(NamedTuple):
    """The GPUs that a scheduler or a container has given to this process."""

    giver: str = ""  # who gave them, in words: "Slurm job 123", "the container"; empty if unknown
    gpus: tuple[str, ...] | None = None  # the giver's list: UUIDs, or numbers of device files
    listed: str = ""  # the same, as written
    count: int = 0  # type: ignore[assignment] # it hides a tuple's method. How many, if only that is known
    scheduler: str = ""  # "Slurm", "LSF" or "PBS"; empty for another giver


def read_grant(environment: Mapping[str, str]) -> Grant:
    """Return who gave this process its GPUs, and which, by the variables at its launch.

    The number of a job alone does not mean that the process was given GPUs here, because Slurm's salloc also
    sets it in a shell on the host where salloc is typed.
    """
    has_mask = "CUDA_VISIBLE_DEVICES" in environment
    listed = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    jobs = {
        "Slurm": environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID"),
        "LSF": environment.get("LSB_JOBID"),
        "PBS": environment.get("PBS_JOBID"),
    }
    for scheduler, job in jobs.items():
        is_slurm = scheduler == "Slurm"
        if (is_slurm and listed) or (
            job and (has_mask or (is_slurm and "ROCR_VISIBLE_DEVICES" in environment))
        ):
            giver = f"{scheduler} job {shortened(job, _LONGEST)}" if job else scheduler
            entries = listed.split(",") if is_slurm else [""]
            is_list = all(re.fullmatch(rf"{_NUMBER}|{_UUID}", entry) for entry in entries)
            gpus = tuple(entries) if is_list else None
            return Grant(giver, gpus, listed if is_slurm else "", scheduler=scheduler)
    listed = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    is_pod, entries = "KUBERNETES_SERVICE_HOST" in environment, listed.split(",")
    giver = "Kubernetes" if is_pod else "the container"
    if all(re.fullmatch(_UUID, entry) for entry in entries):
        return Grant(giver, tuple(entries), listed)
    if all(re.fullmatch(rf"{_NUMBER}(:[0-9]{{1,2}})?", entry) for entry in entries):
        return Grant(giver, count=len(entries))
    return Grant(giver) if is_pod and listed == "void" else Grant()


_NOBODY = Grant()


class Given:
    """The devices that this process was given on a machine."""

    reading: Reading  # what the variables mean
    devices: _Devices  # the devices that the process may use
    is_all: bool  # whether the process may use every device of the machine
    _is_of_host = False  # whether the variable has numbers that only the host of this container has

    def __init__(self, machine: Inventory, inherited: tuple[str | None, ...], grant: Grant = _NOBODY) -> None:
        variables = Variables(*inherited)
        if machine.vendor == "amd" and variables.mask == variables.rocr:
            # Slurm can write the same numbers into both, so HIP would count them again among the GPUs that
            # ROCm leaves. A choice unsets CUDA_VISIBLE_DEVICES.
            variables = variables._replace(mask=None)
        self._machine, self._grant = machine, grant
        values = self._in_force = in_force(variables, machine)
        self.reading = read_visible(variables, machine)
        self.is_all = not values or self.reading.names_all
        self.devices = machine.devices if self.is_all else self.reading.named
        # If the variable has the same text as the list, both mean what CUDA or ROCm reads. But where a
        # container has the job's GPUs alone and Slurm wrote the host's numbers, CUDA reads fewer GPUs.
        is_same = list(values.values()) == [grant.listed] and self.devices is not UNKNOWN
        count = UNKNOWN if self.reading.named is UNKNOWN else len(self.reading.named)
        is_short = count is not UNKNOWN and count < len(grant.gpus or ())
        is_of_host = is_same and is_short and machine.vendor == "nvidia"
        listed = self._listed = self.devices if is_same and not is_of_host else _read_list(machine, grant)
        sizes = [len(value.split(",")) for value in values.values()]
        is_unclear = not values or self.devices is UNKNOWN or is_of_host
        if is_unclear and listed is not UNKNOWN and sizes in ([], [len(grant.gpus or ())]):
            self.devices, self.is_all = listed, is_within(machine.devices, listed)
            self._is_of_host = is_of_host
        # Slurm's number of a MIG instance is not that of its GPU's device file, so UUIDs tell more.
        names_instances = self.devices is not UNKNOWN and mig_instances(self.devices) and values
        if names_instances and all(entry.isdecimal() for entry in grant.gpus or ()):
            self._listed = self.devices

    @property
    def pool(self) -> tuple[Device, ...]:
        """The devices that the process may use. Raises ChoiceError if they are unknown."""
        if self.devices is UNKNOWN:
            why = next(reversed(self.reading.notes), "")
            raise ChoiceError(
                f"Which GPUs this process was given is unknown: {self._values}. {why} "
                f"Start it with UUIDs in {next(iter(self._in_force), 'CUDA_VISIBLE_DEVICES')}"
                ", or add --force to choose from all GPUs."
            )
        return self.devices

    @property
    def text(self) -> str:
        """Who gave which GPUs: `allotted by Slurm job 123: GPUs 2, 5`. Empty if unknown."""
        grant, granted = self._grant, self._allotted
        if not grant.giver or (grant.count and grant.count != len(parts(self._machine.devices))):
            return ""
        which = "GPUs unknown" if granted is UNKNOWN else _numbers(granted)
        return f"allotted by {grant.giver}: {which}"

    @property
    def contradiction(self) -> Note | None:
        """The warning that the variables name other GPUs than the scheduler or the container allotted."""
        devices, listed, giver = self.devices, self._listed, self._grant.giver
        if devices is UNKNOWN or listed is UNKNOWN or is_within(devices, listed):
            return None
        if set(",".join(self._in_force.values()).split(",")) <= set(self._grant.gpus or ()):
            return None  # the same numbers, which CUDA reads in another order than that of device files
        what = (
            f"{giver[0].upper()}{giver[1:]} allotted {_numbers(listed)}, but this process was {self._start}. "
            "Other jobs may use GPUs that were not allotted."
        )
        return Note(what, Flaw.CONTRADICTION)

    @property
    def host_numbers(self) -> Note | None:
        """The note that the variable has numbers of the host, which mean nothing in this container."""
        if not self._is_of_host:
            return None
        what = (
            f"{self._values} has the numbers of the host. {self._grant.giver} has {_numbers(self.pool)} here."
        )
        how = "all" if whole_gpus(self.pool) or not self.pool[1:] else "auto"  # not several MIG instances
        return Note(what, advice=f"To use them: %gpus {how}")

    @property
    def _allotted(self) -> _Devices:
        """The devices that a scheduler or a container gave, of which the variables may name only some."""
        return self.devices if self._listed is UNKNOWN else self._listed

    @property
    def sentence(self) -> str:
        """What was given, in words: `it was started with CUDA_VISIBLE_DEVICES=0 (GPU 0)`."""
        return f"it was {self._start}"

    @property
    def _start(self) -> str:
        there = ", ".join(device.label for device in self.pool) or "no GPU"
        return f"started with {self._values} ({there})"

    @property
    def _values(self) -> str:
        values = self._in_force.items()
        return " and ".join(f"{name}={value}" if value else f"{name} empty" for name, value in values)

    @property
    def unset(self) -> str:
        """How to show the GPUs if the variables hide all of them, as a further sentence; else empty."""
        if self.devices != () or self._grant.giver or not self._in_force:
            return ""
        return f" To see all GPUs, run unset {' '.join(self._in_force)} before you start it."

    def outside(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """Return the devices that the process is not known to have been given."""
        if self.is_all:
            return ()
        given = set() if self.devices is UNKNOWN else {device.identity for device in self.devices}
        return tuple(device for device in devices if device.identity not in given)

    def check_inside(self, devices: tuple[Device, ...]) -> None:
        """Raise ChoiceError if the process was not given one of these devices."""
        for device in self.outside(devices):
            granted, giver = self._allotted, self._grant.giver
            if granted is UNKNOWN or not giver or is_within((device,), granted):
                why = f"was not given to this process: {self.sentence}"
            else:
                why = f"is not among the GPUs that {giver} allotted to this process ({_numbers(granted)})"
            raise ChoiceError(f"{device.label} {why}.{self.unset} --force overrides this.")

    def why_not(self, device: Device) -> str:
        """Return why a device cannot be chosen, as a sentence. Empty if it can."""
        try:
            if isinstance(device, Gpu):
                check_usable(device)
            self.check_inside((device,))
        except ChoiceError as error:
            error.keep_ways(lambda way: self.check_inside((find(way, self._machine),)))
            return str(error)
        return ""


def is_within(devices: tuple[Device, ...], others: tuple[Device, ...]) -> bool:
    """Return whether all of the devices that CUDA can use are among the others."""
    return {device.identity for device in parts(devices)} <= {device.identity for device in parts(others)}


def _read_list(machine: Inventory, grant: Grant) -> _Devices:
    """Return the devices of a list, whose numbers are those of device files. For a split GPU, its instances.

    UNKNOWN without a list, or if it has a GPU that is not seen here.
    """
    if not grant.gpus:
        return UNKNOWN
    found: tuple[Device, ...] = tuple(device for device in machine.devices if device.uuid in grant.gpus)
    if all(entry.isdecimal() for entry in grant.gpus):
        first = _FIRST_FILE[machine.vendor]
        numbers = {number - first if number >= first else number for number in map(int, grant.gpus)}
        found = tuple(gpu for gpu in machine if gpu.minor is not UNKNOWN and gpu.minor - first in numbers)
    return with_instances(found) if len(found) == len(set(grant.gpus)) else UNKNOWN


def _numbers(devices: tuple[Device, ...]) -> str:
    """Return `GPUs 2, 5`, or `GPU 2:1` for a MIG instance."""
    names = [device.number_text for device in parts(devices)]
    return f"GPU{'s' if names[1:] else ''} {', '.join(names)}" if names else "no GPU"
