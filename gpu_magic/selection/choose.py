"""What is asked, on this machine, within what this kernel was given: a `Selection`, or one line why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpu_magic.devices.model import UNKNOWN, Device, Gpu, Inventory, MigInstance, Unknown
from gpu_magic.errors import ChoiceError
from gpu_magic.selection.mask import FASTEST, PCI, Reading, read, write
from gpu_magic.selection.request import Auto, Named, Nothing, Request, Reset

__all__ = ["By", "Order", "Selection", "choose"]

By = Literal["index", "uuid"]
Order = Literal["pci", "fastest"]


@dataclass(frozen=True, slots=True)
class Selection:
    """An answer to a request: the devices, and the two variables that make CUDA see exactly those.

    Parameters
    ----------
    devices
        In the order of `cuda:0`, `cuda:1`, …; UNKNOWN after a reset to a mask that can't be read.
    mask, order
        Values for CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; None: not set.
    notes
        What the user should know of this choice, a sentence each.

    """

    devices: tuple[Device, ...] | Unknown
    mask: str | None
    order: str | None
    notes: tuple[str, ...] = ()


def choose(
    request: Request,
    inventory: Inventory,
    inherited: tuple[str | None, str | None],
    *,
    by: By | None = None,
    order: Order = "pci",
    force: bool = False,
) -> Selection:
    """Decide on the devices and on the mask that names them.

    Parameters
    ----------
    request
        What the user asked for.
    inventory
        The machine, with figures of now.
    inherited
        CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as the kernel was started: its allotment.
    by
        Write numbers or UUIDs; None follows the inherited mask.
    order
        CUDA_DEVICE_ORDER: by PCI bus, or the fastest first.
    force
        Allow GPUs outside the inherited mask.

    Raises
    ------
    ChoiceError
        One line. Never fewer GPUs than asked, never others.

    """
    allotted = read(inherited[0], inventory, inherited[1])
    if isinstance(request, Reset):
        return Selection(allotted.devices, *inherited, allotted.notes)
    if isinstance(request, Nothing):
        return Selection((), "", PCI)
    if inventory.problem:
        raise ChoiceError(inventory.problem)
    notes: tuple[str, ...] = ()
    devices: tuple[Device, ...]
    if isinstance(request, Named):
        devices = _named(request, inventory)
        if not force:
            _stay_inside(devices, inventory, allotted, inherited[0])
    else:
        pool = inventory.devices if force else _allotment(inventory, allotted, inherited[0])
        if isinstance(request, Auto):
            devices = _least_busy(request, pool)
        else:
            devices, notes = _everything(pool)
    return Selection(devices, *_variables(devices, inventory, allotted, by, order), notes)


def _named(request: Named, inventory: Inventory) -> tuple[Device, ...]:
    devices: list[Device] = []
    for wanted in request.wanted:
        device = _by_number(wanted, inventory) if isinstance(wanted, int) else _by_uuid(wanted, inventory)
        if device in devices:
            raise ChoiceError(f"{wanted} is {device.label}, which is named already: name each GPU once.")
        devices.append(device)
    parts = [device for device in devices if isinstance(device, MigInstance)]
    if parts and len(devices) > 1:
        raise ChoiceError(
            f"One process can use one MIG instance and no other GPU beside it; try {parts[0].uuid}."
        )
    return tuple(devices)


def _by_number(index: int, inventory: Inventory) -> Gpu:
    if index >= len(inventory):
        raise ChoiceError(f"There is no GPU {index}: this machine has {_span(len(inventory))}.")
    return _usable(inventory[index])


def _by_uuid(prefix: str, inventory: Inventory) -> Device:
    fits = [device for device in inventory.devices if str(device.uuid).startswith(prefix)]
    if not fits:
        known = ", ".join(f"{device.label} is {str(device.uuid)[:8]}…" for device in inventory.devices[:4])
        raise ChoiceError(
            f"No GPU's UUID begins with {prefix} ({known or 'none is known'}): %gpus lists them."
        )
    if len(fits) > 1:
        length = len(prefix) + 1
        while len({str(device.uuid)[:length] for device in fits}) < len(fits):
            length += 1
        longer = " or ".join(str(device.uuid)[:length] for device in fits[:4])
        raise ChoiceError(f"{prefix} fits {len(fits)} devices: type more of it, {longer}.")
    device = fits[0]
    return device if isinstance(device, MigInstance) else _usable(device)


def _usable(gpu: Gpu) -> Gpu:
    if gpu.problem:
        raise ChoiceError(f"{gpu.label} can't be chosen: {gpu.problem}.")
    if gpu.uuid is UNKNOWN:
        raise ChoiceError(f"{gpu.label} can't be chosen: the driver does not tell its UUID.")
    if gpu.is_split:
        parts = " or ".join(part.uuid for part in gpu.mig) or "an administrator has to make one first"
        raise ChoiceError(f"{gpu.label} is split by MIG, so choose an instance of it; try {parts}.")
    return gpu


def _stay_inside(
    devices: tuple[Device, ...], inventory: Inventory, allotted: Reading, mask: str | None
) -> None:
    if mask is None:
        return
    allowed = _allotment(inventory, allotted, mask)
    outside = [device for device in devices if device.uuid not in {one.uuid for one in allowed}]
    if outside:
        given = _labels(allowed) or "no GPU"
        was_given = f"this kernel was given (CUDA_VISIBLE_DEVICES={mask}: {given})"
        raise ChoiceError(f"{outside[0].label} is outside what {was_given}; --force takes it all the same.")


def _allotment(inventory: Inventory, allotted: Reading, mask: str | None) -> tuple[Device, ...]:
    """Return what this kernel may use; all of the machine where it was started without a mask."""
    if mask is None:
        return inventory.devices
    if allotted.devices is UNKNOWN:
        raise ChoiceError(
            f"This kernel was started with CUDA_VISIBLE_DEVICES={mask}, and which GPUs that means can't be "
            f"known ({allotted.notes[-1].rstrip('.')}); add --force to choose all the same."
        )
    return allotted.devices


def _everything(pool: tuple[Device, ...]) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Take all that CUDA can use as a whole, and say what is left out."""
    whole, parts = _whole(pool), _parts(pool)
    if not whole and len(parts) == 1:
        return parts, ()
    if not whole and parts:
        hint = f"try {parts[0].uuid}"
        raise ChoiceError(f"All GPUs are split by MIG, and a process can use one instance; {hint}.")
    if not whole:
        raise ChoiceError("No GPU here can be used by this kernel: %gpus shows why.")
    left_out = [gpu for gpu in pool if isinstance(gpu, Gpu) and gpu not in whole]
    return whole, tuple(f"{gpu.label} is left out: {gpu.problem or 'split by MIG'}." for gpu in left_out)


def _least_busy(request: Auto, pool: tuple[Device, ...]) -> tuple[Device, ...]:
    """Pick by least memory in use, then least utilisation; what can't be read is never free."""
    candidates: tuple[Device, ...] = _whole(pool)
    if not candidates and request.count == 1:
        candidates = _parts(pool)
    readable = [device for device in candidates if device.status.memory_used is not UNKNOWN]
    if len(readable) < request.count:
        known = f"only {len(readable)} can be picked from" if readable else "none can be picked from"
        hint = f"; try auto:{len(readable)}" if readable else ""
        raise ChoiceError(f"auto:{request.count} asks for {request.count}, and {known}{hint}.")
    return tuple(sorted(readable, key=_business)[: request.count])


def _business(device: Device) -> tuple[int, int]:
    used, busy = device.status.memory_used, device.status.utilization
    if used is UNKNOWN:  # never: such devices are not picked from
        raise ValueError(device)
    return used, 101 if busy is UNKNOWN else busy  # an unknown utilisation sorts behind every known one


def _whole(pool: tuple[Device, ...]) -> tuple[Gpu, ...]:
    return tuple(one for one in pool if isinstance(one, Gpu) and not one.is_split and not one.problem)


def _parts(pool: tuple[Device, ...]) -> tuple[MigInstance, ...]:
    return tuple(one for one in pool if isinstance(one, MigInstance))


def _variables(
    devices: tuple[Device, ...], inventory: Inventory, allotted: Reading, by: By | None, order: Order
) -> tuple[str, str]:
    """Write CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, so that they mean these devices and no others."""
    has_mig = any(isinstance(device, MigInstance) for device in devices)
    # CUDA's numbers can differ from nvidia-smi's where it sorts by speed, or leaves out a GPU that is lost.
    numbers_fail = (order == "fastest" and not inventory.is_uniform) or any(gpu.problem for gpu in inventory)
    # How CUDA numbers GPUs beside split ones is not documented well enough to promise anything by it.
    numbers_fail = numbers_fail or any(gpu.is_split for gpu in inventory)
    if by == "index" and has_mig:
        raise ChoiceError("A MIG instance has no number: leave --by index out.")
    if by == "index" and numbers_fail:
        why = "with --order fastest" if order == "fastest" else "while a GPU is lost or split by MIG"
        raise ChoiceError(f"CUDA's numbers can't be told {why} on this machine: leave --by index out.")
    by_uuid = by == "uuid" or (by is None and (allotted.kind in ("uuid", "mig") or has_mig or numbers_fail))
    return write(devices, by_uuid=by_uuid), FASTEST if order == "fastest" else PCI


def _labels(devices: tuple[Device, ...]) -> str:
    return ", ".join(device.label for device in devices)


def _span(count: int) -> str:
    return {0: "no GPU", 1: "GPU 0 alone"}.get(count, f"GPUs 0 to {count - 1}")
