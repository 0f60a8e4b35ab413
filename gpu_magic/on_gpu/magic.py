"""`%%on_gpu`: run a cell on one GPU."""

from __future__ import annotations

import ast
import contextlib
import copy
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from gpu_magic.errors import GpuMagicError
from gpu_magic.frameworks import device_of
from gpu_magic.frameworks.target import is_target, normalize_device
from gpu_magic.objects.physical import labels, running
from gpu_magic.on_gpu.block import OnGpu, read_only
from gpu_magic.process.show import show
from gpu_magic.shell.arguments import read, refuse_name
from gpu_magic.shell.cells import blocks_of, cell_number
from gpu_magic.shell.values import expand
from gpu_magic.shell.wrapping import fitted
from gpu_magic.text import with_full_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import CodeType, EllipsisType

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.on_gpu.scope import Scope
    from gpu_magic.shell.cells import Body, End

__all__ = ["OnGpuMagic"]

# IPython's Python code for a %%capture line, which acts on all threads.
_CAPTURE = "get_ipython().run_cell_magic('capture',"


class OnGpuMagic:
    """The magic that runs a cell on a device."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell: Any = shell

    def on_gpu(self, line: str, cell: str | EllipsisType | None, *, names: Mapping[str, Any]) -> Any:
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
        if cell is None:
            with _usage_errors(" The cell was stopped there."):
                for scope in reversed(running.scopes):
                    scope.check()
            return None
        options = read("%%on_gpu", line, partial(expand, names=names, write=_typed))
        refuse_name(self._shell, "%%on_gpu", options.request, is_target)
        block = OnGpu(
            options.request,
            only=read_only(options.only) if options.only is not None else None,
            or_cpu=options.or_cpu,
            mirror=options.mirror,
        )
        blocks = blocks_of(self._shell)
        body = blocks.body(cell)
        if options.background is not None:
            if body is None:
                raise UsageError("Write --background in the line itself.")
            return self._start(body, block, options.background)

        def begin(code: Callable[[], list[CodeType]]) -> End:
            return self._begin(block.scope(code, self._shell.user_ns), block, is_verbose=options.verbose)

        return blocks.run(body, begin)

    def _begin(self, scope: Scope, block: OnGpu, *, is_verbose: bool = False) -> End:
        """Enter a scope, and return what exits it. An error is one line that tells if the cell has run."""
        __tracebackhide__ = True
        way = " To run it on the CPU, add --or-cpu" if block.wants_gpu else ""
        scope.say = show  # below the cell, as a line of its own
        with _usage_errors(f" The cell did not run.{way}"):
            scope.__enter__()

        def end(error: BaseException | None) -> None:
            __tracebackhide__ = True
            names = scope.names() if is_verbose and error is None else []
            kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
            with _usage_errors(""):
                scope.__exit__(kind, error, trace)
            if is_verbose and error is None:
                through = f": {', '.join(names)}" if names else ""
                did = "Set to" if scope.was_elsewhere else "Ran on"
                show(f"{did} {', '.join(labels(scope.devices, scope.machine).values())}{through}.")

        return end

    def _start(self, body: Body, block: OnGpu, name: str) -> None:
        """Run a body in a thread, as a task of `%gpu_tasks`. Print its device, and return."""
        __tracebackhide__ = True
        from gpu_magic.on_gpu.background import BackgroundCell  # late, because few cells need it
        from gpu_magic.on_gpu.thread_output import context_of_cell
        from gpu_magic.processes.tasks import tasks

        shell, cell = self._shell, cell_number(self._shell)
        name = name or f"cell_{cell}"
        tasks.check_name(name)
        if body.awaits:
            raise UsageError(
                "await does not work with --background, which has no event loop. Use asyncio.run(...)"
            )
        if any(_CAPTURE in ast.unparse(statement) for statement in body.statements):
            raise UsageError(
                "%%capture does not work with --background: it would capture the output of other cells. "
                "Omit it; the output stays below this cell."
            )
        task = BackgroundCell(name, cell)

        def begin(code: Callable[[], list[CodeType]]) -> End:
            scope = block.scope(code, shell.user_ns)
            leave = self._begin(scope, block)

            def end(error: BaseException | None) -> None:
                task.block_ends()
                leave(error)

            try:
                where = ", ".join(labels(scope.devices, scope.machine).values())
                task.block_has_started(where, is_on_gpu=any(one.kind == "gpu" for one in scope.devices))
            except BaseException as error:
                end(error)
                raise
            return end

        def run() -> Any:
            __tracebackhide__ = True
            return blocks_of(shell).run(body, begin, show=display)

        task.start(run, partial(_error_text, shell), context_of_cell(shell))
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


def _error_text(shell: Any, error: BaseException) -> str:
    """Return an error as IPython shows it. %debug and %tb keep the last error of the other cells."""
    if isinstance(error, UsageError):
        return fitted(shell, f"UsageError: {error}")
    if hasattr(error, "_render_traceback_"):  # IPython's protocol
        return "\n".join(error._render_traceback_())
    if isinstance(error, BaseExceptionGroup):  # IPython does not show the errors in it
        return "".join(traceback.format_exception(error))
    # A copy, because %debug and %tb use the frames that the shell's own formatter has formatted last.
    formatter, frames = copy.copy(shell.InteractiveTB), error.__traceback__
    while frames is not None and "__tracebackhide__" in frames.tb_frame.f_locals:
        frames = frames.tb_next  # skip gpu_magic's frames above the cell
    text: str = formatter.stb2text(formatter.structured_traceback(type(error), error, frames, tb_offset=0))
    return text
