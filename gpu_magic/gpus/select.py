"""Selects the devices for a request, on this machine and among those that the kernel was given."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpu_magic.devices.model import UNKNOWN, Device, Gpu, Unknown
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.auto import OneInstanceError, check_free, pick, usable
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.request import Auto, Named, Request, Word, parse
from gpu_magic.process.find import find, mig_instances, usable_devices, whole_gpus, why_unusable
from gpu_magic.process.given import Given, Grant
from gpu_magic.process.mask import FASTEST, PCI, Variables, mig_limit, names_of
from gpu_magic.process.visible import hide, hide_others, in_order, show, why_no_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpu_magic.devices.model import Inventory, Vendor
    from gpu_magic.process.mask import By

__all__ = ["Selection", "candidates", "check_options", "select", "select_among"]

_DEFAULTS, _NOBODY = Options(), Grant()


class Selection(NamedTuple):
    """The devices for a request, and the variables that make exactly these devices visible."""

    # In the order of `cuda:0`, `cuda:1`, …. UNKNOWN after a reset to a mask whose meaning is unknown.
    devices: tuple[Device, ...] | Unknown
    # The values to set. None: unset the variable. For NVIDIA's GPUs CUDA_VISIBLE_DEVICES and
    # CUDA_DEVICE_ORDER, for AMD's HIP_VISIBLE_DEVICES.
    variables: Mapping[str, str | None]
    notes: tuple[str, ...] = ()  # what the user should know of this choice, a sentence each
    vendor: Vendor = "nvidia"  # of the devices

    @property
    def known(self) -> tuple[Device, ...]:
        """The devices. Empty if they are unknown."""
        return () if self.devices is UNKNOWN else self.devices

    @property
    def mask(self) -> str | None:
        """The value of the one variable that names them: CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES."""
        return self.variables.get(names_of(self.vendor)[0])

    def with_mask(self, mask: str | None) -> Selection:
        """Return the same with another value of the variable of `mask`."""
        return self._replace(variables={**self.variables, names_of(self.vendor)[0]: mask})


def select(
    request: Request,
    inventory: Inventory,
    inherited: tuple[str | None, ...],
    options: Options = _DEFAULTS,
    *,
    grant: Grant = _NOBODY,
    held: frozenset[str] = frozenset(),
    by: By | None = None,
    is_divided: bool = False,
) -> Selection:
    """Return the devices for a request, and the variables that name them.

    It raises ChoiceError rather than return fewer or other GPUs than requested. The error suggests only what
    this function accepts. `inherited` are the
    `Variables` that the kernel was started with. `grant` is the grant of a scheduler. `held` are the
    identities of the devices that this process has claimed. If `options` does not tell how to name the
    devices, `by` does, as far as possible. `is_divided`: each device goes to another process, so there can be
    several MIG instances.
    """
    choose = partial(
        _select,
        inventory=inventory,
        inherited=inherited,
        options=options,
        grant=grant,
        held=held,
        by=by,
        is_divided=is_divided,
    )
    try:
        return choose(request)
    except ChoiceError as error:
        # The options that a way repeats are those of this request.
        error.keep_ways(lambda way: choose(parse(way.partition(" --")[0])))
        raise


def _select(
    request: Request,
    inventory: Inventory,
    inherited: tuple[str | None, ...],
    options: Options,
    *,
    grant: Grant,
    held: frozenset[str],
    by: By | None,
    is_divided: bool,
) -> Selection:
    vendor = inventory.vendor
    check_options(request, options, vendor)
    variables = Variables(*inherited)
    given = Given(inventory, variables, grant)
    is_fastest = options.order == "fastest" or (options.order is None and variables.order == FASTEST)
    order = FASTEST if is_fastest else PCI
    if request is Word.RESET:
        reading, names = given.reading, dict.fromkeys((*names_of(vendor), *hide_others(inventory)))
        values = variables.named(tuple(names))
        return Selection(reading.devices, values, tuple(map(str, reading.notes)), vendor)
    if request is Word.NONE:
        return Selection((), hide(inventory), vendor=vendor)
    if inventory.problem:
        raise ChoiceError(str(inventory.problem))
    if isinstance(request, Named):
        devices = _named(request, inventory, is_divided=is_divided)
        if not options.force:
            given.check_inside(devices)
        if options.only_free:
            check_free(devices)
        verb = "may not be" if given.devices is UNKNOWN else "is not"
        outside = [device.label for device in given.outside(devices)]
        notes = [f"{label} {verb} among the GPUs that this process was given." for label in outside]
        notes += _taken(devices)
    else:
        pool = inventory.devices if options.force else given.pool
        if not pool and not given.is_all:
            what = given.sentence
            raise ChoiceError(f"This process was given no GPU: {what}.{given.unset} --force overrides this.")
        if why_no_numbers(order, inventory):
            pool = tuple(device for device in pool if device.uuid is not UNKNOWN)
        if isinstance(request, Auto):
            picked, *notes = pick(request.count, pool, options, held, is_divided=is_divided)
        else:
            picked = _everything(pool, inventory, is_divided=is_divided)
            left = inventory.gpus if options.force or given.is_all else given.pool
            out = [gpu for gpu in left if isinstance(gpu, Gpu) and not {gpu, *gpu.mig} & {*picked}]
            whys = [f"it is {why}" if (why := why_unusable(gpu)) else "its UUID is unknown" for gpu in out]
            notes = [f"{gpu.label} is left out because {why}." for gpu, why in zip(out, whys, strict=True)]
            notes += _taken(picked)
        devices, unordered = in_order(picked, order, inventory)
        notes += unordered
    notes += map(str, filter(None, [given.contradiction]))
    has_uuids = all(device.uuid is not UNKNOWN for device in devices)
    found = show(
        devices,
        order,
        inventory,
        variables,
        by=options.by or (by if has_uuids and by == "uuid" else None),
        by_uuid=by == "uuid" if by else given.reading.by_uuid,
    )
    return Selection(devices, found, tuple(notes), vendor)


def candidates(
    request: Named | Auto,
    inventory: Inventory,
    inherited: Variables,
    options: Options,
    grant: Grant,
    *,
    is_divided: bool,
) -> tuple[int, Sequence[Device]]:
    """Return how many devices a request asks for, and the devices that would fit it if they were free."""
    if isinstance(request, Named):
        devices = _named(request, inventory, is_divided=is_divided)
        return len(devices), devices
    pool = inventory.devices if options.force else Given(inventory, inherited, grant).pool
    return request.count, usable(request.count, pool, options, is_divided=is_divided)


def select_among(
    request: Named | Auto | Literal[Word.ALL], inventory: Inventory, pool: tuple[Device, ...]
) -> tuple[Device, ...]:
    """Return the devices for a request, among the pool of devices that a process has.

    It raises ChoiceError rather than return fewer or other devices. Named devices can be outside the pool.
    """

    def choose(request: Request) -> tuple[Device, ...]:
        if isinstance(request, Named):
            return _named(request, inventory)
        return pick(request.count, pool)[0] if isinstance(request, Auto) else _everything(pool, inventory)

    try:
        return choose(request)
    except ChoiceError as error:
        error.keep_ways(lambda way: choose(parse(way)))
        raise


def check_options(request: Request, options: Options, vendor: Vendor = "nvidia") -> None:
    """Raise ChoiceError if a request does not go with its options."""
    if options == _DEFAULTS:
        return
    order = options.order
    if order and vendor == "amd":
        raise ChoiceError("--order sets CUDA_DEVICE_ORDER, which AMD's GPUs do not follow. Omit it.")
    if request in (Word.RESET, Word.NONE) and order:
        word = "reset" if request is Word.RESET else "none"
        raise ChoiceError(f"--order does not go with {word}, which names no GPU. Omit --order.")
    wrong = options.for_auto if isinstance(request, Named) else options.filters
    if wrong and not isinstance(request, Auto):
        given = wrong.strip()
        or_numbers = "" if options.for_auto else " or GPU numbers"
        raise ChoiceError(f"{given} goes with auto{or_numbers}.", ways=[f"auto {given}"])


def _named(request: Named, inventory: Inventory, *, is_divided: bool = False) -> tuple[Device, ...]:
    """Return the devices that a request names, in its order."""
    devices: list[Device] = []
    for identifier in request.identifiers:
        device = find(identifier, inventory)
        if device in devices:
            raise ChoiceError(f"{identifier} is {device.label}, which is already named. Name each GPU once.")
        devices.append(device)
    instances = mig_instances(tuple(devices))
    if instances and len(devices) > 1 and not is_divided:
        raise OneInstanceError(f"{mig_limit(inventory)}.", ways=[instances[0].number_text])
    return tuple(devices)


def _everything(
    pool: tuple[Device, ...], inventory: Inventory, *, is_divided: bool = False
) -> tuple[Device, ...]:
    """Return all GPUs that can be used as a whole, or the only MIG instance. If divided, all instances."""
    if is_divided and (every := usable_devices(pool)):
        return every
    gpus, instances = whole_gpus(pool), mig_instances(pool)
    if gpus or len(instances) == 1:
        return gpus or instances
    if instances:
        what = f"All GPUs are split by MIG. {mig_limit(inventory)}."
        raise OneInstanceError(what, ways=[instances[0].number_text])
    raise ChoiceError("No GPU can be used now.", shows="why")


def _taken(devices: Iterable[Device]) -> list[str]:
    """Return a note for each GPU on which CUDA cannot start while another process uses it."""
    why = "allows one process at a time (Exclusive_Process), and"
    taken = [gpu for gpu in devices if isinstance(gpu, Gpu) and gpu.is_taken is not False]
    who = ["another one" if gpu.is_taken is True else "a process" for gpu in taken]
    then = "uses it. CUDA cannot start on it until that process ends."
    return [f"{gpu.label} {why} {one} {then}" for gpu, one in zip(taken, who, strict=True)]
