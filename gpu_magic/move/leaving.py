"""Which arrays can leave the GPUs, in all places that can hold some, and what keeps the others there."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.target import CPU, LogicalDevice
from gpu_magic.move.move import read_places
from gpu_magic.move.plan import Plan
from gpu_magic.objects.memory import outputs_of, replace_output
from gpu_magic.objects.where import arrays_in, holdings_in
from gpu_magic.text import printable, size_text, with_article

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from gpu_magic.move.move import Place
    from gpu_magic.move.plan import Moving
    from gpu_magic.objects.walk import Budget

__all__ = ["bytes_on_gpus", "gpu_of", "places_here", "plan_to_cpu"]


def places_here(
    shell: Any, names: Sequence[str], *, takes_device: bool = False
) -> tuple[dict[str, Place], dict[str, Place] | None]:
    """Return all places that can hold arrays, and those of some names. None without names."""
    space = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    hidden = {name for name in space if name.startswith("__")} if shell is None else shell.user_ns_hidden
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise PlacementError("Variables are named by text: park('model'). Without names: all variables.")
    named = read_places(" ".join(names), space, hidden, takes_device=takes_device) if names else None
    variables = [(name, value) for name, value in space.items() if name not in hidden]
    places: dict[str, Place] = {name: (value, partial(space.__setitem__, name)) for name, value in variables}
    if shell is not None:
        outputs = outputs_of(shell).items()
        places |= {name: (value, partial(replace_output, shell, name)) for name, value in outputs}
    return places, named


def plan_to_cpu(
    places: Mapping[str, Place], among: set[int] | None = None, budget: Budget | None = None
) -> tuple[Plan, list[str]]:
    """Return the plan that moves arrays in some places from GPUs to the CPU, and lines with what stays.

    `among` has the ids of objects. None: all. What holds arrays and cannot move, such as a closure, keeps
    them. So these arrays stay in all places, except leaves, which also change for the closure.
    """
    staying: dict[int, Any] = {}

    def leaves(one: Moving) -> bool:
        is_asked = among is None or id(one.value) in among
        stays = not staying.keys().isdisjoint(map(id, (one.value, *one.arrays)))
        return is_asked and not stays and gpu_of(one) is not None

    while True:
        plan, keepers = Plan(CPU, only=leaves), list[tuple[str, Any, str]]()
        for name, (value, _) in places.items():
            try:
                plan.add(name, value, budget)
            except PlacementError as error:
                keepers.append((name, value, str(error)))
        keepers += plan.unmovable_objects
        unmoved = [(name, obj, reason) for name, obj, _, reason in plan.unmoved_objects]
        held = [(*one, arrays_in([one[1]])) for one in keepers + unmoved]
        moving = {id(array) for one in plan.moving for array in (one.value, *one.arrays)}
        more = {
            id(array): array
            for at, (*_, arrays) in enumerate(held)
            for array, _ in arrays
            if id(array) in moving and (at < len(keepers) or not _is_leaf(array))
        }
        staying |= more
        if not more:
            return plan, list(_lines_of(held, plan, among))


def _lines_of(held: Iterable[Any], plan: Plan, among: set[int] | None) -> Iterator[str]:
    """Yield a line for each object that keeps arrays on GPUs, once for a variable."""
    moved, told = plan.memory(), set[str]()
    for name, obj, why, arrays in held:
        stays = [one for key, one in holdings_in(arrays).items() if _is_gpu(one.device) and key not in moved]
        is_asked = among is None or any(id(array) in among for array, _ in arrays)
        if stays and is_asked and name not in told:
            told.add(name)
            size = size_text(sum(one.nbytes for one in stays))
            default = f"{with_article(type(obj).__name__, 'A')} keeps it and cannot be changed."
            yield printable(f"{name} stays on the GPU ({size}): {why or default}")


def gpu_of(one: Moving) -> LogicalDevice | None:
    """Return the one GPU that an object is on, if the rest of it is on the CPU. Else None."""
    framework, found = one.framework, set["LogicalDevice | str"]()
    if framework is None:  # NumPy
        return None
    for array in one.arrays:
        if not framework.is_array(type(array)):
            found.update(filter(None, [framework.device_of(array)]))  # of a torch.device
        elif getattr(array, "is_paged", False):  # memory of bitsandbytes that the driver moves by itself
            return None
        else:
            found.update(held.device for held in framework.holdings(array))
    gpus = [device for device in found if device != CPU]
    return gpus[0] if len(gpus) == 1 and isinstance(gpus[0], LogicalDevice) and _is_gpu(gpus[0]) else None


def _is_gpu(device: LogicalDevice | str) -> bool:
    return isinstance(device, LogicalDevice) and device.kind == "gpu"


def _is_leaf(array: Any) -> bool:
    """Return whether an array is a leaf of PyTorch, which stays the same object when it moves."""
    torch: Any = sys.modules.get("torch")
    is_tensor = torch is not None and issubclass(type(array), torch.Tensor)
    return is_tensor and array.is_leaf and (array.requires_grad or isinstance(array, torch.nn.Parameter))


def bytes_on_gpus(one: Moving, counted: set[Hashable]) -> int:
    """Return the bytes of an object's arrays on GPUs that were not counted yet, and count them."""
    framework = one.framework
    arrays = [] if framework is None else [array for array in one.arrays if framework.is_array(type(array))]
    found = holdings_in((array, framework) for array in arrays).items()
    new = {key: held for key, held in found if key not in counted and _is_gpu(held.device)}
    counted.update(new)
    return sum(held.nbytes for held in new.values())
