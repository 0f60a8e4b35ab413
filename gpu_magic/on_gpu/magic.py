"""`%%on_gpu`: run a cell on one GPU."""

from __future__ import annotations

import contextlib
import sys
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from gpu_magic.errors import GpuMagicError
from gpu_magic.frameworks import device_of
from gpu_magic.frameworks.target import is_target, normalize_device
from gpu_magic.on_gpu.block import OnGpu, read_only
from gpu_magic.process.physical import labels
from gpu_magic.shell.arguments import read, refuse_name
from gpu_magic.shell.cells import awaits, body_of, cell_number
from gpu_magic.shell.values import expand

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.on_gpu.background import ThreadTask
    from gpu_magic.on_gpu.scope import Scope
    from gpu_magic.shell.cells import Body

__all__ = ["OnGpuMagic"]

# What IPython makes of a magic that acts on all threads.
_CAPTURE = "get_ipython().run_cell_magic('capture',"


class OnGpuMagic:
    """The magic that runs a cell on a device."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell: Any = shell

    def on_gpu(self, line: str, cell: str) -> Any:
        """Run a cell on one GPU, in every framework that it uses.

        %%on_gpu 0         on cuda:0, the first of the GPUs that this kernel chose; also written cuda:0,
                           gpu:0 or /GPU:0
        %%on_gpu smi:3     on GPU 3 of nvidia-smi
        %%on_gpu GPU-8f3a  on the GPU whose UUID starts with that
        %%on_gpu cpu       on the CPU; cpu:2 is TensorFlow's and JAX's third logical CPU
        %%on_gpu xpu:0     on another accelerator that PyTorch knows; mps
        %%on_gpu {n}       a variable, or any expression
        %%on_gpu 0,1 --mirror
                           in the scope of a tf.distribute.MirroredStrategy over exactly these

        --only torch,tensorflow
                           set these frameworks, and leave the others as they are: torch, tensorflow, jax,
                           cupy, keras
        --or-cpu           if the GPU can't be used, run the cell on the CPU and print why
        --background eval  run the cell in a thread, while other cells run: %gpu_tasks shows it as eval, waits
                           for it and interrupts it; without a name it gets one
        -v, --verbose      print where the cell ran

        PyTorch's default and current device, TensorFlow's, JAX's and CuPy's are set for the cell, also in a
        framework that the cell itself imports, and restored at its end. If a framework that the cell uses
        can't run there, the cell does not run. Otherwise it is a cell like any other.
        """
        __tracebackhide__ = True
        # The code that runs the magic is below the frames of this one, the lazy one and run_cell_magic.
        options = read("%%on_gpu", line, partial(expand, self._shell, write=_typed, depth=5))
        refuse_name(self._shell, "%%on_gpu", options.request, is_target)
        body = body_of(self._shell, cell)
        block = OnGpu(
            options.request,
            only=read_only(options.only) if options.only is not None else None,
            or_cpu=options.or_cpu,
            mirror=options.mirror,
            code=lambda: [code for code, _ in body.steps],
            namespace=self._shell.user_ns,
        )
        scope = _CellScope(block, is_verbose=options.verbose)
        if options.background is None:
            return body.run(scope, scope.check, check_each=block.can_stop)
        self._start(body, scope, options.background, check_each=block.can_stop)
        return None

    def _start(self, body: Body, scope: _CellScope, name: str, *, check_each: bool) -> None:
        """Start a body in a thread, as a task that `%gpu_tasks` knows; print where it runs, and return."""
        __tracebackhide__ = True
        from gpu_magic.on_gpu.background import ThreadTask  # which few cells need
        from gpu_magic.process.tasks import tasks
        from gpu_magic.shell.thread_output import output_of_cell

        shell, cell = self._shell, cell_number(self._shell)
        name = name or f"cell_{cell}"
        tasks.check_name(name)
        if awaits(body.compile(one_by_one=check_each, by_displayhook=False)):
            raise UsageError(
                "await needs this kernel's event loop, which is for the cells in the foreground. With "
                "--background, asyncio.run(...) runs a coroutine."
            )
        if _CAPTURE in body.source:
            raise UsageError(
                "%%capture takes the output of all cells that run. With --background, the output stays "
                "below this cell."
            )

        def run() -> Any:
            __tracebackhide__ = True
            return body.run_steps(scope.check, show=display)

        def at_begin(task: ThreadTask) -> None:
            print(f"{task.name}: running on {task.where}")

        def at_end(task: ThreadTask) -> None:
            if task.error is not None:
                _show_error(shell, task.error)

        call = output_of_cell(shell)
        task = ThreadTask(name, run, scope, cell=cell, call=call, at_begin=at_begin, at_end=at_end)
        task.start()
        tasks.add(task)


def _typed(value: object) -> str:
    """Return what one would type for the value of an expression."""
    return normalize_device(value, device_of)


@contextlib.contextmanager
def _usage_errors(end: str) -> Iterator[None]:
    """Have IPython show an error of ours as one line, followed by this."""
    try:
        yield
    except GpuMagicError as error:
        raise UsageError(f"{error}{end}") from None


def _show_error(shell: Any, error: BaseException) -> None:
    """Write an error as IPython shows it; %debug and %tb are still about the last one of the other cells."""
    if isinstance(error, UsageError):
        text = f"UsageError: {error}"
    elif hasattr(error, "_render_traceback_"):  # IPython's protocol
        text = "\n".join(error._render_traceback_())
    elif isinstance(error, BaseExceptionGroup):  # IPython does not show what is in it
        text = "".join(traceback.format_exception(error))
    else:
        formatter, frames = shell.InteractiveTB, error.__traceback__
        while frames is not None and "__tracebackhide__" in frames.tb_frame.f_locals:
            frames = frames.tb_next  # ours, down to the cell
        text = formatter.stb2text(formatter.structured_traceback(type(error), error, frames, tb_offset=0))
    print(text, file=sys.stderr)


class _CellScope:
    """The scope of a cell. What goes wrong is one line, and says whether the cell has run."""

    def __init__(self, block: OnGpu, *, is_verbose: bool) -> None:
        self._block, self._scope, self._is_verbose = block, block.scope(), is_verbose

    def __enter__(self) -> Scope:
        __tracebackhide__ = True
        way = "; --or-cpu runs it on the CPU" if self._block.wants_gpu else ""
        with _usage_errors(f" The cell has not run{way}."):
            return self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        names = self._scope.names() if self._is_verbose else []
        with _usage_errors(""):
            self._scope.__exit__(kind, error, trace)
        if self._is_verbose and kind is None:
            through = f": {', '.join(names)}" if names else ""
            print(f"Ran on {', '.join(labels(self._scope.devices, self._scope.machine).values())}{through}.")

    def check(self) -> None:
        """End the cell after the import of a framework that can't run there."""
        __tracebackhide__ = True
        with _usage_errors(" The cell was stopped there."):
            self._scope.check()
