"""The part of `gpu_magic.map` that runs in engines: stores a function, and calls it."""

from __future__ import annotations

import linecache
import os
import pickle
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.cluster.pickling import NotPickled, pickled
from gpu_magic.frameworks.private import private_of
from gpu_magic.process.environment import set_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Failure", "call", "forget", "keep"]

# The variables that make a process a rank: those of `rank_variables`, MPI and srun.
_RANK = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("JAX_COORDINATOR_ADDRESS", "TF_CONFIG"),
    *(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "NODE_RANK")),
    *(f"MV2_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")),
    *("PMI_RANK", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS"),
)
_functions: dict[str, Callable[[Any], object]] = {}


class Failure(NamedTuple):
    """An error of a call: its type (empty if the result cannot be pickled) and its traceback."""

    kind: str
    text: str


def keep(token: str, function: bytes, sources: Mapping[str, list[str]]) -> Failure | None:
    """Store a function until `forget`, and the lines of its files and cells for tracebacks."""
    for file, lines in sources.items():
        if not linecache.getlines(file):
            # Without a time, linecache never checks the file on disk.
            linecache.cache[file] = sum(map(len, lines)), None, lines, file
    try:
        with _no_rank():
            loaded = pickle.loads(function)  # noqa: S301 - the notebook's own
    except Exception as error:  # noqa: BLE001 - a module that it needs can be missing here
        return _failure(error)
    names = getattr(loaded, "__globals__", {})
    if names.get("__name__") == "__main__":
        # cloudpickle sends only those names of the notebook that the function uses. All other names are those
        # that cells have defined in this engine.
        for name, value in vars(sys.modules["__main__"]).items():
            names.setdefault(name, value)
    _functions[token] = loaded
    return None


def call(token: str, item: bytes) -> bytes | Failure | None:
    """Call a function with an item. Return the pickled result. None: the function was forgotten."""
    function = _functions.get(token)
    if function is None:
        return None
    try:
        with _no_rank():
            return pickled("The result", function(pickle.loads(item))).text  # noqa: S301 - the notebook's own
    except NotPickled as error:
        forget(token)  # the first failure ends all calls
        return Failure("", str(error))
    except BaseException as error:  # noqa: BLE001 - also SystemExit; it is raised in the notebook
        forget(token)
        return _failure(error)


def forget(token: str) -> None:
    """Forget a function. Calls that have not started return at once."""
    _functions.pop(token, None)


@contextmanager
def _no_rank() -> Iterator[None]:
    """Hide from the block that this process is a rank.

    Calls are independent. As ranks they would average their gradients, or wait for each other. Frameworks
    recognize a rank by its variables and by PyTorch's default group. Accelerate also keeps its own state
    (accelerate.state: "modify the _storage dict in-place").
    """
    variables = {name: value for name in _RANK if (value := os.environ.get(name)) is not None}
    group: Any = getattr(sys.modules.get("torch.distributed"), "group", None)
    world = getattr(group, "WORLD", None)
    known = [dict(state) for state in _accelerate_states()]
    try:
        for name in variables:
            set_variable(name, None)
        if world is not None:
            group.WORLD = None
        for state in _accelerate_states():
            state.clear()
        yield
    finally:
        for name in _RANK:
            set_variable(name, variables.get(name))
        if world is not None:
            group.WORLD = world
        # If a call has imported Accelerate, cells start with empty states.
        for number, state in enumerate(_accelerate_states()):
            state.clear()
            state.update(known[number] if known else {})


def _accelerate_states() -> list[dict[str, Any]]:
    module = sys.modules.get("accelerate.state")
    kinds = (getattr(module, name, None) for name in ("PartialState", "AcceleratorState", "GradientState"))
    states = (private_of(kind, "accelerate.state:PartialState._shared_state") for kind in kinds)
    return [state for state in states if isinstance(state, dict)]


def _failure(error: BaseException) -> Failure:
    frames = error.__traceback__.tb_next if error.__traceback__ else None  # the first frame is gpu_magic's
    return Failure(type(error).__name__, "".join(traceback.format_exception(type(error), error, frames)))
