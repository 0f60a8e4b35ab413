"""`gpu-magic` in a shell: shows the GPUs, and launches commands on the GPUs you choose.

Each action imports its own modules, so the table takes a third less time.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

import gpu_magic
from gpu_magic.devices.model import record_of
from gpu_magic.errors import ChoiceError, CommandFailed, GpuMagicError, NotFreeError
from gpu_magic.gpus.table import problem_text
from gpu_magic.text import nearest_option, one_line, text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_magic.gpus.wait import Wait
    from gpu_magic.launch.task import Task

__all__ = ["EXAMPLES", "KERNEL_OPTIONS", "LAUNCH_OPTIONS", "main"]

EXAMPLES = """
examples:
  gpu-magic                                             show the GPUs and who uses them
  gpu-magic launch --gpus auto:2 -- torchrun train.py   one process per GPU, on two free GPUs
  gpu-magic launch --gpus 2,0 -- python train.py        one process, whose cuda:0 is GPU 2
  gpu-magic launch --gpus auto --wait 2h -- ./train.sh  wait for a free GPU, then start
  gpu-magic doctor                                      show what is wrong with the GPU set-up
  gpu-magic kernel install                              add a Jupyter kernel that starts with a free GPU
"""


# The options of `gpu-magic launch`, which precede the command, and their help.
LAUNCH_OPTIONS = {
    "--gpus 2,0": "GPUs, as typed after %gpus: 2,0 or auto:2; by default those of this shell",
    "-n, --count 2": "only the first two of these GPUs",
    "--each": "start the command once per GPU, each with one GPU",
    "--env NAME=value": "a variable for the command; repeat for more",
    "--cwd FOLDER": "the command's working directory",
    "--only-free": "only free, unclaimed GPUs; otherwise start nothing",
    "--min-free 20GB": "with auto: GPUs with at least this much free memory",
    "--wait 30m": "wait at most this long for the GPUs, then start",
    "--force": "allow GPUs outside CUDA_VISIBLE_DEVICES",
    "--dry-run": "print the command, start nothing",
    "--json": "first print a line of JSON: the picked GPUs, or why nothing was started and when to try again",
}
# Seconds until the next try if the GPUs are not free.
_RETRY_AFTER = 60

# The options of `gpu-magic kernel install`.
KERNEL_OPTIONS = {
    "--gpus 2,0": "GPUs, as typed after %gpus: 2,0 or auto:2; by default a free GPU",
    "--min-free 20GB": "with auto: GPUs with at least this much free memory",
    "--model A100": "with auto: GPUs with these words in their names",
    "--name NAME": "the kernel's name, for papermill and nbclient",
    "--display-name TEXT": "the name that Jupyter shows",
    "--plain": "do not load gpu_magic in the kernel",
    "--user": "install for all environments of this user",
    "--sys-prefix": "install in this environment, the default",
    "--prefix FOLDER": "install in the environment of the Jupyter server",
}

_ACTIONS = ("launch", "doctor", "kernel", "install", "list", "remove")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit status: 2 after an error of gpu_magic, else the action's."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _accept_any_text()
    is_launch = words[:1] == ["launch"]
    try:
        if is_launch:
            return _launch(words[1:])
        options = _read(words)
        if options.action == "kernel":
            return _kernel(options)
        return _doctor(options) if options.action == "doctor" else _show(as_json=options.json)
    except GpuMagicError as error:
        print("gpu-magic:", _in_a_shell(error), file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before `_start`, which passes interrupts to the command
        if is_launch:
            print("gpu-magic: Interrupted. Nothing was started.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader, such as `head`, has ended, so Python must not write at exit
        _discard_output()
        return 128 + signal.SIGPIPE
    except OSError as error:  # such as a full disk
        _discard_output()
        print(f"gpu-magic: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


class _Parser(argparse.ArgumentParser):
    """An argument parser with error messages of one line."""

    def error(self, message: str) -> NoReturn:
        typed = re.search("invalid choice: '(.+?)'", message)
        near = nearest_option(typed[1], _ACTIONS) if typed else ""
        hint = f". Did you mean {near}?" if near else f". {self.prog} --help explains the options."
        self.exit(2, f"gpu-magic: {one_line(message)}{hint}\n")


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


def _read(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words. For an unknown option, exit and suggest the nearest option of the action."""
    parser = _Parser(
        "gpu-magic",
        description="Show the GPUs of this machine, and launch commands on them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    as_json = "the GPUs as JSON: bytes, percent, degrees Celsius, watts"
    parser.add_argument("--json", action="store_true", help=as_json)
    parser.add_argument("--version", action="version", version=f"gpu-magic {gpu_magic.__version__}")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("launch", help="run a command on GPUs: gpu-magic launch --help")  # see `_launch`
    doctor = actions.add_parser("doctor", help="show what is wrong with the GPUs: gpu-magic doctor --help")
    form = doctor.add_mutually_exclusive_group()
    form.add_argument("--report", action="store_true", help="text for an issue, without names and paths")
    # Without a default, which would overwrite a --json before "doctor".
    form.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="everything as JSON")
    about_kernels = "Jupyter kernels that start with GPUs: gpu-magic kernel --help"
    kernel = actions.add_parser("kernel", help=about_kernels)
    kernels = kernel.add_subparsers(dest="kernel", metavar="ACTION", required=True)
    add = kernels.add_parser("install", help="add a kernel to Jupyter")
    place = add.add_mutually_exclusive_group()
    for typed, what in KERNEL_OPTIONS.items():
        name, _, value = typed.partition(" ")
        group = place if name in ("--user", "--sys-prefix", "--prefix") else add
        takes: dict[str, Any] = {"metavar": value, "default": ""} if value else {"action": "store_true"}
        group.add_argument(name, help=what.replace("%", "%%"), **takes)
    for name, what in (("list", "list the installed kernels"), ("remove", "remove a kernel")):
        action = kernels.add_parser(name, help=what)
        action.add_argument("--prefix", metavar="FOLDER", default="", help="those installed with --prefix")
    action.add_argument("name")
    first = words[0].partition("=")[0] if words else ""
    if first != "--json" and first in re.findall(r"--?[a-z-]+", " ".join(LAUNCH_OPTIONS)):
        parser.error(f"{first} goes behind launch")
    options, unknown = parser.parse_known_args(words)
    if options.action == "launch":  # not the first word, which `main` handles
        parser.error(f"{words[0]} comes before launch")
    if unknown:
        asked = kernels.choices[options.kernel] if options.action == "kernel" else parser
        asked = doctor if options.action == "doctor" else asked
        typed = unknown[0].partition("=")[0]
        known = {*re.findall(r"--[a-z-]+", asked.format_help())} - {typed}
        near = nearest_option(typed, sorted(known))
        hint = f" (did you mean {near}?)" if near else ""
        asked.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return options


def _doctor(options: argparse.Namespace) -> int:
    """Print the diagnosis. Return the exit status: 1 if something is wrong."""
    from gpu_magic.doctor.diagnosis import diagnose

    found = diagnose("shell")
    shown = found.report() if options.report else found
    print(json.dumps(found.to_dict(), indent=2) if options.json else shown, flush=True)
    return 1 if found.wrong else 0


def _kernel(options: argparse.Namespace) -> int:
    """Install, list or remove kernels that start with GPUs."""
    from gpu_magic.kernelspec.kernelspecs import install, installed, remove

    if options.kernel == "install":
        bounds = {"--min-free": options.min_free, "--model": options.model}
        typed = " ".join(
            [options.gpus or "auto", *(f"{name} {value}" for name, value in bounds.items() if value)]
        )
        prefix = None if options.user else options.prefix or sys.prefix
        new = install(typed, options.name, options.display_name, prefix, is_plain=options.plain)
        print(f"Jupyter now offers {new.display_name!r}: the kernel {new.name} in {new.folder}")
    elif options.kernel == "remove":
        print(f"Removed {remove(options.name, options.prefix)}")
    elif found := installed(options.prefix):
        rows = [(one.name, one.display_name, one.gpus, one.folder) for one in found]
        print(*text_table(("Name", "Shown as", "GPUs", "Folder"), rows), sep="\n")
        for one in found:
            if one.problem:
                at = f" --prefix {shlex.quote(options.prefix)}" if options.prefix else ""
                end = f"gpu-magic kernel remove {one.name}{at}"
                print(f"{one.name} can't start: {one.problem}. To remove it: {end}")
    else:
        print("None is installed. To add one that starts with a free GPU: gpu-magic kernel install")
    return 0


def _launch(words: Sequence[str]) -> int:
    """Run a command to its end, and pass signals on to it."""
    from gpu_magic.gpus.choice import gpu_notes
    from gpu_magic.launch.launch import prepare
    from gpu_magic.launch.output import RankLines
    from gpu_magic.process.environment import variables_now
    from gpu_magic.shell.arguments import names_of, read_words

    if words and words[0] in ("-h", "--help"):
        options = (f"  {name:18}{what}" for name, what in LAUNCH_OPTIONS.items())
        print("usage: gpu-magic launch [options] -- COMMAND\n", *options, EXAMPLES, sep="\n", end="")
        return 0
    is_json = "--" in words and "--json" in words[: words.index("--")]
    try:
        options = read_words("gpu-magic launch", words)
        is_json = options.json
        task = prepare(options, names=names_of("gpu-magic launch"), on_wait=_waiting_lines())
    except GpuMagicError as error:
        if is_json:
            print(json.dumps(_refusal(error)), flush=True)
        raise
    if is_json:
        print(json.dumps(_picked(task)), flush=True)
    if options.dry_run:
        print(task.shell_lines)
        return 0
    _start(task)
    is_chosen = options.gpus is not None or options.count is not None or variables_now().name_gpus
    about_gpus = gpu_notes(task.devices, "To choose GPUs, add --gpus 0,1", is_chosen=is_chosen)
    for note in filter(None, (task.simulation, *about_gpus)):
        print(note, file=sys.stderr)
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
    return error.with_table("gpu-magic") if isinstance(error, ChoiceError) else str(error)


def _waiting_lines() -> Callable[[Wait[Any]], None]:
    """Return a callback that prints the users of the GPUs first and after changes, at most once a minute."""
    said, next_at = "", 0.0

    def show(wait: Wait[Any]) -> None:
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


def _show(*, as_json: bool) -> int:
    found = gpu_magic.gpus()
    problem = problem_text(found)
    if as_json and (problem or found.limitation):
        print(f"gpu-magic: {problem or found.limitation}", file=sys.stderr)
    print(json.dumps(found.to_dict()["gpus"], indent=2) if as_json else found, flush=True)
    return 1 if problem and not found.devices else 0
