"""`%gpu_launch`, `%%gpu_launch` and `%gpu_tasks`: commands on GPUs, and background tasks."""

from __future__ import annotations

import glob
import re
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from IPython.display import display

from gpu_magic.errors import LaunchError, show_as
from gpu_magic.gpus.choice import gpu_notes
from gpu_magic.interrupts import defer_interrupts
from gpu_magic.launch.launch import Script, prepare
from gpu_magic.launch.output import RankFolds, RankLines
from gpu_magic.launch.process import is_full
from gpu_magic.launch.task import Task
from gpu_magic.process.environment import variables_now
from gpu_magic.process.show import bundle, show
from gpu_magic.processes.tasks import VERBS, tasks
from gpu_magic.shell.arguments import names_of, read, read_command, refusal
from gpu_magic.shell.waiting_line import waiting_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import SimpleNamespace

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.launch.output import Output
    from gpu_magic.processes.tasks import BackgroundTask

    Show = Callable[[Iterable[tuple[Output, str]]], None]  # gets new output; called many times a second

__all__ = ["GpuLaunchMagic", "GpuTasksMagic"]

# Programs that replace $NAME and {…} themselves.
_INTERPRETERS = ("sh", "bash", "dash", "zsh", "fish", "awk", "gawk", "mawk", "perl")
_LINE_SECONDS = 1.0  # between two updates of the line above the output
_JOIN_SECONDS = 0.5  # between two checks whether a task has ended
_MAX_BYTES = 1 << 20  # of a task's output


class GpuLaunchMagic:
    """The magic that launches commands."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._shown: Task | None = None  # the task of the latest --dry-run

    def gpu_launch(self, line: str, cell: str | None = None) -> None:
        """Run a command on the chosen GPUs, in their order, in other processes.

            %gpu_launch torchrun train.py          one process per GPU: rank 0 on cuda:0, …
            %gpu_launch accelerate launch train.py
                                                   the same with Accelerate
            %gpu_launch deepspeed train.py         the same with DeepSpeed
            %gpu_launch python train.py            one process with all GPUs; any other command also works
            %%gpu_launch torchrun                  run the cell as a script

        Options of the launcher follow its name. Options of `%gpu_launch` come before the name. `--gpus` does
        not change the choice of this kernel.

        {options}

        You can also launch after CUDA has started. An interrupt, or the end of this kernel, ends the command
        with all that it started.
        """
        options = read_command("%gpu_launch", line)
        if cell is not None and not options.command:
            raise LaunchError("No program is named to run the cell. Try %%gpu_launch torchrun")
        script = None
        if cell is not None:
            _check_code(cell)
            # The number in the prompt of the running cell. Since IPython 9, `execution_count` is one ahead.
            manager = self._shell.history_manager
            number = len(manager.input_hist_raw) - 1 if manager else self._shell.execution_count
            script = Script(f"cell_{number}.py", cell)
        if options.background:
            tasks.check_name(options.background)
        try:
            with waiting_line() as on_wait:
                task = prepare(options, names=names_of("%gpu_launch"), on_wait=on_wait, script=script)
        except LaunchError as error:
            magic = "%gpu_launch" if cell is None else "%%gpu_launch"
            raise LaunchError(error.behind([magic, *options.given])) from None
        if options.dry_run:
            self._shown = task  # keep the files that the printed lines name
            show(task.shell_lines)
            return
        if options.background:
            with defer_interrupts():  # a command that runs is listed
                tasks.add(task.start(options.background))
            _print_notes(task, options, line)
            show(f"{task.name} runs. To see its output: %gpu_tasks {task.name}")
            return
        try:
            task.start()
            _print_notes(task, options, line)
            self._run(task, is_kept=options.keep)
        finally:
            task.stop()  # after an error or an interrupt before `_run`
            task.files.remove()

    def _run(self, task: Task, *, is_kept: bool) -> None:
        """Show a task until it ends, and end it on an interrupt."""
        interrupt: KeyboardInterrupt | None = None
        in_kernel = hasattr(self._shell, "kernel")
        try:
            with _view(task, in_kernel=in_kernel) as write:
                while True:
                    try:
                        for pieces in task.follow(cut=True, folds=in_kernel):
                            write(pieces)
                        break
                    except KeyboardInterrupt as error:
                        interrupt = error
                        task.interrupt()
        finally:
            task.stop()  # after an error of gpu_magic, or an interrupt before `follow`
            was_cut = any(output.was_cut for output in task.outputs)
            if was_cut and not is_kept and is_full(task.files.path):
                show("Its files are removed because they fill the disk. To keep them, add --keep")
            elif was_cut or is_kept:
                show(f"Its files are in {task.files.keep()}")
        if interrupt:
            raise interrupt
        task.check()


def _check_code(cell: str) -> None:
    """Raise LaunchError if a cell is not a Python script."""
    try:
        # An empty line replaces the magic's line, so that line numbers are those of the cell.
        compile(f"\n{cell}", "cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise LaunchError(f"The cell is not a Python script: {_reason(error, cell)}.") from None


def _reason(error: Exception, cell: str) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "it is nested too deeply"
    if not isinstance(error, SyntaxError) or not error.lineno:
        return str(error)
    line = "".join(cell.splitlines()[error.lineno - 2 : error.lineno - 1]).strip()
    if line.startswith(("%", "!")):
        return f"magics and shell commands do not run in it ({line} in line {error.lineno})"
    return f"{error.msg} in line {error.lineno}"


@contextmanager
def _view(task: Task, *, in_kernel: bool) -> Iterator[Show]:
    """Yield a function that shows a task's new output. Show the outcome at the end of the block."""
    lines, due = RankLines(sys.stdout, has_ranks=task.has_ranks), time.monotonic() + _LINE_SECONDS
    handle = display(_text(task), raw=True, display_id=True) if in_kernel else None

    def write(pieces: Iterable[tuple[Output, str]]) -> None:
        nonlocal due
        lines.show(pieces)
        if handle and time.monotonic() >= due:
            handle.update(_text(task), raw=True)
            due = time.monotonic() + _LINE_SECONDS

    try:
        yield write
    finally:
        lines.end()
        if handle:
            handle.update(_text(task), raw=True)
            _display_folds(task)
    if not handle and not task.has_failed:  # otherwise an error shows it
        show(task)


def _display_folds(task: Task) -> None:
    folds = RankFolds(list(filter(task.is_folded, task.outputs)), task.first_failure)
    if folds.texts:
        display(folds)


def _text(task: Task) -> dict[str, str]:
    return bundle(str(task))


def _print_notes(task: Task, options: SimpleNamespace, line: str) -> None:
    """Print who else uses the GPUs of a command, and which of its words are passed literally."""
    is_chosen = options.gpus is not None or options.count is not None or variables_now().name_gpus
    about_gpus = gpu_notes(task.devices, "To choose GPUs, add --gpus", is_chosen=is_chosen)
    show(*task.notes, *about_gpus, *_literals(task, options, line))


def _literals(task: Task, options: SimpleNamespace, line: str) -> Iterator[str]:
    """Yield a note about each word that is passed literally, but that a shell or IPython would replace."""
    command = options.command
    if not command or Path(command[0]).name in _INTERPRETERS:
        return
    for word in line.split():
        if word not in command[1:]:  # for example in quotes
            continue
        is_pattern = glob.has_magic(word) and any(glob.iglob(word, root_dir=task.folder))  # noqa: PTH207 - also absolute
        if re.search(r"(?<!\$)\{[A-Za-z_]\w*\}", word):
            yield f"%gpu_launch passes {word!r} literally; IPython replaces {{names}} if all are variables."
        elif is_pattern or re.search(r"\$\{?[A-Za-z_]", word):
            yield f"%gpu_launch passes {word!r} literally; no shell runs. To start one: bash -c '…'"


class GpuTasksMagic:
    """The magic that lists tasks, waits for tasks and stops tasks."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._in_kernel = hasattr(shell, "kernel")

    def gpu_tasks(self, line: str) -> None:
        """Show the tasks that `%gpu_launch --background` and `%%on_gpu --background` have started.

            %gpu_tasks              list all tasks
            %gpu_tasks NAME         show the output of a command, or the value of a cell
            %gpu_tasks wait NAME    wait until it ends, and show its result or error; without a name: all
            %gpu_tasks stop NAME    end a command with all that it started, or interrupt a cell

        Separate several names by commas: `%gpu_tasks wait train, eval`. An interrupt ends only the waiting.
        """
        __tracebackhide__ = True
        names = read("%gpu_tasks", line).request.replace(",", " ").split()
        verb = names.pop(0) if names and names[0] in VERBS else ""
        if verb == "stop" and not names:
            raise refusal("%gpu_tasks stop needs a task's name. %gpu_tasks lists the names.")
        found = [tasks.find(name, names) for name in names] or list(tasks)
        if not found:
            show(
                "Nothing was started in the background. For a command: %gpu_launch --background NAME …; "
                "for a cell: %%on_gpu 0 --background NAME"
            )
        elif verb == "wait":
            waited = found if names else [task for task in found if task.is_running]
            _join(waited)
            if names:
                self._show_outputs(found)
            # The first awaited task that has failed raises an error. Without names, tasks that failed earlier
            # do not raise again.
            failed = [task for task in waited if task.has_failed]
            _list([task for task in found if task not in failed[:1]])
            for task in failed[:1]:
                task.check()
            if names and self._in_kernel:  # in a terminal, a background cell has already shown it
                _show_results(found)
        else:
            if verb == "stop":
                for task in found:
                    task.stop()
            elif names:
                self._show_outputs(found)
                _show_results(found)
            _list(found)

    def _show_outputs(self, found: Sequence[BackgroundTask]) -> None:
        for task in found:
            if not isinstance(task, Task):
                continue
            lines, most = RankLines(sys.stdout, has_ranks=task.has_ranks), _MAX_BYTES // len(task.outputs)
            as_lines = (one for one in task.outputs if not (self._in_kernel and task.is_folded(one)))
            lines.show((output, output.tail(most)) for output in as_lines)
            lines.end()
            if self._in_kernel:
                _display_folds(task)


def _join(waited: Sequence[BackgroundTask]) -> None:
    """Wait until all tasks have ended."""
    __tracebackhide__ = True
    try:
        for task in waited:
            while not task.join(_JOIN_SECONDS):  # Python can miss an interrupt at the start of a wait
                pass
    except KeyboardInterrupt as interrupt:
        running = ", ".join(task.name for task in waited if task.is_running)
        show_as(interrupt, f"KeyboardInterrupt: {running} still runs. To stop it: %gpu_tasks stop {running}")
        raise


def _show_results(found: Sequence[BackgroundTask]) -> None:
    for task in found:
        if task.result is not None:
            display(task.result)


def _list(found: Sequence[BackgroundTask]) -> None:
    for task in found:
        if isinstance(task, Task) and task.is_running:
            task.look()  # the last figures can be a second old
    show(*(f"{task.name}: {task}" for task in found))
