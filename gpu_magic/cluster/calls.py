"""What an engine does for `gpu_magic.map`: it keeps a function, and calls it."""

from __future__ import annotations

import linecache
import os
import pickle
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_magic.launch.pickling import NotPickled, pickled
from gpu_magic.process.environment import set_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Failure", "call", "forget", "keep"]

# What makes a process a rank: our own variables (`rank_variables`), and those of MPI and srun.
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
    """Why a call has no result: the error's type, empty if its result can't be pickled; and its traceback."""

    kind: str
    text: str


def keep(token: str, function: bytes, sources: Mapping[str, list[str]]) -> Failure | None:
    """Keep a function until it is forgotten, and the lines of its files and cells, which tracebacks show."""
    for file, lines in sources.items():
        if not linecache.getlines(file):
            # Without a time it is never looked for on the disk.
            linecache.cache[file] = sum(map(len, lines)), None, lines, file
    try:
        with _no_rank():
            loaded = pickle.loads(function)  # noqa: S301 - the notebook's own
    except Exception as error:  # noqa: BLE001 - what it needs can be missing here
        return _failure(error)
    names = getattr(loaded, "__globals__", {})
    if names.get("__name__") == "__main__":
        # It was defined in the notebook, and has come with those of its names that it uses. What else it uses
        # are names that cells have defined here.
        for name, value in vars(sys.modules["__main__"]).items():
            names.setdefault(name, value)
    _functions[token] = loaded
    return None


def call(token: str, item: bytes) -> bytes | Failure | None:
    """Call a function with an item; return what it returns, pickled. None: it has been forgotten."""
    function = _functions.get(token)
    if function is None:
        return None
    try:
        with _no_rank():
            return pickled("The result", function(pickle.loads(item))).text  # noqa: S301 - the notebook's own
    except NotPickled as error:
        forget(token)  # the first failure ends all
        return Failure("", str(error))
    except BaseException as error:  # noqa: BLE001 - also SystemExit; it is raised in the notebook
        forget(token)
        return _failure(error)


def forget(token: str) -> None:
    """Forget a function: calls that were sent return at once."""
    _functions.pop(token, None)


@contextmanager
def _no_rank() -> Iterator[None]:
    """Let this process be no rank meanwhile, whatever cells have made of it.

    Calls are independent: as ranks they would average what they learn, or wait for each other. A rank is
    known by its variables and by PyTorch's default group, and Accelerate keeps what it has found
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
        # If a call was the first to import it, cells are to find themselves.
        for number, state in enumerate(_accelerate_states()):
            state.clear()
            state.update(known[number] if known else {})


def _accelerate_states() -> list[dict[str, Any]]:
    module = sys.modules.get("accelerate.state")
    kinds = (getattr(module, name, None) for name in ("PartialState", "AcceleratorState", "GradientState"))
    states = (getattr(kind, "_shared_state", None) for kind in kinds)
    return [state for state in states if isinstance(state, dict)]


def _failure(error: BaseException) -> Failure:
    frames = error.__traceback__.tb_next if error.__traceback__ else None  # the first one is ours
    return Failure(type(error).__name__, "".join(traceback.format_exception(type(error), error, frames)))
