"""The GPUs that a process was given: by its variables, and by the list of a scheduler or a container.

A scheduler's list has all GPUs that were given. A script can have named fewer of them in the variables. If
the two contradict each other, UUIDs in the variables count: `--force` writes UUIDs, so a child process has
the GPUs that its parent chose. With numbers, it is unknown which are right, and the choice is refused.

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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN, Device, Gpu, Unknown, parts
from gpu_magic.errors import ChoiceError
from gpu_magic.process.find import check_usable
from gpu_magic.process.mask import PCI, Reading, Variables, read
from gpu_magic.process.visible import in_force, read_hip, read_visible, together
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


@dataclass(frozen=True, slots=True)
class Grant:
    """The GPUs that a scheduler or a container has given to this process."""

    giver: str = ""  # who gave them, in words: "Slurm job 123", "the container"; empty if unknown
    gpus: tuple[str, ...] | None = None  # the giver's list: UUIDs, or numbers of device files
    listed: str = ""  # the same, as written
    count: int = 0  # how many, if only that is known
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
    """The devices that this process was given on a machine, by its variables at the start and its scheduler.

    If no variable hides a GPU of this machine, the process may use all devices, or those on the scheduler's
    list. On a machine with GPUs of both vendors, the list is read as a list of NVIDIA's GPUs.
    """

    reading: Reading  # what the variables mean
    devices: _Devices  # the devices that the process may use
    is_all: bool  # whether the process may use every device of the machine

    def __init__(
        self, inventory: Inventory, inherited: tuple[str | None, ...], grant: Grant = _NOBODY
    ) -> None:
        variables = Variables(*inherited)
        self.inventory, self._grant = inventory, grant
        self._in_force, self.reading = in_force(variables, inventory), read_visible(variables, inventory)
        first, *others = inventory.vendors or ("nvidia",)
        settled = _settle(inventory.of_vendor(first), variables, grant)
        self.devices, self._granted, self.is_all, self._why = settled
        for other in others:
            devices, _, is_all, why = _settle(inventory.of_vendor(other), variables, _NOBODY)
            self.devices = together(self.devices, devices)
            self.is_all, self._why = self.is_all and is_all, self._why or why

    @property
    def pool(self) -> tuple[Device, ...]:
        """The devices that the process may use. Raises ChoiceError if they are unknown."""
        if self.devices is UNKNOWN:
            value = f"{self._values}. " if self._in_force else ""
            raise ChoiceError(
                f"Which GPUs this process was given is unknown: {value}{self._why} "
                f"Start it with UUIDs in {next(iter(self._in_force), 'CUDA_VISIBLE_DEVICES')}"
                ", or add --force to choose from all GPUs."
            )
        return self.devices

    @property
    def text(self) -> str:
        """Who gave which GPUs: `allotted by Slurm job 123: GPUs 2, 5`. Empty if unknown."""
        grant, granted = self._grant, self._granted
        if not grant.giver or (grant.count and grant.count != len(parts(self.inventory.devices))):
            return ""
        which = "GPUs unknown" if granted is UNKNOWN else _numbers(granted)
        return f"allotted by {grant.giver}: {which}"

    @property
    def sentence(self) -> str:
        """What was given, in words: `it was started with CUDA_VISIBLE_DEVICES=0 (GPU 0)`."""
        there = ", ".join(device.label for device in self.pool) or "no GPU"
        return f"it was started with {self._values} ({there})"

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
            granted, giver = self._granted, self._grant.giver
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
            return str(error)
        return ""


def _settle(there: Inventory, variables: Variables, grant: Grant) -> tuple[_Devices, _Devices, bool, str]:
    """Return what was given of one vendor's GPUs, as four values.

    The devices that the process may use. Those that its scheduler gave, of which the variables may name only
    some. Whether the process may use all devices. Why the devices are UNKNOWN, as a sentence.
    """
    reading, values = read_visible(variables, there), in_force(variables, there)
    is_all, is_amd = not values or reading.names_all, there.vendors == ("amd",)
    named = granted = there.devices if is_all else reading.named
    # HIP sees at most the GPUs that ROCR_VISIBLE_DEVICES leaves, whatever AMD's other variables mean.
    left = read_hip(Variables(rocr=variables.rocr), there).devices if is_amd else UNKNOWN
    why = str(next(reversed(reading.notes), ""))
    if grant.listed in values.values():
        # The scheduler wrote the same text into both, so the text means what CUDA, or ROCm's runtime, reads.
        if is_amd and grant.listed == variables.rocr:
            granted = left
            # Slurm may also have written it into CUDA_VISIBLE_DEVICES, by which HIP would count the rest. But
            # a choice sets HIP_VISIBLE_DEVICES, and then HIP does not read CUDA_VISIBLE_DEVICES.
            if variables.hip is None and variables.mask == variables.rocr:
                named = granted
        elif not is_amd and named is UNKNOWN:
            named = granted = read(variables.mask, there, PCI).devices
        return named, granted, is_all, why
    lists = _read_list(there, grant)
    if not lists:
        return named, named, is_all, why
    named_by = next(filter(None, reversed(values.values())), "")
    is_exact = named_by.startswith(("GPU-", "MIG-"))
    if lists[1:]:
        which = f"{grant.giver} lists {grant.listed}, which is ambiguous here."
        is_narrower = not is_all and named is not UNKNOWN and any(is_within(named, one) for one in lists)
        return (named, UNKNOWN, False, "") if is_narrower or is_exact else (UNKNOWN, UNKNOWN, False, which)
    listed = lists[0]
    if named is UNKNOWN:
        is_one_each = len(listed) == len(named_by.split(","))
        devices = listed if is_one_each and (left is UNKNOWN or is_within(listed, left)) else UNKNOWN
        return devices, devices, False, why
    if is_within(named, listed) or is_within(listed, named):
        both = tuple(one for one in named if is_within((one,), listed))
        return both, listed, is_all and is_within(named, listed), ""
    which = f"{grant.giver} lists other GPUs: {grant.listed}."
    return (named, listed, False, "") if is_exact else (UNKNOWN, UNKNOWN, False, which)


def is_within(devices: tuple[Device, ...], others: tuple[Device, ...]) -> bool:
    """Return whether all of the devices that CUDA can use are among the others."""
    return {device.identity for device in parts(devices)} <= {device.identity for device in parts(others)}


def _read_list(there: Inventory, grant: Grant) -> list[tuple[Device, ...]]:
    """Return the possible meanings of a scheduler's list. Empty without one, or if it names an unseen GPU.

    Its numbers are those of device files. If this machine shows all GPUs of the host, they may also be
    nvidia-smi's or rocm-smi's.
    """
    if not grant.gpus:
        return []
    if not all(entry.isdecimal() for entry in grant.gpus):
        named = tuple(device for device in there.devices if device.uuid in grant.gpus)
        return [named] if len(named) == len(grant.gpus) else []
    first = _FIRST_FILE["amd" if there.vendors == ("amd",) else "nvidia"]
    numbers = {int(entry) for entry in grant.gpus}
    numbers = {number - first if number >= first else number for number in numbers}
    files = [gpu.minor if gpu.minor is UNKNOWN else gpu.minor - first for gpu in there]
    found = {tuple(gpu for gpu, file in zip(there, files, strict=True) if file in numbers)}
    if set(files) == set(range(len(files))):
        found.add(tuple(gpu for gpu in there if gpu.index in numbers))
    return [gpus for gpus in found if len(gpus) == len(numbers)]


def _numbers(devices: tuple[Device, ...]) -> str:
    """Return `GPUs 2, 5`, or `GPU 2:1` for a MIG instance."""
    names = [device.number_text for device in parts(devices)]
    return f"GPU{'s' if names[1:] else ''} {', '.join(names)}" if names else "no GPU"
