"""`gpu_magic.on_gpu(0)`: a context manager and a decorator. `%%on_gpu` is the same around a cell."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks import KNOWN, device_of
from gpu_magic.frameworks.target import CPU, LogicalDevice, normalize_device, parse_targets, without_brackets
from gpu_magic.on_gpu.scope import Scope
from gpu_magic.public import public

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import CodeType, TracebackType

    from gpu_magic.devices.model import Gpu, MigInstance

__all__ = ["OnGpu", "on_gpu", "read_only"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
# Other names that people use for a framework.
_ALIASES = {"pytorch": "torch", "tf": "tensorflow", "jnp": "jax"}


@public
def on_gpu(
    wanted: str | int | Gpu | MigInstance | Iterable[str | int],
    *,
    only: str | Iterable[str] | None = None,
    or_cpu: bool = False,
    mirror: bool = False,
) -> OnGpu:
    """Run a block, or a function, on one GPU in every framework that it uses.

    >>> with gpu_magic.on_gpu(0):
    ...     model = torch.nn.Linear(4, 2)

    >>> @gpu_magic.on_gpu("cuda:1")
    ... def train(): ...

    Parameters
    ----------
    wanted
        As after `%%on_gpu`: `0`, `"cuda:0"`, `"/GPU:0"`, `"smi:3"`, `"GPU-8f3a"`, `"cpu"`, `"cpu:2"`. Or a
        framework's own device (`torch.device("cuda:1")`, `jax.devices()[1]`), or one of `gpus()`.
    only
        Set only some of torch, tensorflow, jax, cupy and keras: `"torch"`, `"torch,tensorflow"` or
        `["torch"]`. None: all.
    or_cpu
        If the device cannot be used, run on the CPU and print a line.
    mirror
        With several devices: run in the scope of a `tf.distribute.MirroredStrategy` over the devices.

    Returns
    -------
    OnGpu
        A context manager, and a decorator for functions. You can use it several times, and nest it.
        `as device` gives the device of the framework that the code uses, PyTorch first if it uses several:
        `torch.device("cuda:1")`, `"/GPU:1"`, an object of JAX or CuPy.

    Raises
    ------
    PlacementError
        `wanted` names no device. Or a framework that the code uses cannot run on the device. The block then
        does not run. If the block itself imports the framework, the block runs and raises the error at its
        end.

    """
    if only is not None and not isinstance(only, str | Iterable):
        raise PlacementError(f"only={only!r:.40} names no frameworks. Try only='torch'")
    names = only if only is None or isinstance(only, str) else ",".join(str(name) for name in only)
    caller = sys._getframe(2)  # noqa: SLF001 - the caller's code has the block; 1 is `public`
    return OnGpu(
        normalize_device(wanted, device_of),
        only=None if names is None else read_only(names),
        or_cpu=or_cpu,
        mirror=mirror,
        code=functools.partial(list, (caller.f_code,)),
        namespace=caller.f_globals,  # no copy and no locals, because a stored block would keep them
    )


class OnGpu:
    """Runs a block, or a function, on one device in every framework. See `on_gpu`.

    Attributes
    ----------
    wants_gpu
        Whether one of the devices is a GPU.

    """

    def __init__(
        self,
        wanted: str,
        *,
        only: Collection[str] | None,
        or_cpu: bool,
        mirror: bool,
        code: Callable[[], Iterable[CodeType]] = tuple,
        namespace: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        targets = parse_targets(wanted)
        self.wants_gpu = any(getattr(target, "kind", "gpu") == "gpu" for target in targets)
        if mirror and targets == (CPU,):
            raise PlacementError("--mirror needs GPUs, and only cpu is named. Omit --mirror.")
        if not mirror and CPU in targets and self.wants_gpu:
            each = " or ".join(entry.strip() for entry in without_brackets(wanted).split(","))
            raise PlacementError(f"A cell runs on one device. Try {each}")
        if len(targets) > 1 and not mirror:
            # The format of PyTorch's `device_ids`.
            numbers = ", ".join(
                str(one.index if isinstance(one, LogicalDevice) else one.identifier) for one in targets
            )
            raise PlacementError(
                f"A cell runs on one device. For {wanted} use --mirror (TensorFlow), "
                f"torch.nn.DataParallel(model, device_ids=[{numbers}]), %gpu_launch torchrun for a script, "
                "or %gpu_cluster with %%px for cells."
            )
        self._scope = functools.partial(Scope, targets, only=only, or_cpu=or_cpu, mirror=mirror)
        self._code, self._namespace = code, namespace  # of a `with` block
        # The running scopes of each thread. A block can be nested in itself.
        self._runs = threading.local()

    def __getstate__(self) -> tuple[Any, ...]:
        """Return what another process needs. The variables around a `with` block stay here."""
        return self.wants_gpu, self._scope

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.wants_gpu, self._scope = state
        self._code, self._namespace, self._runs = tuple, MappingProxyType({}), threading.local()

    def scope(self, code: Callable[[], Iterable[CodeType]], namespace: Mapping[str, Any]) -> Scope:
        """Return a new run of the block: see `Scope`."""
        return self._scope(code=code, namespace=namespace)

    @public
    def __enter__(self) -> Any:
        """Start a block. Return the device object of the framework that the block uses."""
        scope = self.scope(self._code, self._namespace).__enter__()
        try:
            device = scope.device()
        except BaseException:  # Python does not call __exit__ then
            scope.__exit__(*sys.exc_info())
            raise
        self._runs.__dict__.setdefault("scopes", []).append(scope)
        return device

    @public
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runs.scopes.pop().__exit__(kind, error, trace)

    @public
    def __call__(self, function: _Function) -> _Function:
        """Decorate a function. Each call runs in a new block."""
        if isinstance(function, type) or not callable(function):
            raise PlacementError(f"{function!r:.60} is not a function, which on_gpu decorates.")
        called = function if inspect.isroutine(function) else type(function).__call__
        can_wait = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(check(function) or check(called) for check in can_wait):
            raise PlacementError(
                "on_gpu cannot decorate a coroutine or a generator, because other code that runs while it "
                "waits would also run on that device. Use with on_gpu(...): inside it."
            )

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            # Read here: a closure over the globals would take all variables of a notebook to a worker.
            code, namespace = getattr(function, "__code__", None), getattr(function, "__globals__", {})
            with self.scope(lambda: [] if code is None else [code], namespace):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def read_only(text: str) -> tuple[str, ...]:
    """Return the modules of the frameworks that `--only torch,tensorflow` names.

    Raises
    ------
    PlacementError
        A name is unknown.

    """
    found: list[str] = []
    for name in re.findall(r"[^\s,]+", text.lower()):
        module = _ALIASES.get(name, name)
        if module not in KNOWN:
            raise PlacementError(f"--only {name:.40} names no framework. Known: {', '.join(KNOWN)}")
        found.append(module)
    if not found:
        raise PlacementError(f"--only needs a framework: {', '.join(KNOWN)}")
    return tuple(found)
