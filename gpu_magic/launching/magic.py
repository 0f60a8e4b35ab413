"""`%gpu_launch`, `%%gpu_launch` and `%gpu_tasks`: commands on GPUs, and what runs in the background."""

from __future__ import annotations

import glob
import os
import re
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from IPython.core.error import UsageError
from IPython.display import display

from gpu_magic.errors import GpuMagicError, LaunchError, show_as
from gpu_magic.gpus.choice import gpu_notes
from gpu_magic.launching.devices import Free
from gpu_magic.launching.prepare import prepare
from gpu_magic.launching.script import make_script
from gpu_magic.launching.shown import RankFolds, RankLines
from gpu_magic.launching.task import Task
from gpu_magic.process.environment import variables_now
from gpu_magic.process.session import current
from gpu_magic.process.tasks import VERBS, tasks
from gpu_magic.shell.arguments import names_of, read, read_command, read_count, refusal
from gpu_magic.shell.waiting_line import waiting_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import SimpleNamespace

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.launching.output import Output
    from gpu_magic.launching.prepared import Prepared
    from gpu_magic.launching.script import Script
    from gpu_magic.process.tasks import BackgroundTask

__all__ = ["GpuLaunchMagic", "GpuTasksMagic", "show_output", "view_of"]

# Programs that know $NAMES and {…} themselves.
_HAVE_THEIR_OWN = ("sh", "bash", "dash", "zsh", "fish", "awk", "gawk", "mawk", "perl")

_NO_SHELL = "is handed over as it stands: there is no shell here, bash -c '…' starts one."


class GpuLaunchMagic:
    """The magic that launches commands."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._shown: Prepared | None = None  # by the latest --dry-run

    def gpu_launch(self, line: str, cell: str | None = None) -> None:
        """Run a command on the chosen GPUs, in their order, in processes of its own.

        %gpu_launch torchrun train.py --lr 1e-3
                               one process for each GPU that this kernel has: rank 0 on cuda:0, …
        %gpu_launch accelerate launch train.py
                               the same with Accelerate
        %gpu_launch deepspeed train.py --deepspeed_config ds.json
                               the same with DeepSpeed
        %gpu_launch python train.py
                               one process, which has all of them; any other command, too
        %%gpu_launch torchrun  the cell, as a script

        The launcher's own options go behind its name. Before it:

        -n 2, --count 2        the first two of them
        --gpus 2,0             other GPUs, as after %gpus: this kernel's choice stays as it is
        --each                 start the command once for each GPU, which it has alone; GPU_MAGIC_INDEX
                               is 0, 1, … and GPU_MAGIC_COUNT how many there are
        --env NAME=value       a variable for the command; can be given several times
        --cwd FOLDER           where it is run
        --in lr,steps          of a cell: variables of this notebook that it begins with
        --out result           of a cell: variables that rank 0 has at its end, which come back here; with
                               --each a list, with the variable of each process
        --background NAME      return once it runs; %gpu_tasks shows, waits for and ends it
        --keep                 keep the files of its output, and the cell's script
        --only-free            only GPUs that nobody else uses or has claimed, other commands here included
        --min-free 20GB        with --gpus auto: GPUs with so much free memory
        --wait 30m             wait so long until they are free, or have that memory, and start it then;
                               interrupt it at any time
        --force                allow GPUs outside those that the kernel was started with
        --dry-run              say what would be run, as one would type it in a shell

        It can be done at any time, also once CUDA has started here. An interrupt ends the command with all
        that it has started, and so does the end of this kernel.
        """
        options = read_command("%gpu_launch", line)
        script = self._script(options, cell)
        prepared = self._prepare(options, script)
        task = None if options.dry_run else Task(options.background or "launch", prepared, current())
        if task is None:
            self._shown = prepared  # with the files that it names
            print(prepared)
            return
        if options.background:
            tasks.add(task)
        is_chosen = options.gpus is not None or options.count is not None or variables_now().name_gpus
        instead = "--gpus 0,1 before the command takes others"
        about_gpus = gpu_notes(task.devices, instead, is_chosen=is_chosen)
        for note in (*about_gpus, *_notes_on(options, line), *task.notes):
            print(note)
        if options.background:
            print(f"{task.name} runs; %gpu_tasks {task.name} shows what it writes.")
            return
        self._run(script, task, options)

    def _script(self, options: SimpleNamespace, cell: str | None) -> Script | None:
        """Return the cell as a script, with the variables that go to it; None: there is no cell."""
        given, wanted = getattr(options, "in"), options.out
        if cell is None:
            if given or wanted:
                raise LaunchError(
                    "--in and --out go with a cell: %%gpu_launch --in lr torchrun, for example."
                )
            return None
        if not options.command:
            raise LaunchError("Nothing to run the cell with is named: %%gpu_launch torchrun, for example.")
        if wanted and options.background:
            raise LaunchError("--out needs the end of the command, which --background does not wait for.")
        return make_script(self._shell, cell, given or "", wanted or "")

    def _prepare(self, options: SimpleNamespace, script: Script | None) -> Prepared:
        if options.background:
            tasks.check_name(options.background)
        with waiting_line() as show:
            free = Free(options.only_free, options.min_free, options.wait, show)
            return prepare(
                current(),
                options.command,
                options.gpus,
                read_count(options.count),
                each=options.each,
                force=options.force,
                free=free,
                dry_run=options.dry_run,
                variables=dict(pair.split("=", 1) for pair in options.env or []),
                folder=options.cwd,
                script=script,
                options=names_of("%gpu_launch"),
            )

    def _run(self, script: Script | None, task: Task, options: SimpleNamespace) -> None:
        """Show a task to its end, and take back what comes back; nothing else of it stays."""
        try:
            self._follow(task)
        except BaseException as error:
            task.stop()  # an error of ours has ended this, or an interrupt that came before it was followed
            self._take_back(script, task, options)
            if isinstance(error, KeyboardInterrupt):
                show_as(error, "KeyboardInterrupt")
            raise
        else:
            if problem := self._take_back(script, task, options):
                raise UsageError(problem)
        finally:
            if options.keep or any(output.was_cut for output in task.outputs):
                print(f"Its files are kept in {task.files.keep()}.")
            task.files.remove()

    def _take_back(self, script: Script | None, task: Task, options: SimpleNamespace) -> str:
        """Set the variables that come back, also of a command that has failed: they can be hours of work.

        Return why they can't be read, if that is so.
        """
        if script is None or not script.wanted:
            return ""
        try:
            returned = script.returned(task.files.path, len(task.devices) if options.each else None)
        except GpuMagicError as error:
            return str(error)
        self._shell.user_ns.update(returned)
        if missing := [name for name in script.wanted if name not in returned]:
            print(f"{', '.join(missing)} did not come back: the cell has not come to its end.")
        return ""

    def _follow(self, task: Task) -> None:
        """Show what a task writes, until its end; an interrupt ends it."""
        interrupt: KeyboardInterrupt | None = None
        with view_of(task, in_kernel=hasattr(self._shell, "kernel")) as view:
            while True:
                try:
                    for pieces in task.follow(cut=True):
                        view.show(pieces)
                    break
                except KeyboardInterrupt as error:
                    interrupt = error
                    task.interrupt()
        if interrupt:
            raise interrupt
        task.check()


def _notes_on(options: SimpleNamespace, line: str) -> Iterator[str]:
    """Say what of a line is handed over as it stands, though it looks like something else."""
    words = options.command
    if not words or Path(words[0]).name in _HAVE_THEIR_OWN:
        return
    text = " ".join(words[1:])
    if found := re.search(r"(?<!\$)\{[A-Za-z_]\w*\}", text):
        yield (
            f"{found[0]} is handed over as it stands: IPython replaces {{names}} in a line only where it "
            "knows all of them, and $NAMES as well."
        )
    elif found := re.search(r"\$\{?[A-Za-z_]\w*", text):
        yield f"{found[0]} {_NO_SHELL}"
    # In quotes it would stay one, and is no word of the line.
    elif patterns := [word for word in line.split() if word in words[1:] and _has_files(word, options.cwd)]:
        yield f"{patterns[0]} {_NO_SHELL}"


def _has_files(word: str, folder: str | None) -> bool:
    """Return whether a shell would put files in the place of a word."""
    if not glob.has_magic(word):
        return False
    # pathlib raises for `~nobody`, and takes no absolute pattern.
    where = os.path.join(os.path.expanduser(folder or "."), word)  # noqa: PTH111, PTH118
    return any(glob.iglob(where))  # noqa: PTH207


_AGAIN = 0.5  # seconds between two looks at whether a task has ended


class GpuTasksMagic:
    """The magic that shows tasks, waits for them and stops them."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._in_kernel = hasattr(shell, "kernel")

    def gpu_tasks(self, line: str) -> None:
        """Show what %gpu_launch --background and %%on_gpu --background have started.

        %gpu_tasks              list all
        %gpu_tasks NAME         show what a command has written, or the value of a cell
        %gpu_tasks wait NAME    wait for its end, show the same, and fail if it has failed; without a name,
                                wait for the end of all. An interrupt ends only the waiting
        %gpu_tasks stop NAME    end a command with all that it has started; interrupt a cell

        Separate several names by commas: %gpu_tasks wait train, eval
        """
        __tracebackhide__ = True
        verb, names = _read(line)
        found = [tasks.find(name) for name in names] or list(tasks)
        if not found:
            print(
                "Nothing was started in the background; %gpu_launch --background NAME starts a command, and "
                "%%on_gpu 0 --background NAME a cell."
            )
        elif verb == "wait":
            waited = found if names else [task for task in found if task.is_running]
            _join(waited)
            if names:
                self._show_outputs(found)
            _tell(found, waited)
            if names and self._in_kernel:  # in a terminal, a cell in the background has shown it above
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
            if isinstance(task, Task):
                show_output(task, in_kernel=self._in_kernel)


def _read(line: str) -> tuple[str, list[str]]:
    """Return the verb, empty for none, and the names of tasks."""
    typed = line.replace(",", " ").split()
    for verb in VERBS:
        if f"--{verb}" in typed:  # its former spelling
            names = ", ".join(word for word in typed if word != f"--{verb}")
            raise refusal(f"%gpu_tasks {line.strip()} is {f'%gpu_tasks {verb} {names}'.strip()} now.")
    words = read("%gpu_tasks", line).request.replace(",", " ").split()
    verb = words.pop(0) if words and words[0] in VERBS else ""
    if found := [word for word in words if word in VERBS]:  # no task has such a name
        names = ", ".join(word for word in words if word not in VERBS)
        raise refusal(f"%gpu_tasks {line.strip()} is not understood; try %gpu_tasks {found[0]} {names}")
    if verb == "stop" and not words:
        raise refusal("%gpu_tasks stop needs a task's name. %gpu_tasks lists them.")
    return verb, words


def _join(waited: Sequence[BackgroundTask]) -> None:
    """Wait for the end of all."""
    __tracebackhide__ = True
    try:
        for task in waited:
            while not task.join(_AGAIN):  # Python can miss an interrupt that comes as it begins to wait
                pass
    except KeyboardInterrupt as interrupt:
        running = ", ".join(task.name for task in waited if task.is_running)
        show_as(interrupt, f"KeyboardInterrupt: still running: {running}. To stop: %gpu_tasks stop {running}")
        raise


def _tell(found: Sequence[BackgroundTask], waited: Sequence[BackgroundTask]) -> None:
    """Say how each has ended; of the first that was waited for and has failed, an error says it.

    Where none is named, what had failed before is no error again.
    """
    __tracebackhide__ = True
    failed = [task for task in waited if task.has_failed]
    _list([task for task in found if task not in failed[:1]])
    for task in failed:
        task.check()  # the first of them is raised


def _show_results(found: Sequence[BackgroundTask]) -> None:
    for task in found:
        if task.result is not None:
            display(task.result)


def _list(found: Sequence[BackgroundTask]) -> None:
    for task in found:
        if isinstance(task, Task) and task.is_running:
            task.look()  # the watch's last look can be a second old
        print(f"{task.name}: {task}")


_AGAIN = 1.0  # seconds between two states of the line
_MOST_SHOWN = 1 << 20  # bytes of what a task has written so far


class View(Protocol):
    """Shows what ranks write."""

    def show(self, pieces: Iterable[tuple[Output, str]]) -> None:
        """Show what they have written since; called many times a second."""


def view_of(task: Task, *, in_kernel: bool) -> AbstractContextManager[View]:
    """Return what shows a task while it runs; at the end of the `with` block, its outcome is shown."""
    if not in_kernel:
        return _terminal(task)
    return _tabs(task) if task.has_ranks else _stream(task)


def show_output(task: Task, *, in_kernel: bool) -> None:
    """Show what a task has written so far."""
    if in_kernel and task.has_ranks:
        display(RankFolds(task))
        return
    lines = RankLines(sys.stdout, has_ranks=task.has_ranks)
    lines.show((output, output.tail(_MOST_SHOWN // len(task.outputs))) for output in task.outputs)
    lines.end()


@contextmanager
def _terminal(task: Task) -> Iterator[View]:
    """Write lines behind the numbers of their ranks, and below them the outcome, unless an error says it."""
    lines = RankLines(sys.stdout, has_ranks=task.has_ranks)
    yield lines
    lines.end()
    if not task.has_failed:
        print(task)


@contextmanager
def _stream(task: Task) -> Iterator[View]:
    """In a notebook: a line that changes, and below it what is written."""
    line = _Line(task)
    try:
        yield line
    finally:
        line.update()


class _Line:
    """The output of a command without ranks, below a line that is brought up to date."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._due = time.monotonic() + _AGAIN
        self._handle = display(_text(task), raw=True, display_id=True)
        self._lines = RankLines(sys.stdout, has_ranks=False)

    def show(self, pieces: Iterable[tuple[Output, str]]) -> None:
        self._lines.show(pieces)
        if time.monotonic() >= self._due:
            self.update()
            self._due = time.monotonic() + _AGAIN

    def update(self) -> None:
        self._handle.update(_text(self._task), raw=True)


@contextmanager
def _tabs(task: Task) -> Iterator[View]:
    """In a notebook: a tab for each rank, and at the end folds, which stay in the notebook."""
    from gpu_magic.launching.rank_tabs import RankTabs  # loads ipywidgets

    tabs = RankTabs(task)
    handle = display(tabs.bundle(), raw=True, display_id=True)
    try:
        yield tabs
    finally:
        tabs.close()
        handle.update(_text(task), raw=True)
        display(RankFolds(task))


def _text(task: Task) -> dict[str, str]:
    return {"text/plain": str(task)}
