"""Moves variables, all or none, and reports the result: `to_gpu`, `to_cpu`."""

from __future__ import annotations

import ast
import contextlib
import gc
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import device_of
from gpu_magic.frameworks.target import (
    LogicalDevice,
    can_name_device,
    is_target,
    normalize_device,
    parse_targets,
)
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.move.plan import Plan, UnusableDeviceError
from gpu_magic.objects.memory import shortage_of
from gpu_magic.objects.namespace import parse_expression, raised_text, value_of, variables_of
from gpu_magic.objects.parts import class_of
from gpu_magic.objects.physical import LazySnapshot, innermost, locate
from gpu_magic.objects.walk import Budget, Walker, collection_paused
from gpu_magic.objects.where import holdings_in, holdings_of, is_same_device, unfinished_text
from gpu_magic.process.parked import parked
from gpu_magic.process.show import show
from gpu_magic.public import public
from gpu_magic.text import code_words, counted, listed, size_text, text_table, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Iterable, Mapping, MutableMapping

    from gpu_magic.frameworks.base import Holding

    Place = tuple[Any, Callable[[Any], object]]  # a value with a name, and a function that replaces it

__all__ = [
    "SEARCH_SECONDS",
    "carry_out",
    "carry_out_all",
    "destination",
    "leftover_lines",
    "move_variables",
    "read_places",
    "to_cpu",
    "to_gpu",
]

SEARCH_SECONDS = 0.5  # for what `--all` moves, and for variables that hold old copies


@public
def to_gpu(
    thing: Any, device: str | int | None = None, *, numpy: str | None = None, or_cpu: bool = False
) -> Any:
    """Move a variable, with all that it holds, to a device. If that fails, nothing moves.

    >>> model, optimizer, batch = gpu_magic.to_gpu((model, optimizer, batch), 1)

    Parameters
    ----------
    thing
        A tensor or array of PyTorch, TensorFlow, JAX or CuPy, a PyTorch module or optimizer, or an object
        with `.to(device)`. Or a list, tuple, dict, dataclass or other object that holds these, to any depth.
        Tied weights stay tied. Views stay views.
    device
        As for `on_gpu`. None: the GPU of the `on_gpu` block around the call, or else `cuda:0`.
    numpy
        Convert NumPy arrays to those of "torch", "jax" or "cupy". None: leave them.
    or_cpu
        If the device cannot be used, move to the CPU and print a line.

    Returns
    -------
    Any
        The moved variable. Modules, optimizers, parameters, lists, dicts and objects that can change are the
        same ones, changed in place. Tensors, arrays and tuples are new.

    Raises
    ------
    PlacementError
        The variable cannot be moved or does not fit, or a copy failed. Everything is as before.

    """
    if isinstance(thing, str):
        raise PlacementError(f"{thing!r:.40} is a string, not a variable. Remove the quotes.")
    if not can_name_device(device) and device_of(device) is None:
        raise PlacementError(
            f"{with_article(type(device).__name__, 'A')} is not a device. To move several variables: "
            "to_gpu((model, optimizer), 1)"
        )
    text = None if device is None else normalize_device(device, device_of)
    with collection_paused():  # until the plan is gone
        return _moved(text, thing, numpy, or_cpu=or_cpu)


@public
def to_cpu(thing: Any, *, numpy: str | None = None) -> Any:
    """Move a variable to the CPU. CuPy arrays become NumPy arrays.

    Parameters, result and errors are as for `to_gpu`.
    """
    return to_gpu(thing, "cpu", numpy=numpy)


def _moved(text: str | None, thing: Any, numpy: str | None, *, or_cpu: bool) -> Any:
    plan, _ = _planned(text, {"": (thing, id)}, numpy, or_cpu=or_cpu)
    return carry_out(plan)[0]


def _planned(
    text: str | None,
    places: Mapping[str, Place],
    numpy: str | None,
    *,
    or_cpu: bool = False,
    is_dry: bool = False,
    search: Budget | None = None,
) -> tuple[Plan, list[str]]:
    """Return a plan for some variables.

    With a `search`, the plan leaves out variables in which that budget finds no array, and variables that
    cannot be moved. There is a line for each of the latter.
    """
    machine = LazySnapshot()
    try:
        plan = Plan(destination(text, machine), numpy, machine, is_dry=is_dry)
        skipped: list[str] = []
        unusable: UnusableDeviceError | None = None
        for name, (value, _) in places.items():
            try:
                plan.add(name, value, search)
            except PlacementError as error:
                named = type(error)(f"{name}: {error}" if name else str(error))
                if search is None:
                    raise named from None
                skipped.append(f"{name} stays: {error}")
                if isinstance(named, UnusableDeviceError):
                    unusable = unusable or named
        if unusable is not None and not plan.variables:
            raise unusable
        plan.check()
    except UnusableDeviceError as error:
        if not or_cpu:
            raise PlacementError(f"{error} To move to the CPU instead, add --or-cpu") from None
        show(f"Moving to the CPU: {error}")  # as `or_cpu` promises
    else:
        return plan, skipped
    return _planned("cpu", places, numpy, is_dry=is_dry, search=search)


def destination(text: str | None, machine: LazySnapshot) -> LogicalDevice:
    """Return the device that a text names. None: the GPU of the `on_gpu` block around, or else `cuda:0`."""
    if text is None:
        around = innermost()
        return around if around is not None and around.kind == "gpu" else LogicalDevice("gpu", 0)
    first, *others = parse_targets(text)
    if others:
        raise PlacementError(f"Variables go to one device, but {text} names {len(others) + 1}.")
    try:
        return locate(first, machine)
    except PlacementError as error:
        raise UnusableDeviceError(str(error)) from None


def carry_out(plan: Plan, stores: Mapping[str, Place] | None = None) -> list[Any]:
    """Move the variables of a plan, and return the moved variables. If that fails, nothing changes.

    Interrupts are held. After the present copy, or at the end, an interrupt undoes the move and is raised.
    """
    carry_out_all([plan], stores or {})
    return [plan.now(variable.value) for variable in plan.variables]


def carry_out_all(plans: Iterable[Plan], stores: Mapping[str, Place]) -> None:
    """Carry out plans one after the other, all or none. Each is made when the earlier ones are done.

    Raises
    ------
    PlacementError
        A plan has failed, or the generator has. Nothing has changed.

    """
    with collection_paused(), defer_interrupts() as interrupts, parked.held():
        begun: list[Plan] = []
        failure: str | None = None
        try:
            for plan in plans:
                begun.append(plan)
                if (failure := _attempt(plan, stores, interrupts)) is not None:
                    break
        except PlacementError as error:  # the next plan cannot be made
            failure = f"{error} Nothing was changed."
        except BaseException as error:  # noqa: BLE001 - what objects raise
            failure = f"The move failed, so nothing was changed: {type(error).__name__}: {error}"
        if failure is not None:
            frameworks = dict.fromkeys(framework for plan in begun for framework in plan.transfers)
            for plan in reversed(begun):
                with contextlib.suppress(BaseException):
                    plan.undo.close()  # all steps in reverse, even if an object raises an error
                vars(plan).clear()  # the error below refers to the plan, which refers to all copies
            gc.collect()
            for framework in frameworks:
                with contextlib.suppress(Exception):  # after a CUDA error, each call can raise it again
                    framework.empty_cache()
    if failure is not None:  # raised here, without the frames that hold the copies
        raise PlacementError(failure)


def _attempt(plan: Plan, stores: Mapping[str, Place], interrupts: list[int]) -> str | None:
    """Copy the arrays, and put the copies in place. Return the reason of a failure, or None."""
    copied = 0
    try:
        if (free := plan.free) is not None and plan.least > free:
            return (
                f"{size_text(plan.least)} do not fit on {plan.device_text}, where {size_text(free)} are "
                "free. Nothing was changed. Move fewer, or free memory with %gpu_free"
            )
        for transfer in plan.transfers.values():
            for nbytes in transfer.copy():
                copied += nbytes
                if interrupts:
                    return "Interrupted."
        plan.put()
        for variable in plan.variables:
            new = plan.now(variable.value)
            if variable.name in stores and new is not variable.value:
                _, store = stores[variable.name]
                plan.undo.callback(store, variable.value)
                store(new)
    except PlacementError as error:
        return f"{error} Nothing was changed."
    except BaseException as error:  # noqa: BLE001 - frameworks run out of memory, objects raise anything
        device, message = plan.device, " ".join(f"{type(error).__name__}: {error}".split())
        shortage = shortage_of(error)
        if shortage is None or not shortage.is_certain:
            return f"Moving to {device} failed, so nothing was changed: {message[:300]}"
        return (
            f"{device} ran out of memory after {size_text(copied)} of {size_text(plan.nbytes)}. "
            "Nothing was changed. Move fewer, or free memory with %gpu_free"
        )
    return "Interrupted." if interrupts else None


def _report(plan: Plan, *, is_dry: bool) -> list[str]:
    """Return a table of the variables that have moved, or would move, and a summary."""
    rows = []
    for one in plan.variables:
        what, size = one.type_text, ""
        way = f"shared with {one.shared_with}" if one.shared_with else "nothing to move"
        way = f"already on {plan.device}" if one.has_arrays else way
        if one.arrays:
            what, size = f"{what}: {counted(one.arrays, 'array')}", size_text(one.nbytes)
            way = f"{', '.join(sorted(one.origins))} → {plan.device}"
        if one.numpy and plan.device.kind == "gpu":
            count = len(one.numpy)
            stays = "a NumPy array stays" if count == 1 else f"{count} NumPy arrays stay"
            way += f"; {stays} (--numpy torch converts them to tensors)"
        rows.append((one.name, what, size, way))
    table = text_table([""] * 4, rows, right={2})
    size, device = size_text(plan.nbytes), plan.device_text
    if not any(one.arrays for one in plan.variables):
        says_more = any(one.numpy or not one.has_arrays for one in plan.variables)
        return [*(table if says_more else []), f"Everything is already on {device}."]
    if not is_dry:
        return [*table, f"{size} moved to {device}."]
    free = plan.free
    verb = "would move to" if free is None or plan.least <= free else "do not fit on"
    left = "an unknown amount is" if free is None else f"{size_text(free)} are"
    return [*table, f"{size} {verb} {device}, where {left} free. Nothing was changed."]


def move_variables(
    namespace: MutableMapping[str, Any],
    hidden: Container[str],
    text: str,
    *,
    all_of_them: bool = False,
    device: str | None = None,
    numpy: str | None = None,
    dry_run: bool = False,
    or_cpu: bool = False,
    magic: str = "%to_gpu",
) -> list[str]:
    """Move variables of a namespace, and return what `%to_gpu` prints. Options as in its help."""
    if all_of_them and text:
        raise PlacementError(f"--all means every variable, but {text} is also named. Use one of the two.")
    if not all_of_them and not text:
        raise PlacementError(f"No variable is named. Try {magic} model batch, or {magic} --all")
    places = read_places(text, namespace, hidden, takes_device=magic == "%to_gpu")
    if all_of_them:
        found = variables_of(namespace, hidden)
        places |= {name: (value, partial(namespace.__setitem__, name)) for name, value in found.items()}
    budget = Budget(seconds=SEARCH_SECONDS)
    search = budget if all_of_them else None
    plan, lines = _planned(device, places, numpy, or_cpu=or_cpu, is_dry=dry_run, search=search)
    lines += plan.unmoved()
    if dry_run:
        return [*_report(plan, is_dry=True), *lines, *_unfinished(plan, budget)]
    before = plan.memory()
    carry_out(plan, places)
    outputs = {f"Out[{number}]": value for number, value in namespace.get("_oh", {}).items()}
    others = (variables_of(namespace, hidden) | outputs).items()
    return [*_report(plan, is_dry=False), *lines, *leftover_lines(plan, before, others, budget)]


def read_places(
    text: str, namespace: MutableMapping[str, Any], hidden: Container[str], *, takes_device: bool = True
) -> dict[str, Place]:
    """Return the places that a line names: `model state.model data["train"]`.

    Raises PlacementError if a place does not exist or its value cannot be replaced. For the name of a device,
    it then says whether the line can have a `--device`.
    """
    words = dict.fromkeys(code_words(text.strip().rstrip(";"), commas=True))
    for word in words:
        if word not in namespace and is_target(word):
            way = f"is not a variable. To name a device: --device {word}"
            raise PlacementError(f"{word} {way if takes_device else 'names a device, not a variable.'}")
    return {word: _read(word, namespace, hidden) for word in words}


def _read(word: str, namespace: MutableMapping[str, Any], hidden: Container[str]) -> Place:
    def value(part: ast.expr) -> Any:
        try:
            return eval(compile(ast.Expression(part), "<name>", "eval"), dict(namespace))  # noqa: S307 - the user's code
        except Exception as error:  # noqa: BLE001 - the user's object can raise any error
            raise PlacementError(f"{word} {raised_text(error)}") from None

    node = parse_expression(word)
    if isinstance(node, ast.Name):
        return value_of(node.id, namespace, hidden), partial(namespace.__setitem__, node.id)
    calls = ast.Call | ast.Await | ast.NamedExpr  # these can have side effects
    if not isinstance(node, ast.Attribute | ast.Subscript) or any(
        isinstance(one, calls) for one in ast.walk(node)
    ):
        raise PlacementError(
            f"{word!r} is not a variable, attribute or item. Name them like this: "
            "model state.optimizer data['train']"
        )
    for root in ast.walk(node):
        if isinstance(root, ast.Name):
            value_of(root.id, namespace, hidden)
    owner = value(node.value)
    cls, is_item = type(owner), isinstance(node, ast.Subscript)
    is_whole = (
        issubclass(cls, tuple | frozenset | str) or class_of(cls).is_frozen or hasattr(cls, "__array__")
    )
    if is_whole or (is_item and not hasattr(cls, "__setitem__")):
        raise PlacementError(
            f"{word} is part of {with_article(cls.__name__)}. Move all of it: {ast.unparse(node.value)}"
        )
    if isinstance(node, ast.Attribute):
        return value(node), partial(setattr, owner, node.attr)
    return value(node), partial(owner.__setitem__, value(node.slice))


def leftover_lines(
    plan: Plan,
    before: set[Hashable],
    variables: Iterable[tuple[str, object]],
    budget: Budget,
) -> list[str]:
    """Return a line for the variables that hold old memory after a move, and for each partly moved one.

    Also one for each variable that moved, or whose model moved, and that remembers another device.
    """
    named = {variable.name for variable in plan.variables} | plan.empty
    moved = plan.moved() if before else set()
    held: dict[Hashable, Holding] = {}
    names, lines = [], []
    remembering = [(one.name, plan.now(one.value)) for one in plan.variables if before and one.name]
    for name, value in variables if before else ():
        if name in named:
            continue
        with budget.variable(name):
            found, rest = _look(plan, value, budget)
        if not moved.isdisjoint(found):
            remembering.append((name, value))
            if rest:
                text = f"{name} shares arrays that moved, but still has {size_text(rest)} elsewhere."
                lines.append(f"{text} Also move {name}.")
        if old := {key: holding for key, holding in found.items() if key in before}:
            names.append(name)
            held |= old
    if names:
        devices = listed(sorted({str(one.device) for one in held.values()}))
        size = size_text(sum(one.nbytes for one in held.values()))
        text = f"Not moved: {', '.join(names)}, with the old copy ({size} on {devices}). "
        lines.insert(0, f"{text}Move variables that share arrays in one line. Datasets and outputs stay.")
    lines += [line for name, value in remembering if (line := _remembered(plan, name, value))]
    return [*lines, *_unfinished(plan, budget)]


def _remembered(plan: Plan, name: str, value: object) -> str:
    """Return a line for an object that keeps a device, as a pipeline does, if it is not the plan's."""
    held = getattr(value, "__dict__", None)
    kept = held.get("device") if isinstance(held, dict) else None
    is_text = isinstance(kept, str) and "torch" in sys.modules
    device = None
    with contextlib.suppress(RuntimeError):  # a text that is no device of PyTorch
        device = device_of(sys.modules["torch"].device(kept) if is_text else kept)
    if not isinstance(device, LogicalDevice) or is_same_device(device, plan.requested):
        return ""
    new = f'"{plan.device}"' if is_text else f'torch.device("{plan.device}")'
    change = f"{'' if is_text else 'import torch; '}{name}.device = {new}"
    return f"{name}.device is still {device}. To change it: {change}"


def _look(plan: Plan, value: object, budget: Budget) -> tuple[dict[Hashable, Holding], int]:
    """Return the memory that a value holds, and the bytes that would move to the plan's device with it."""
    walker, staying, can_move = Walker(plan.requested, budget, moves=True), list[object](), True
    with collection_paused():
        for obj, node, _ in walker.walk([value]):
            walker.arrays += [(one, node.framework) for one in node.arrays]
            can_move = can_move and node.kind != "unmovable"
            if node.kind in ("unmoved", "unmovable") or issubclass(type(obj), BaseException):
                staying.append(obj)
        numpy = [(one, None) for one, framework in walker.arrays if framework is None]
        movable = holdings_in((one, framework) for one, framework in walker.arrays if framework is not None)
        rest = [one for one in movable.values() if not is_same_device(one.device, plan.requested)]
        if not can_move or any(one.device == "meta" for one in rest):
            rest = []
        found = movable | holdings_in(numpy) | holdings_of(staying, budget)
    return found, sum(one.nbytes for one in rest)


def _unfinished(plan: Plan, budget: Budget) -> list[str]:
    """Return a line for the variables that were not searched in full. The plan searches its own in full."""
    named = {variable.name for variable in plan.variables}
    names = [name for name in budget.unfinished if name not in named]
    return [unfinished_text(names)] if names else []
