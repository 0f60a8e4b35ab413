"""`on_gpu(0)`: a context manager and a decorator, for scripts. `%%on_gpu` is the same around a cell."""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import known
from gpu_magic.placement.block import Block
from gpu_magic.placement.physical import LazySnapshot, locate
from gpu_magic.placement.scope import Scope
from gpu_magic.placement.uses import Evidence
from gpu_magic.public import public
from gpu_magic.selection.plain import without_brackets
from gpu_magic.selection.target import CPU, LogicalDevice, Target, parse_targets
from gpu_magic.spelling import either, option, spelled
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from types import CodeType, TracebackType

__all__ = ["OnGpu", "read_only"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
# Other names that people use for a framework.
_ALIASES = {"pytorch": "torch", "tf": "tensorflow", "jnp": "jax"}


class OnGpu:
    """Runs a block, or a function, on one device in every framework.

    Parameters
    ----------
    wanted
        The device, as after `%%on_gpu`.
    only
        The modules of the frameworks to set it in; None for all.
    or_cpu
        Run it on the CPU where the device can't be used, and say so.
    mirror
        Mirror over several devices (TensorFlow).
    code
        The code that is to run: that of a function, or a function that returns a cell's text as Python.
    namespace
        Where the names in the code are looked up.

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
        self._runs = _Runs()
        if mirror and self._targets == (CPU,):
            raise PlacementError(
                f"{option('mirror', True)} has nothing to mirror over on cpu alone: omit it."
            )
        if not mirror and CPU in self._targets and self.wants_gpu:
            each = " or ".join(entry.strip() for entry in without_brackets(wanted).split(","))
            raise PlacementError(f"A cell runs on one device: try {each}.")
        if len(self._targets) > 1 and not mirror:
            launch = either("%gpu_launch torchrun", "gpu_magic.launch()")
            cluster = either("%gpu_cluster with %%px", "gpu_magic.cluster()")
            raise PlacementError(
                f"A cell runs on one device. For {wanted}: {option('mirror', True)} (TensorFlow, Keras on "
                f"it), torch.nn.DataParallel(model, device_ids=[{_numbers(self._targets)}]), or processes "
                f"with a GPU each: {launch} runs a script in them, {cluster} code that you type."
            )

    @property
    def wants_gpu(self) -> bool:
        return any(not isinstance(target, LogicalDevice) or target.kind == "gpu" for target in self._targets)

    @property
    def can_stop(self) -> bool:
        """Whether a framework that the block imports could be unable to run there; all have a CPU."""
        return self._targets != (CPU,)

    @public
    def scope(self) -> Scope:
        """Return a new run of the block, to be entered once.

        Raises
        ------
        PlacementError
            This process can't see a physical GPU that was named.

        """
        machine = LazySnapshot()
        try:
            devices = tuple(locate(target, machine) for target in self._targets)
        except PlacementError as error:
            if not self._or_cpu:
                raise
            print(f"Running on the CPU: {error}")  # noqa: T201 - what `or_cpu` promises
            devices = (CPU,)
        block = Block(
            devices,
            get_name=functools.partial(self._name, devices),
            mirror=self._mirror and devices != (CPU,),
            only=self._only,
            or_cpu=self._or_cpu,
            packages=Evidence(self._code, self._namespace),
            machine=machine,
        )
        return Scope(block)

    def _name(self, devices: tuple[LogicalDevice, ...]) -> str:
        """Return what the user called the device, and what this process calls it: `smi:3 (cuda:1)`."""
        if len(devices) < len(self._targets):
            return listed(map(str, devices))
        pairs = zip(self._targets, devices, strict=True)
        return listed(str(device) if target == device else f"{target} ({device})" for target, device in pairs)

    @public
    def __enter__(self) -> Any:
        """Begin a block; return the device as the framework calls it that the block uses."""
        scope = self.scope().__enter__()
        try:
            device = scope.device()
        except BaseException:  # Python does not call __exit__ then
            scope.__exit__(*sys.exc_info())
            raise
        self._runs.scopes.append(scope)
        return device

    @public
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runs.scopes.pop().__exit__(kind, error, trace)

    @public
    def __call__(self, function: _Function) -> _Function:
        """Decorate a function: each call is a block of its own."""
        if isinstance(function, type) or not callable(function):
            raise PlacementError(f"on_gpu decorates functions, and {function!r:.60} is not a function.")
        called = function if inspect.isroutine(function) else type(function).__call__
        can_wait = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(check(function) or check(called) for check in can_wait):
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
            with spelled(is_in_python=True):  # the user has called it, and this frame is ours
                scope = block.scope()
            with scope:
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class _Runs(threading.local):
    """The runs of one block that are under way in this thread, as a block can be entered within itself."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []


def read_only(text: str) -> tuple[str, ...]:
    """Return the modules of the frameworks that `--only torch,tensorflow` names.

    Raises
    ------
    PlacementError
        One of them is not known.

    """
    found: list[str] = []
    for name in filter(None, (part.strip().lower() for part in text.split(","))):
        module = _ALIASES.get(name, name)
        if module not in known():
            close = difflib.get_close_matches(name, [*known(), *_ALIASES], n=1)
            hint = f" Did you mean {_ALIASES.get(close[0], close[0])}?" if close else ""
            raise PlacementError(
                f"{option('only', name)}: no framework has that name; it can be {listed(known())}, "
                f"with commas between.{hint}"
            )
        found.append(module)
    if not found:
        raise PlacementError(f"{option('only', text).strip()} needs a framework: {listed(known())}.")
    return tuple(found)


def _numbers(targets: Sequence[Target]) -> str:
    """Return the numbers of the devices, as `device_ids` of PyTorch takes them."""
    return ", ".join(
        str(target.index if isinstance(target, LogicalDevice) else target.identifier) for target in targets
    )
