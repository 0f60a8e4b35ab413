"""All GPUs of a machine at one moment: what `%gpus` shows, and what choices are made from."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.unknown import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpu_magic.devices.claim import Claim
    from gpu_magic.devices.model import Device, Gpu, Vendor
    from gpu_magic.devices.status import GpuStatus

__all__ = ["Inventory"]


@dataclass(frozen=True, slots=True)
class Inventory:
    """All GPUs of a machine at one moment.

    Parameters
    ----------
    gpus
        In nvidia-smi's order; AMD's after NVIDIA's, in rocm-smi's.
    driver_version, cuda_version
        The driver's version, and the newest CUDA version that it supports, "13.0". AMD's driver has no such.
    simulated
        The profile of a simulated machine; empty for a real one.
    problem
        Why nothing could be read, as a sentence: there is no driver, for example. Empty where it could.
    limitation
        Why nothing but names and UUIDs could be read, as a sentence; empty where figures could.

    """

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | Unknown = UNKNOWN
    cuda_version: str | Unknown = UNKNOWN
    simulated: str = ""
    problem: str = ""
    limitation: str = ""

    def __iter__(self) -> Iterator[Gpu]:
        return iter(self.gpus)

    def __len__(self) -> int:
        return len(self.gpus)

    def __getitem__(self, index: int) -> Gpu:
        return self.gpus[index]

    @property
    def vendors(self) -> tuple[Vendor, ...]:
        """Whose GPUs there are; the first are those that plain numbers name."""
        return tuple(dict.fromkeys(gpu.vendor for gpu in self.gpus))

    def of_vendor(self, vendor: Vendor) -> Inventory:
        """Return the same machine with the GPUs of one vendor alone."""
        if all(gpu.vendor == vendor for gpu in self.gpus):
            return self
        return replace(self, gpus=tuple(gpu for gpu in self.gpus if gpu.vendor == vendor))

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every GPU and MIG instance that has a UUID."""
        found: list[Device] = []
        for gpu in self.gpus:
            if gpu.uuid is not UNKNOWN:
                found.append(gpu)
            found.extend(gpu.mig)
        return tuple(found)

    def with_claims(self, claims: Mapping[str, tuple[Claim, ...]]) -> Inventory:
        """Return it with other processes' claims of now, which are given by the UUID of the device."""
        if not claims and not any(device.status.claims for device in self.devices):
            return self
        return replace(self, gpus=tuple(_claimed(gpu, claims) for gpu in self.gpus))

    def with_highest(self, utilization: Mapping[str, int | Unknown]) -> Inventory:
        """Return it with these figures in percent, by the GPU's UUID, where they are higher."""
        return replace(self, gpus=tuple(_at_least(gpu, utilization) for gpu in self.gpus))

    @property
    def is_uniform(self) -> bool:
        """Whether all GPUs are known to be alike, so that "fastest first" is PCI bus order.

        CUDA may still count a GPU that does not answer, so at least its name has to be known.
        """
        names = {gpu.name for gpu in self.gpus}
        sizes = {gpu.memory_total for gpu in self.gpus if not gpu.problem}
        return len(self.gpus) == 1 or (len(names) <= 1 and len(sizes) <= 1 and UNKNOWN not in names | sizes)

    @property
    def is_mixed(self) -> bool:
        """Whether two GPUs are known to be of different kinds."""
        names = {gpu.name for gpu in self.gpus if gpu.name is not UNKNOWN}
        sizes = {gpu.memory_total for gpu in self.gpus if gpu.memory_total is not UNKNOWN}
        return len(names) > 1 or len(sizes) > 1

    @property
    def fastest_first(self) -> tuple[Gpu, ...] | Unknown:
        """The GPUs as CUDA counts them with FASTEST_FIRST, in PCI bus order among those of one kind.

        How CUDA ranks kinds is not documented ("a simple heuristic"; CUDA programming guide). It is taken to
        be known where the faster kind has both the higher compute capability and more cores times clock.
        """
        if self.is_uniform:
            return self.gpus
        ranked = [(gpu, gpu.speed) for gpu in self.gpus if gpu.speed is not UNKNOWN and not gpu.problem]
        if len(ranked) < len(self.gpus):
            return UNKNOWN
        ranked.sort(key=lambda pair: (pair[1].capability, pair[1].cores * pair[1].clock), reverse=True)
        for (gpu, speed), (after, slower) in pairwise(ranked):
            if gpu.name != after.name and not speed.is_above(slower):
                return UNKNOWN
        return tuple(gpu for gpu, _ in ranked)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON's types, in the units of the classes. UNKNOWN becomes None."""
        plain: dict[str, Any] = _plain(self)
        return plain


def _claimed(gpu: Gpu, claims: Mapping[str, tuple[Claim, ...]]) -> Gpu:
    mig = tuple(replace(one, status=_with(one.status, claims.get(one.uuid, ()))) for one in gpu.mig)
    found = () if gpu.uuid is UNKNOWN else claims.get(gpu.uuid, ())
    return replace(gpu, mig=mig, status=_with(gpu.status, found))


def _with(status: GpuStatus, claims: tuple[Claim, ...]) -> GpuStatus:
    return status if status.claims == claims else replace(status, claims=claims)


def _at_least(gpu: Gpu, utilization: Mapping[str, int | Unknown]) -> Gpu:
    now = UNKNOWN if gpu.uuid is UNKNOWN else utilization.get(gpu.uuid, UNKNOWN)
    before = gpu.status.utilization
    if now is UNKNOWN or before is UNKNOWN or now <= before:
        return gpu
    return replace(gpu, status=replace(gpu.status, utilization=now))


def _plain(value: Any) -> Any:
    if value is UNKNOWN:
        return None
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
