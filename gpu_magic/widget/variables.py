"""Which variables of the notebook lie on which of the machine's GPUs."""

from __future__ import annotations

from typing import Any, TypedDict

from gpu_magic.frameworks import imported
from gpu_magic.frameworks.target import LogicalDevice
from gpu_magic.objects.memory import memory_by_device
from gpu_magic.objects.walk import Budget
from gpu_magic.process.namespace import variables_of
from gpu_magic.process.physical import LazySnapshot, physical
from gpu_magic.text import shortened, size_text
from gpu_magic.widget.serialization import key_of

__all__ = ["Variables", "find_variables"]

_MOST_NAMES = 10
_LONGEST_NAME = 40
# The next cell waits for this long at most: a fifth of what %where may take.
_SECONDS = 0.2


class Variables(TypedDict):
    """Variables on one GPU."""

    largest: list[tuple[str, str]]  # the name, and how much of it lies there: "1.2 GiB"
    more: int  # how many there are besides
    unfinished: bool  # whether there was not enough time to look at all


def find_variables(shell: Any) -> dict[str, Variables]:
    """Return the variables that hold memory on GPUs, by the GPU's key; call it on the main thread.

    What `%where` finds, in less time. "" has what is to be said of the GPUs that are not there.
    """
    budget = Budget(seconds=_SECONDS)
    machine = LazySnapshot()
    found: dict[str, list[tuple[int, str]]] = {}
    variables = variables_of(dict(shell.user_ns), shell.user_ns_hidden) if imported() else {}
    for name, value in variables.items():
        with budget.variable(name):
            memory = memory_by_device([value], budget)
        for device, (nbytes, _) in memory.items():
            gpu = physical(device, machine) if isinstance(device, LogicalDevice) else None
            if gpu is not None and nbytes:
                found.setdefault(key_of(gpu), []).append((nbytes, name))
    is_unfinished = bool(budget.unfinished)
    by_key = {key: _variables(sizes, is_unfinished=is_unfinished) for key, sizes in found.items()}
    return by_key | {"": _variables([], is_unfinished=is_unfinished)}


def _variables(sizes: list[tuple[int, str]], *, is_unfinished: bool) -> Variables:
    sizes.sort(reverse=True)
    largest = [(shortened(name, _LONGEST_NAME), size_text(size)) for size, name in sizes[:_MOST_NAMES]]
    return Variables(largest=largest, more=max(0, len(sizes) - _MOST_NAMES), unfinished=is_unfinished)
