"""`%%on_gpu`: run a cell on one GPU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from gpu_magic.errors import GpuMagicError
from gpu_magic.frameworks import device_of
from gpu_magic.magics.arguments import read
from gpu_magic.magics.cell_input import body_of
from gpu_magic.magics.expansion import expand, refuse_names
from gpu_magic.placement.on_gpu import OnGpu, read_only
from gpu_magic.placement.physical import LazySnapshot, labels
from gpu_magic.selection.normalize import normalize_device
from gpu_magic.selection.target import is_target

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.placement.scope import Scope
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["OnGpuMagic"]


class OnGpuMagic:
    """The magic that runs a cell on a device."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell: Any = shell

    def on_gpu(self, line: str, cell: str) -> Any:
        """Run a cell on one GPU, in every framework that it uses.

        %%on_gpu 0         on cuda:0, the first of the GPUs that this kernel chose; also written cuda:0,
                           gpu:0 or /GPU:0
        %%on_gpu smi:3     on GPU 3 of nvidia-smi
        %%on_gpu GPU-8f3a  on the GPU whose UUID begins so
        %%on_gpu cpu       on the CPU; cpu:2 is TensorFlow's and JAX's third logical CPU
        %%on_gpu xpu:0     on another accelerator that PyTorch knows; mps
        %%on_gpu {n}       a variable, or any expression
        %%on_gpu 0,1 --mirror
                           in the scope of a tf.distribute.MirroredStrategy over exactly these

        --only torch,tensorflow
                           place these frameworks, and leave the others as they are: torch, tensorflow, jax,
                           cupy, keras
        --or-cpu           where the GPU can't be used, run the cell on the CPU and say so
        --background eval  run the cell in a thread, while other cells run: %gpu_tasks shows it as eval, waits
                           for it and interrupts it; without a name it gets one
        -v, --verbose      say where the cell ran

        PyTorch's default and current device, TensorFlow's, JAX's and CuPy's are set for the cell, also in a
        framework that the cell itself imports, and set back at its end. Where one that the cell uses can't
        run there, the cell does not run. Otherwise it is a cell like any other.
        """
        __tracebackhide__ = True
        # The code that runs the magic is below the frames of this one, the lazy one and run_cell_magic.
        options = read("%%on_gpu", line, partial(expand, self._shell, write=_typed, depth=5))
        if options.request:
            refuse_names(self._shell, "%%on_gpu", options.request, _typed, is_target)
        body = body_of(self._shell, cell)
        try:
            block = OnGpu(
                options.request,
                only=read_only(options.only) if options.only is not None else None,
                or_cpu=options.or_cpu,
                mirror=options.mirror,
                code=lambda: body.source,
                namespace=self._shell.user_ns,
            )
        except GpuMagicError as error:
            raise UsageError(str(error)) from None
        scope = _CellScope(block, is_verbose=options.verbose)
        if options.background is None:
            return body.run(scope, scope.check, check_each=block.can_stop)
        from gpu_magic.magics.background_cell import run_in_background  # which few cells need

        name = options.background
        try:
            run_in_background(body, scope, scope.check, name, check_each=block.can_stop)
        except GpuMagicError as error:
            raise UsageError(str(error)) from None
        return None


def _typed(value: object) -> str:
    """Return what one would type for the value of an expression."""
    return normalize_device(value, device_of)


class _CellScope:
    """The scope of a cell. What goes wrong is one line, and says whether the cell has run.

    Parameters
    ----------
    block
        The scope's device and options.
    is_verbose
        Print where the cell ran.

    """

    def __init__(self, block: OnGpu, *, is_verbose: bool) -> None:
        self._block, self._is_verbose = block, is_verbose
        self._scope: Scope

    def __enter__(self) -> Sequence[LogicalDevice]:
        """Begin it; return the devices that are set."""
        __tracebackhide__ = True
        try:
            self._scope = self._block.scope().__enter__()
        except GpuMagicError as error:
            way = "; --or-cpu runs it on the CPU" if self._block.wants_gpu else ""
            raise UsageError(f"{error} The cell has not run{way}.") from None
        return self._scope.devices

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        names = self._scope.names() if self._is_verbose else []
        try:
            self._scope.__exit__(kind, error, trace)
        except GpuMagicError as problem:
            raise UsageError(str(problem)) from None
        if self._is_verbose and kind is None:
            through = f": {', '.join(names)}" if names else ""
            print(f"Ran on {', '.join(labels(self._scope.devices, LazySnapshot()).values())}{through}.")

    def check(self) -> None:
        """End the cell after the import of a framework that can't run there."""
        __tracebackhide__ = True
        try:
            self._scope.check()
        except GpuMagicError as error:
            raise UsageError(f"{error} The cell was stopped there.") from None
