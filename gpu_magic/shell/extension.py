"""The table of the magics, and what `%load_ext gpu_magic` adds to a shell.

A magic parses its line, calls the API and shows the result. `%load_ext` does not import the magics, their
help and their completion. They are imported on first use.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections import ChainMap
from functools import cached_property
from importlib import import_module
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from IPython.core import completer as ipython_completer
from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from traitlets import Any as AnyValue
from traitlets import Bool, Enum, TraitError, observe, validate
from traitlets.config import Configurable

from gpu_magic.interrupts import defer_interrupts, in_background, postponed_interrupts
from gpu_magic.process.environment import has_saved_choices, note_variables
from gpu_magic.process.watch import cuda_watch
from gpu_magic.shell.cells import CellBlocks, blocks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.shell.completion import Offers
    from gpu_magic.shell.page_comm import PageComm
    from gpu_magic.shell.parking import IdleParking

__all__ = ["MAGICS", "GpuMagics", "help_of", "load", "magics_of", "unload"]

# For each magic: its kinds, its module in the package, and the class that has a method of its name.
MAGICS = {
    "gpus": (("line",), "gpus.magic", "GpusMagic"),
    "on_gpu": (("cell",), "on_gpu.magic", "OnGpuMagic"),
    "where": (("line",), "objects.magic", "ObjectsMagics"),
    "to_gpu": (("line",), "move.magic", "MoveMagics"),
    "to_cpu": (("line",), "move.magic", "MoveMagics"),
    "gpu_free": (("line",), "objects.magic", "ObjectsMagics"),
    "gpu_park": (("line",), "park.magic", "ParkMagics"),
    "gpu_unpark": (("line",), "park.magic", "ParkMagics"),
    "gpu_fit": (("line",), "fit.magic", "GpuFitMagic"),
    "gpu_ps": (("line",), "processes.magic", "GpuPsMagic"),
    "gpu_panel": (("line",), "panel.magic", "GpuPanelMagic"),
    "gpu_doctor": (("line",), "doctor.magic", "GpuDoctorMagic"),
    "gpu_launch": (("line", "cell"), "launch.magic", "GpuLaunchMagic"),
    "gpu_tasks": (("line",), "launch.magic", "GpuTasksMagic"),
    "gpu_cluster": (("line",), "cluster.magic", "GpuClusterMagic"),
    "gpu_time": (("line", "cell"), "measure.magic", "GpuTimeMagic"),
}
_KINDS = [(kind, name) for name, (kinds, *_) in MAGICS.items() for kind in kinds]
# IPython leaves the lines of these magics as typed. They replace `{n}` themselves, except in code.
_KEPT = ("gpus", "where", "to_gpu", "to_cpu", "gpu_park", "gpu_unpark", "gpu_fit", "gpu_time")
# They replace `{n}` also by local variables of the code that runs them.
_EXPAND = ("gpus", "on_gpu")
# Tab completes the arguments of all magics that have some.
_COMPLETED = {f"{'%%' if kind == 'cell' else '%'}{name}" for kind, name in _KINDS} - {"%gpu_panel"}
# The magics that run the user's code.
_RUN_CODE = ("on_gpu", "gpu_time")
# The name of the comm by which a Jupyter server asks a kernel to park its variables.
_PARK_COMM = "gpu_magic.park"


def help_of(name: str, magic: Callable[..., object]) -> str:
    """Return the help of a magic: its docstring, with its options in the place of `{options}`."""
    from gpu_magic.option_table import OPTIONS, help_lines

    command = next(one for one in (f"%{name}", f"%%{name}") if one in OPTIONS)
    return inspect.cleandoc(magic.__doc__ or "").replace("{options}", help_lines(command))


def load(shell: InteractiveShell) -> None:
    """Add the magics, their completion, and the watch.

    Raises
    ------
    traitlets.TraitError
        A value in IPython's configuration is invalid. Nothing was added.

    """
    unload(shell)
    with _interrupts_in_one_line():
        note_variables(getattr(shell.history_manager, "input_hist_raw", ()))
        with defer_interrupts():
            try:
                magics = GpuMagics(parent=shell)
            except TraitError as error:
                from gpu_magic.errors import show_as

                what = f"TraitError: {error} It is in IPython's configuration; gpu_magic is not loaded."
                show_as(error, what)
                raise
            magics.add()
            cuda_watch.begin(shell)
        if has_saved_choices():
            _resume(shell)
        if hasattr(shell, "kernel"):
            _page_comm(shell).open()
            _page_comm(shell).manager.register_target(_PARK_COMM, magics.asked_to_park)
        if panels := sys.modules.get("gpu_magic.panel.state"):
            panels.panel_state().resume(shell)


def unload(shell: InteractiveShell) -> None:
    """Remove everything that `load` added. If this undoes a choice, print a message."""
    # After an interrupted unload, IPython counts the extension as loaded and never loads it again. So an
    # interrupt that arrives meanwhile is dropped, and one right after it finds the extension not loaded.
    with contextlib.suppress(KeyboardInterrupt), defer_interrupts():
        _remove(shell)
        if shell.extension_manager is not None:
            shell.extension_manager.loaded.discard("gpu_magic")


def _remove(shell: InteractiveShell) -> None:
    magics = magics_of(shell)
    if magics is None:
        return
    from gpu_magic.process.mask import HIP, MASK
    from gpu_magic.process.session import current
    from gpu_magic.process.show import show

    magics.remove()
    cuda_watch.end()
    if hasattr(shell, "kernel"):
        _page_comm(shell).close()
        _page_comm(shell).manager.targets.pop(_PARK_COMM, None)  # absent after an interrupted load
    if panels := sys.modules.get("gpu_magic.panel.state"):
        panels.panel_state().pause()
    changed = current().unload()
    for name in [name for name in (MASK, HIP) if name in changed][:1]:
        value = os.environ.get(name)
        now = "is unset again, so all GPUs are visible" if value is None else f"is {value!r} again"
        show(f"Your choice is undone: {name} {now}. Once gpu_magic is loaded, %gpus chooses again.")


def magics_of(shell: InteractiveShell) -> GpuMagics | None:
    """Return the magics of a shell; None if they are not loaded."""
    configurables: list[Any] = shell.configurables
    return next((magics for magics in configurables if isinstance(magics, GpuMagics)), None)


class Switch(Bool):  # type: ignore[type-arg]
    """A Bool that accepts every value that turns a setting off."""

    def validate(self, obj: Any, value: Any) -> Any:
        if not isinstance(value, bool):
            from gpu_magic.text import is_off

            value = False if is_off(value) else value
        return super().validate(obj, value)


class GpuMagics(Configurable):
    """The magics of gpu_magic in one shell; `%config GpuMagics` shows what can be set."""

    on_frozen = Enum(
        ["warn", "error"],
        default_value="warn",
        help='If a choice comes too late: "warn", or "error", which stops Run All.',
    ).tag(config=True)

    claims = Switch(
        default_value=True,
        help="Claim the chosen GPUs, so that other users on this machine see the claims.",
    ).tag(config=True)

    by = Enum(
        [None, "index", "uuid"],
        default_value=None,
        help="Write CUDA_VISIBLE_DEVICES as numbers or UUIDs; None: as when the kernel started.",
    ).tag(config=True)

    park_after = AnyValue(
        default_value=None,
        help="Park the variables of an idle kernel after this time without a cell and without work on a GPU: "
        '"30m", or seconds. None: never.',
    ).tag(config=True)

    parent: Any  # the shell
    _parking: IdleParking | None = None

    @observe("by")
    def _set_by(self, change: dict[str, Any]) -> None:
        from gpu_magic.process.session import current

        current().by = change["new"]

    @observe("claims")
    def _set_claims(self, change: dict[str, Any]) -> None:
        from gpu_magic.process.session import current

        current().claims.are_wanted = change["new"]
        if not change["new"]:
            current().claims.release()

    @validate("park_after")
    def _check_park_after(self, proposal: dict[str, Any]) -> object:
        from gpu_magic.errors import ChoiceError, show_as
        from gpu_magic.gpus.options import read_seconds
        from gpu_magic.text import is_off

        if is_off(proposal["value"]):
            return None
        try:
            read_seconds(proposal["value"])
        except ChoiceError as problem:
            error = TraitError(f"park_after: {problem}. To turn it off: None")
            show_as(error, f"TraitError: {error}")
            raise error from None
        return proposal["value"]

    @observe("park_after")
    def _set_park_after(self, change: dict[str, Any]) -> None:
        if change["new"] and hasattr(self.parent, "kernel"):  # in a terminal, nothing runs between cells
            self.parent.events.register("post_run_cell", self._begin_parking)
        elif self._parking is not None:
            self._parking.set_after(None)

    def _begin_parking(self, result: object) -> None:
        """Begin to look whether the kernel is idle, as soon as there is something to park."""
        from gpu_magic.frameworks import imported

        if imported() and self.park_after:
            from gpu_magic.gpus.options import read_seconds

            self.parent.events.unregister("post_run_cell", self._begin_parking)
            self._idle_parking().set_after(read_seconds(self.park_after))
            self._idle_parking().after_cell(result)

    def asked_to_park(self, comm: Any, message: object) -> None:  # noqa: ARG002 - a comm's manager passes it
        """Park unless a cell runs, and answer the Jupyter server, which has opened the comm."""
        self._idle_parking().ask(comm)

    def _idle_parking(self) -> IdleParking:
        if self._parking is None:
            from gpu_magic.shell.parking import IdleParking  # rarely needed

            self._parking = IdleParking(self.parent)
        return self._parking

    def add(self) -> None:
        """Add the magics to the shell."""
        shell, table = self.parent, self.parent.magics_manager.magics
        # The user's own magics of these names, which `remove` restores.
        self._replaced = {(kind, name): table[kind].get(name) for kind, name in _KINDS}
        for name, (kinds, module, class_) in MAGICS.items():
            for kind in kinds:
                table[kind][name] = _LazyMagic(shell, name, module, class_)
        no_var_expand(table["cell"]["on_gpu"])
        for name in _KEPT:
            no_var_expand(table["line"][name])
        matchers, matcher = self._completion = _completion_hook(shell, self._complete)
        matchers.append(matcher)
        CellBlocks(shell).add()
        shell.events.register("post_run_cell", self._explain_failure)
        shell.events.register("post_run_cell", self._explain_without_effect)
        shell.configurables.append(self)

    def remove(self) -> None:
        """Remove the magics from the shell. IPython has no public function for this."""
        shell, table = self.parent, self.parent.magics_manager.magics
        for kind, name in _KINDS:
            table[kind].pop(name, None)
            if self._replaced[kind, name] is not None:
                table[kind][name] = self._replaced[kind, name]
        matchers, matcher = self._completion
        if matcher in matchers:
            matchers.remove(matcher)
        blocks_of(shell).remove()
        shell.configurables.remove(self)
        if measured := sys.modules.get("gpu_magic.measure.magic"):
            measured.stop(shell)
        with contextlib.suppress(ValueError):  # it is not there
            shell.events.unregister("post_run_cell", self._begin_parking)
        if self._parking is not None:
            self._parking.close()
        if parking := sys.modules.get("gpu_magic.process.parked"):
            parking.stop_telling(shell)
        for explain in (self._explain_failure, self._explain_without_effect):
            if explain in shell.events.callbacks["post_run_cell"]:
                shell.events.unregister("post_run_cell", explain)

    def _explain_failure(self, result: Any) -> None:
        """Print what holds the memory if a cell failed because GPU memory ran out."""
        # ipykernel has no result of an interrupted cell that awaits.
        if isinstance(getattr(result, "error_in_exec", None), Exception):
            with postponed_interrupts():
                from gpu_magic.frameworks import imported

                if imported():
                    from gpu_magic.objects.magic import explain_failure

                    explain_failure(self.parent, result.error_in_exec)

    def _explain_without_effect(self, result: Any) -> None:
        """Print what a cell that names CUDA_VISIBLE_DEVICES has not done."""
        cell = getattr(getattr(result, "info", None), "raw_cell", None) or ""
        if "DEV" in (upper := cell.upper()) and ("VIS" in upper or "ORDER" in upper):
            with postponed_interrupts():
                from gpu_magic.process.show import show
                from gpu_magic.shell.no_effect import without_effect

                show(*without_effect(cell))

    def _complete(self, before: str) -> Offers | None:
        """Complete the line of one of these magics. Leave other lines to IPython's own matchers."""
        magic, *words = before.lstrip().split(" ")
        if not words or magic not in _COMPLETED:
            return None
        with (
            in_background(),
            contextlib.suppress(ImportError),
        ):  # of NVML's binding: the magic reports it when it runs
            from gpu_magic.shell.completion import complete

            return complete(self.parent, magic, words)
        return None


class _LazyMagic:
    """A magic whose module is imported when the magic is called or explained (`%to_gpu?`)."""

    def __init__(self, shell: InteractiveShell, name: str, module: str, class_: str) -> None:
        self._shell, self._module, self._class = shell, module, class_
        self.__name__ = name

    def __call__(self, *line_and_cell: str) -> object:
        __tracebackhide__ = True
        try:
            with _interrupts_in_one_line():
                if line_and_cell[0].strip() in ("--help", "-h"):
                    print(self.__doc__)
                    return None
                if self.__name__ in _EXPAND:  # with the local variables of the code that runs the magic
                    names = ChainMap(sys._getframe(2).f_locals, self._shell.user_ns)  # noqa: SLF001
                    return self.__wrapped__(*line_and_cell, names=names)
                return self.__wrapped__(*line_and_cell)
        except Exception as error:
            from gpu_magic.errors import GpuMagicError

            is_users = self.__name__ in _RUN_CODE and "__main__" in _modules(error)
            is_refusal = isinstance(error, GpuMagicError) or type(error) is UsageError
            if not is_refusal or is_users or hasattr(error, "_render_traceback_"):
                raise
            problem = str(error)
        from gpu_magic.shell.wrapping import usage_error

        # Raised outside `except`: the shell keeps the last error with its context and all their frames.
        raise usage_error(self._shell, problem)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override] # `__doc__` of a class is a str
        try:
            return help_of(self.__name__, self.__wrapped__)
        except ImportError as problem:  # of NVML's binding
            return str(problem)

    @cached_property
    def __wrapped__(self) -> Callable[..., object]:
        """The magic itself. `%to_gpu??` shows its source."""
        class_ = getattr(import_module(f"gpu_magic.{self._module}"), self._class)
        magic: Callable[..., object] = getattr(class_(self._shell), self.__name__)
        return magic


@contextlib.contextmanager
def _interrupts_in_one_line() -> Iterator[None]:
    """Let IPython show an interrupt as one line, unless the user's code is among its frames."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if "__main__" not in _modules(interrupt) and not hasattr(interrupt, "_render_traceback_"):
            from gpu_magic.errors import show_as

            show_as(interrupt, "KeyboardInterrupt")
        raise


def _modules(error: BaseException) -> set[str | None]:
    """Return the modules of an error's frames; a cell's is `__main__`."""
    return {frame.f_globals.get("__name__") for frame, _ in walk_tb(error.__traceback__)}


def _page_comm(shell: Any) -> PageComm:
    from gpu_magic.shell.page_comm import page_comm

    state = "gpu_magic.panel.state"
    return page_comm(shell.kernel, lambda send: import_module(state).PageViewer(send))


def _resume(shell: InteractiveShell) -> None:
    """Apply the choice that this kernel saved before a restart, and print the result."""
    from gpu_magic.restart.saved import remove_expired, saved_choice_file

    file = saved_choice_file()
    if file and os.path.lexists(file):
        from gpu_magic.gpus.apply import resume

        print_in_first_cell(shell, resume(file))
    remove_expired()


def print_in_first_cell(shell: InteractiveShell, text: str) -> None:
    """Print a text in the running cell, or if no cell has run, in the user's first cell."""

    def say(info: Any = None) -> None:
        if getattr(info, "store_history", True):  # editors run hidden cells
            from gpu_magic.process.show import show

            shell.events.unregister("pre_run_cell", say)
            show(text)

    shell.events.register("pre_run_cell", say)
    with contextlib.suppress(LookupError):
        if getattr(shell, "parent_header", True):  # a cell is running; a configuration runs before any cell
            say()


def _completion_hook(
    shell: Any, complete: Callable[[str], Offers | None]
) -> tuple[list[Any], Callable[[Any], Any]]:
    """Return the matcher that completes lines in a shell, and the list that it belongs in.

    Parameters
    ----------
    shell
        The shell, which is not changed.
    complete
        Called with a line up to the cursor. Returns the offers that replace IPython's own completions; None
        to keep IPython's own.

    Returns
    -------
    tuple[list, Callable]
        A list of the shell's completer, and the matcher to add to that list.

    """
    completer = shell.Completer
    if hasattr(ipython_completer, "CompletionContext"):
        return completer.custom_matchers, _matcher_by_context(complete)
    return completer.magic_arg_matchers, _matcher_by_line(completer, complete)


def _matcher_by_context(
    complete: Callable[[str], Offers | None],
) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """Return a matcher for IPython 8.6 and newer."""

    def match(context: CompletionContext) -> SimpleMatcherResult:
        offers = complete(context.text_until_cursor)
        if offers is None:
            return {"completions": []}
        completions = [ipython_completer.SimpleCompletion(text, type=offers.kind) for text in offers.texts]
        return {
            "completions": completions,
            "matched_fragment": offers.fragment,
            "ordered": True,
            "suppress": True,
        }

    match.matcher_api_version = 2  # type: ignore[attr-defined] # as IPython's @context_matcher() sets it
    return match


def _matcher_by_line(completer: Any, complete: Callable[[str], Offers | None]) -> Callable[[str], list[str]]:
    """Return a matcher for IPython before 8.6, which asks no other matcher if this one has offers."""

    def match(line: str) -> list[str]:
        before = completer.text_until_cursor
        offers = complete(before)
        if offers is None:
            return []
        # IPython replaces only the last word, as its own splitter finds it: of `auto:2`, the 2.
        word = completer.splitter.split_line(line, len(before))
        kept = max(0, len(offers.fragment) - len(word))
        return [text[kept:] for text in offers.texts]

    return match
