"""`on_gpu(0)`: a context manager and a decorator, for scripts; `%%on_gpu` is the same around a cell."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import known
from gpu_magic.placement.physical import locate
from gpu_magic.placement.scope import Scope
from gpu_magic.placement.uses import Evidence
from gpu_magic.selection.target import CPU, LogicalDevice, Target, parse_targets
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from types import CodeType, TracebackType

__all__ = ["OnGpu", "read_only"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
# What people call a framework that is imported by another name.
_SPOKEN = {"pytorch": "torch", "tf": "tensorflow", "jnp": "jax"}


class OnGpu:
    """Runs a block, or a function, on one device in every framework.

    Parameters
    ----------
    wanted
        As after `%%on_gpu`.
    only
        The modules of the frameworks that are meant; None for all.
    or_cpu
        Run it on the CPU where the device can't be used, and say so.
    mirror
        Mirror over several devices (TensorFlow).
    code
        What is to run: the code of a function, or what returns a cell's text as Python.
    namespace
        Where its names are looked up.

    """

    def __init__(
        self,
        wanted: str,
        *,
        only: Collection[str] | None = None,
        or_cpu: bool = False,
        mirror: bool = False,
        code: CodeType | Callable[[], str] = str,
        namespace: Mapping[str, Any] | None = None,
    ) -> None:
        self._wanted, self._only, self._or_cpu, self._mirror = wanted, only, or_cpu, mirror
        self._code, self._namespace = code, namespace or {}
        self._targets = parse_targets(wanted)
        self._entered = _Entered()
        if len(self._targets) > 1 and not mirror:
            raise PlacementError(
                f"A cell runs on one device. For {wanted}: --mirror (TensorFlow, Keras on it), torch.nn."
                f"DataParallel(model, device_ids=[{_numbers(self._targets)}]), or a launcher (torchrun)."
            )

    @property
    def wants_gpu(self) -> bool:
        return any(not isinstance(target, LogicalDevice) or target.kind == "gpu" for target in self._targets)

    @property
    def can_stop(self) -> bool:
        """Whether a framework could turn out not to be able to run there; all have a CPU."""
        return self._targets != (CPU,)

    def scope(self) -> Scope:
        """Return a new run of the block, to be entered once.

        Raises
        ------
        PlacementError
            For a physical GPU that this process can't see.

        """
        try:
            places = tuple(map(locate, self._targets))
        except PlacementError as error:
            if not self._or_cpu:
                raise
            print(f"Running on the CPU: {error}")  # noqa: T201 - what `or_cpu` promises
            places = (CPU,)
        return Scope(
            places,
            name=functools.partial(self._name, places),
            mirror=self._mirror and places != (CPU,),
            only=self._only,
            or_cpu=self._or_cpu,
            uses=Evidence(self._code, self._namespace),
        )

    def _name(self, places: tuple[LogicalDevice, ...]) -> str:
        """Return what the user called it, and what that is in this process: `smi:3 (cuda:1)`."""
        if len(places) < len(self._targets):
            return listed(map(str, places))
        pairs = zip(self._targets, places, strict=True)
        return listed(str(place) if target == place else f"{target} ({place})" for target, place in pairs)

    def __enter__(self) -> Scope:
        scope = self.scope().__enter__()
        self._entered.scopes.append(scope)
        return scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.scopes.pop().__exit__(kind, error, trace)

    def __call__(self, function: _Function) -> _Function:
        """Decorate a function: each call is a block of its own."""
        if isinstance(function, type) or not callable(function):
            raise PlacementError(f"on_gpu decorates functions, and {function!r:.60} is none.")
        what = function if inspect.isroutine(function) else type(function).__call__
        waits = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(is_one(function) or is_one(what) for is_one in waits):
            raise PlacementError(
                "on_gpu can't decorate a coroutine or a generator: what else runs while it waits would be on "
                "that device, too. Write with on_gpu(...): around what it computes."
            )
        block = OnGpu(
            self._wanted,
            only=self._only,
            or_cpu=self._or_cpu,
            mirror=self._mirror,
            code=getattr(function, "__code__", str),
            namespace=getattr(function, "__globals__", None),
        )

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with block.scope():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class _Entered(threading.local):
    """The runs of one block that are under way in this thread: it can be entered within itself."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []


def read_only(text: str) -> tuple[str, ...]:
    """Read the frameworks of `--only torch,tensorflow` into their modules.

    Raises
    ------
    PlacementError
        For one that is not known.

    """
    found: list[str] = []
    for name in filter(None, (part.strip().lower() for part in text.split(","))):
        module = _SPOKEN.get(name, name)
        if module not in known():
            raise PlacementError(
                f"--only {name}: there is no framework of that name; it can be {listed(known())}."
            )
        found.append(module)
    if not found:
        raise PlacementError(f"--only needs a framework: {listed(known())}.")
    return tuple(found)


def _numbers(targets: Sequence[Target]) -> str:
    return ", ".join(
        str(target.index if isinstance(target, LogicalDevice) else target.identifier) for target in targets
    )
