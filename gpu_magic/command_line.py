"""`gpu-magic` in a shell: shows the GPUs, and launches commands on the GPUs you choose.

Each action imports its own modules, so the table takes a third less time.
"""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
import time
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import gpu_magic
from gpu_magic.devices.model import IDLE_FROM, record_of
from gpu_magic.errors import ChoiceError, CommandFailed, GpuMagicError, LaunchError, NotFreeError
from gpu_magic.gpus.table import problem_text
from gpu_magic.option_table import OPTIONS, help_lines
from gpu_magic.shell.arguments import names_of, read_action, read_words, refusal
from gpu_magic.text import nearest_option, text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import SimpleNamespace

    from gpu_magic.gpus.wait import Wait
    from gpu_magic.launch.task import Task

__all__ = ["ACTIONS", "EXAMPLES", "main"]

# The actions, with what follows their options, and what they do.
ACTIONS = {
    "": ("", "show the GPUs and who uses them; exit status 1 if no GPU can be read"),
    "launch": (" -- COMMAND", "run a command on GPUs"),
    "ps": ("", "list the processes of all users that hold GPU memory idle"),
    "doctor": ("", "show what is wrong with the GPU set-up; exit status 1 if something is"),
    "kernel install": ("", "add a Jupyter kernel that starts with GPUs"),
    "kernel list": ("", "list the added kernels, and which of them cannot start"),
    "kernel remove": (" NAME", "remove a kernel"),
}
_MEANT = {"kernel uninstall": "kernel remove"}  # which is spelled more like the opposite
EXAMPLES = {
    "gpu-magic": "show the GPUs and who uses them",
    "gpu-magic launch --gpus auto:2 -- torchrun train.py": "one process per GPU, on two free GPUs",
    "gpu-magic launch --gpus 2,0 -- python train.py": "one process, whose cuda:0 is GPU 2",
    "gpu-magic launch --gpus auto --wait 2h -- ./train.sh": "wait for a free GPU, then start",
    "gpu-magic ps --idle 4h": "who holds GPU memory, and has not used it for four hours",
    "gpu-magic doctor": "show what is wrong with the GPU set-up",
    "gpu-magic kernel install": "add a Jupyter kernel that starts with a free GPU",
}
# Seconds until the next try if the GPUs are not free.
_RETRY_AFTER = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit status: 2 after an error of gpu_magic, else the action's."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _accept_any_text()
    # `gpu-magic --json doctor` is `gpu-magic doctor --json`.
    first = list(takewhile(OPTIONS["gpu-magic"].__contains__, words))
    words = words[len(first) :]
    action = next((one for one in ACTIONS if one and words[: len(one.split())] == one.split()), "")
    words = words[len(action.split()) :]
    try:
        # The command of a launch has a --help of its own.
        if not {"-h", "--help"}.isdisjoint(words[:1] if action == "launch" else words):
            _print_help(action)
            return 0
        return _RUN[action]([*first, *words])
    except GpuMagicError as error:
        print("gpu-magic:", _in_a_shell(error), file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before `_start`, which passes interrupts to the command
        if action == "launch":
            print("gpu-magic: Interrupted. Nothing was started.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader, such as `head`, has ended, so Python must not write at exit
        _discard_output()
        return 128 + signal.SIGPIPE
    except OSError as error:  # such as a full disk
        _discard_output()
        print(f"gpu-magic: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _accept_any_text() -> None:
    """Print `?` for characters that the terminal's encoding lacks. Names can contain any characters."""
    for name in "stdout", "stderr":
        if getattr(sys, name) is None:  # closed by the shell, as by `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _read(action: str, words: Sequence[str], names: int = 0) -> SimpleNamespace:
    """Read the options of an action, and at most so many names."""
    command = f"gpu-magic {action}".strip()
    options = read_action(command, words)
    if extra := options.names[names:]:
        raise refusal(f"{command} takes no {extra[0]}. {command} --help explains it.")
    return options


def _json(value: object, indent: int | None = None) -> str:
    import json  # only scripts ask for it

    return json.dumps(value, indent=indent)


def _print_help(action: str) -> None:
    """Print what an action, or gpu-magic itself, does, its options, and examples."""
    command = f"gpu-magic {action}".strip()
    after, about = ACTIONS[action]
    print(f"usage: {command}{' [options]' if OPTIONS[command] else ''}{after}\n\n{about}\n")
    print(help_lines(command))
    if not action:
        actions = [(f"gpu-magic {name}", does) for name, (_, does) in ACTIONS.items() if name]
        print("\nactions (each has --help):", *(f"  {name:26}{does}" for name, does in actions), sep="\n")
    if action in ("", "launch"):
        print("\nexamples:", *(f"  {typed:54}{does}" for typed, does in EXAMPLES.items()), sep="\n")


def _show(words: Sequence[str]) -> int:
    """Print the GPUs."""
    first = words[0].partition("=")[0] if words else ""
    if first in OPTIONS["gpu-magic launch"].keys() - OPTIONS["gpu-magic"]:
        raise refusal(f"{first} goes behind launch. Try {_launch_line(words)}")
    names = words if not first.startswith("-") else _read("", words, names=len(words)).names
    if names:
        typed = " ".join(names[: 1 + (names[0] == "kernel")])
        near = _MEANT.get(typed) or nearest_option(typed, ACTIONS)
        hint = f"Did you mean gpu-magic {near}?" if near else "gpu-magic --help lists the actions."
        if typed == "kernel":
            raise refusal("gpu-magic kernel needs an action: install, list or remove")
        raise refusal(f"There is no gpu-magic {typed}. {hint}")
    options = _read("", words)
    if options.version:
        print(f"gpu-magic {gpu_magic.__version__}")
        return 0
    found = gpu_magic.gpus()
    problem = problem_text(found)
    if options.json and (problem or found.limitation):
        print(f"gpu-magic: {problem or found.limitation}", file=sys.stderr)
    print(_json(found.to_dict()["gpus"], indent=2) if options.json else found, flush=True)
    return 1 if problem and not found.devices else 0


def _launch_line(words: Sequence[str]) -> str:
    """Return the line that launches a command whose options were typed before the action."""
    words = list(words)
    place = words.index("launch") if "launch" in words else len(words)
    if "--" not in words[:place]:
        del words[place : place + 1]
    has_command = read_words("gpu-magic launch", words).command
    return shlex.join(
        ["gpu-magic", "launch", *words, *([] if has_command else ["--", "torchrun", "train.py"])]
    )


def _list_idle(words: Sequence[str]) -> int:
    """Print the processes that hold GPU memory idle. Return the exit status: 1 if none can be read."""
    from gpu_magic.gpus.options import read_seconds
    from gpu_magic.process.session import current
    from gpu_magic.processes.idle import find_idle

    options = _read("ps", words)
    found = find_idle(current(), read_seconds(options.idle) if options.idle else IDLE_FROM)
    if found.problem:
        print(f"gpu-magic: {found.problem}", file=sys.stderr)
        return 1
    print(_json(found.to_dict(), indent=2) if options.json else found, flush=True)
    return 0


def _doctor(words: Sequence[str]) -> int:
    """Print the diagnosis. Return the exit status: 1 if something is wrong."""
    from gpu_magic.doctor.diagnosis import diagnose

    options = _read("doctor", words)
    if options.report and options.json:
        raise refusal("--report does not go with --json. Use one of the two.")
    found = diagnose("shell")
    shown = found.report() if options.report else found
    print(_json(found.to_dict(), indent=2) if options.json else shown, flush=True)
    return 1 if found.wrong else 0


def _install_kernel(words: Sequence[str]) -> int:
    """Add a kernel that starts with GPUs to Jupyter."""
    from gpu_magic.gpus.options import Options
    from gpu_magic.kernelspec.kernelspecs import install, never_here

    options = _read("kernel install", words)
    if options.user + options.sys_prefix + bool(options.prefix) > 1:
        raise refusal("--user, --sys-prefix and --prefix do not go together. Use one of them.")
    typed = f"{options.gpus or 'auto'}{Options.of(vars(options))}"
    prefix = None if options.user else options.prefix or sys.prefix
    new = install(typed, options.name or "", options.display_name or "", prefix, is_plain=options.plain)
    print(f"Jupyter now offers {new.display_name!r}: the kernel {new.name} in {new.folder}")
    if error := never_here(new.gpus):
        print(f"{new.name} starts without a GPU on this machine: {_in_a_shell(error)}")
    return 0


def _list_kernels(words: Sequence[str]) -> int:
    """List the added kernels, and which of them cannot start."""
    from gpu_magic.kernelspec.kernelspecs import installed, never_here

    options = _read("kernel list", words)
    found = installed(options.prefix or "")
    if not found:
        print("None is installed. To add one that starts with a free GPU: gpu-magic kernel install")
        return 0
    rows = [(one.name, one.display_name, one.gpus, one.folder) for one in found]
    print(*text_table(("Name", "Shown as", "GPUs", "Folder"), rows), sep="\n")
    for one in found:
        if one.problem:
            at = f" --prefix {shlex.quote(options.prefix)}" if options.prefix else ""
            end = f"gpu-magic kernel remove {one.name}{at}"
            print(f"{one.name} can't start: {one.problem}. To remove it: {end}")
        elif error := never_here(one.gpus):
            print(f"{one.name} starts without a GPU on this machine: {_in_a_shell(error)}")
    return 0


def _remove_kernel(words: Sequence[str]) -> int:
    """Remove an added kernel."""
    from gpu_magic.kernelspec.kernelspecs import remove

    options = _read("kernel remove", words, names=1)
    if not options.names:
        raise refusal("gpu-magic kernel remove needs a name. gpu-magic kernel list shows the names.")
    print(f"Removed {remove(options.names[0], options.prefix or '')}")
    return 0


def _launch(words: Sequence[str]) -> int:
    """Run a command to its end, and pass signals on to it."""
    from gpu_magic.gpus.choice import gpu_notes
    from gpu_magic.launch.launch import prepare
    from gpu_magic.launch.output import RankLines
    from gpu_magic.process.environment import variables_now

    is_json = "--" in words and "--json" in words[: words.index("--")]
    try:
        options = read_words("gpu-magic launch", words)
        is_json = options.json
        task = prepare(options, names=names_of("gpu-magic launch"), on_wait=_waiting_lines())
    except GpuMagicError as error:
        if isinstance(error, LaunchError):
            ends = [] if options.given[-1:] == ["--"] else ["--"]
            error = LaunchError(error.behind(["gpu-magic", "launch", *options.given, *ends]))
        if is_json:
            print(_json(_refusal(error)), flush=True)
        raise error from None
    if is_json:
        print(_json(_picked(task)), flush=True)
    if options.dry_run:
        print(task.shell_lines)
        return 0
    is_chosen = options.gpus is not None or options.count is not None or variables_now().name_gpus
    about_gpus = gpu_notes(task.devices, "To choose GPUs, add --gpus", is_chosen=is_chosen)
    for note in (*task.notes, *about_gpus):
        print(note, file=sys.stderr)  # before the output of a command that writes to the same place
    _start(task)
    lines = RankLines(sys.stdout, has_ranks=len(task.outputs) > 1)
    for pieces in task.follow(cut=False):
        lines.show(pieces)
    lines.end()
    try:
        task.check()
    except CommandFailed as failure:
        # The traceback of a failed rank can be anywhere in the mixed output of the ranks.
        if task.has_ranks or task.causes or task.failure:
            print(f"gpu-magic: {failure}", file=sys.stderr)
    code = task.code or 0
    return code if code >= 0 else 128 - code  # as shells report a signal


def _picked(task: Task) -> dict[str, Any]:
    """Return the record that `--json` prints before a command starts."""
    from gpu_magic.gpus.auto import held_by

    records = {device: record_of(device, task.simulated) for device in task.devices}
    names = "index", "gpu", "uuid", "name", "simulated"
    return {
        "picked": [{name: one[name] for name in names} for one in records.values()],
        "variables": task.gpu_variables,
        "holders": [one for device, one in records.items() if held_by(device)],
    }


def _refusal(error: GpuMagicError) -> dict[str, Any]:
    """Return the record that `--json` prints if nothing starts. `retry_after` is null if no retry helps."""
    from gpu_magic.gpus.auto import held_by

    is_later = isinstance(error, NotFreeError)
    there = gpu_magic.gpus() if is_later else None
    holders = [record_of(one, there.simulated) for one in there.devices if held_by(one)] if there else []
    return {
        "picked": None,
        "error": _in_a_shell(error),
        "holders": holders,
        "retry_after": _RETRY_AFTER if is_later else None,
    }


def _in_a_shell(error: GpuMagicError) -> str:
    return error.with_table("gpu-magic", "--gpus ") if isinstance(error, ChoiceError) else str(error)


def _waiting_lines() -> Callable[[Wait[Any, Any]], None]:
    """Return a callback that prints the users of the GPUs first and after changes, at most once a minute."""
    said, next_at = "", 0.0

    def show(wait: Wait[Any, Any]) -> None:
        nonlocal said, next_at
        if wait.holders != said and time.monotonic() >= next_at:
            said, next_at = wait.holders, time.monotonic() + 60.0
            print(
                f"Waiting for {wait.wanted}: {wait.holders}. To stop, press Ctrl+C.",
                file=sys.stderr,
                flush=True,
            )

    return show


def _start(task: Task) -> None:
    """Start a command, and pass signals on to it, also those that arrive during the start."""
    came: list[int] = []

    def pass_on(number: int, _: object) -> None:
        came.append(number)
        task.interrupt() if number == signal.SIGINT else task.end()

    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, pass_on)
    task.start(is_attached=True)
    if came:  # again, for processes that have started since
        pass_on(came[-1], None)


_RUN: dict[str, Callable[[Sequence[str]], int]] = {
    "": _show,
    "launch": _launch,
    "ps": _list_idle,
    "doctor": _doctor,
    "kernel install": _install_kernel,
    "kernel list": _list_kernels,
    "kernel remove": _remove_kernel,
}
