"""`%%on_gpu`: run a cell on one GPU."""

from __future__ import annotations

import contextlib
import copy
import sys
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from gpu_magic.errors import GpuMagicError, show_as
from gpu_magic.frameworks import device_of
from gpu_magic.frameworks.target import is_target, normalize_device
from gpu_magic.on_gpu.block import OnGpu, read_only
from gpu_magic.process.physical import labels
from gpu_magic.shell.arguments import read, refuse_name
from gpu_magic.shell.cells import awaits, body_of, cell_number
from gpu_magic.shell.values import expand
from gpu_magic.text import with_full_stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.on_gpu.background import ThreadTask
    from gpu_magic.on_gpu.scope import Scope
    from gpu_magic.shell.cells import Body

__all__ = ["OnGpuMagic"]

# IPython's Python code for a %%capture line, which acts on all threads.
_CAPTURE = "get_ipython().run_cell_magic('capture',"


class OnGpuMagic:
    """The magic that runs a cell on a device."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell: Any = shell

    def on_gpu(self, line: str, cell: str, *, names: Mapping[str, Any]) -> Any:
        """Run a cell on one GPU, in every framework that the cell uses.

            %%on_gpu 1          run the cell on cuda:1; also typed as cuda:1, gpu:1 or /GPU:1
            %%on_gpu smi:3      run the cell on nvidia-smi's GPU 3; also GPU-8f3a, the start of a UUID
            %%on_gpu cpu        run the cell on the CPU; also cpu:2, xpu:0 or mps
            %%on_gpu {n}        use a variable or an expression

        {options}

        For the cell, `%%on_gpu` sets the default device of PyTorch, TensorFlow, JAX and CuPy, even if the
        cell itself imports them. If a framework is already imported and cannot run on the device, a cell
        that uses it does not run. If the cell itself imports a framework that cannot run on the device, the
        cell starts and then raises an error.
        """
        __tracebackhide__ = True
        options = read("%%on_gpu", line, partial(expand, names=names, write=_typed))
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
        """Run a body in a thread, as a task of `%gpu_tasks`. Print its device, and return."""
        __tracebackhide__ = True
        from gpu_magic.on_gpu.background import ThreadTask  # late, because few cells need it
        from gpu_magic.process.tasks import tasks
        from gpu_magic.shell.thread_output import output_of_cell

        shell, cell = self._shell, cell_number(self._shell)
        name = name or f"cell_{cell}"
        tasks.check_name(name)
        if awaits(body.compile(one_by_one=check_each, by_displayhook=False)):
            raise UsageError(
                "await does not work with --background, which has no event loop. Use asyncio.run(...)"
            )
        if _CAPTURE in body.source:
            raise UsageError(
                "%%capture does not work with --background: it would capture the output of other cells. "
                "Omit it; the output stays below this cell."
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
    """Format the value of an expression as the magic's argument."""
    return normalize_device(value, device_of)


@contextlib.contextmanager
def _usage_errors(end: str) -> Iterator[None]:
    """Make IPython show an error of gpu_magic as one line, followed by `end`."""
    try:
        yield
    except GpuMagicError as error:
        raise UsageError(f"{with_full_stop(str(error))}{end}" if end else str(error)) from None


def _show_error(shell: Any, error: BaseException) -> None:
    """Print an error as IPython shows it, and have it shown so again, without its frames.

    %debug and %tb keep the last error of the other cells.
    """
    if isinstance(error, UsageError):
        text = f"UsageError: {error}"
    elif hasattr(error, "_render_traceback_"):  # IPython's protocol
        text = "\n".join(error._render_traceback_())
    elif isinstance(error, BaseExceptionGroup):  # IPython does not show the errors in it
        text = "".join(traceback.format_exception(error))
    else:
        # A copy, because %debug and %tb use the frames that the shell's own formatter has formatted last.
        formatter, frames = copy.copy(shell.InteractiveTB), error.__traceback__
        while frames is not None and "__tracebackhide__" in frames.tb_frame.f_locals:
            frames = frames.tb_next  # skip gpu_magic's frames above the cell
        text = formatter.stb2text(formatter.structured_traceback(type(error), error, frames, tb_offset=0))
    print(text, file=sys.stderr)
    show_as(error, text)


class _CellScope:
    """The scope of a cell. Its errors are one line that tells whether the cell has run."""

    def __init__(self, block: OnGpu, *, is_verbose: bool) -> None:
        self._block, self._scope, self._is_verbose = block, block.scope(), is_verbose

    def __enter__(self) -> Scope:
        __tracebackhide__ = True
        way = " To run it on the CPU, add --or-cpu" if self._block.wants_gpu else ""
        with _usage_errors(f" The cell did not run.{way}"):
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
        """End the cell after the import of a framework that cannot run on the device."""
        __tracebackhide__ = True
        with _usage_errors(" The cell was stopped there."):
            self._scope.check()
