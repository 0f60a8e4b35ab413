"""`gpu-magic` in a shell: the table of GPUs, and commands on GPUs of one's choice.

What an action needs is imported when it is asked for: without the others' the table takes a third less.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import shlex
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

import gpu_magic
from gpu_magic.display.gpu_record import record_of
from gpu_magic.display.table import problem_text
from gpu_magic.errors import CommandFailed, GpuMagicError, LaunchError
from gpu_magic.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.launching.prepared import Prepared
    from gpu_magic.launching.task import Task
    from gpu_magic.process.wait import Wait

__all__ = ["EXAMPLES", "RUN_OPTIONS", "main"]

EXAMPLES = """
examples:
  gpu-magic                                          the GPUs, and who uses them
  gpu-magic run --gpus auto:2 -- torchrun train.py   one process for each of two free GPUs
  gpu-magic run --gpus 2,0 -- python train.py        one process, whose cuda:0 is GPU 2
  gpu-magic run --gpus auto --wait 2h -- ./train.sh  on one GPU, once one is free
  gpu-magic doctor                                   what is wrong with the GPU set-up, and how to fix it
"""


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text} is not NAME=value")
    return name, value


_ACTIONS = ("run", "doctor")
_BETWEEN_LINES = 60.0  # seconds, of a wait
# Those of `gpu-magic run`, which stand before the command: their names, and what argparse is told of each.
RUN_OPTIONS: dict[tuple[str, ...], dict[str, Any]] = {
    ("--gpus",): {"help": "as after %%gpus: 2,0 or auto:2; without it, those that this shell has"},
    ("-n", "--count"): {"type": int, "help": "only the first so many of them"},
    ("--each",): {
        "action": "store_true",
        "help": "start the command once for each GPU, which it has alone",
    },
    ("--env",): {
        "action": "append",
        "default": [],
        "type": _pair,
        "metavar": "NAME=value",
        "help": "a variable for the command",
    },
    ("--cwd",): {"metavar": "FOLDER", "help": "where it is run"},
    ("--only-free",): {
        "action": "store_true",
        "help": "only GPUs that nobody else uses or has claimed; without enough of them nothing is started",
    },
    ("--min-free",): {"metavar": "20GB", "help": "with auto: GPUs with so much free memory"},
    ("--wait",): {
        "metavar": "30m",
        "help": "wait so long until they are free, or have the memory of --min-free, and start it then",
    },
    ("--force",): {"action": "store_true", "help": "allow GPUs outside CUDA_VISIBLE_DEVICES"},
    ("--dry-run",): {"action": "store_true", "help": "say what would be run"},
}
# The options of each action, for what is close to one of them.
_OPTIONS = {
    None: ("--json", "--version", "--help"),
    "run": (*(name for names in RUN_OPTIONS for name in names), "--help"),
    "doctor": ("--report", "--json", "--help"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status.

    It is a command's own, or 2 where it can't be run; of `doctor` 1 where something is wrong.
    """
    words = sys.argv[1:] if arguments is None else arguments
    action = next((word for word in words if not word.startswith("-")), None)
    if action not in (None, *_ACTIONS):
        print(f"gpu-magic: {_meant(action, words)}", file=sys.stderr)
        return 2
    _accept_any_text()
    options = _read(words)
    try:
        if options.action == "doctor":
            return _doctor(options)
        return _run(options) if options.action == "run" else _show(as_json=options.json)
    except GpuMagicError as error:
        print(f"gpu-magic: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # a command that has started gets its interrupts itself
        if options.action == "run":
            print("gpu-magic: Interrupted; nothing was started.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # who has read it, as `head` does, is gone; so nothing is to be written at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a line in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"gpu-magic: {message}; {self.prog} --help explains the options.\n")


def _accept_any_text() -> None:
    """Have what a terminal's encoding lacks shown as `?`: names come from the machine and can be any."""
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _read(words: Sequence[str]) -> argparse.Namespace:
    """Read a line; what is no option is said with the help of the action that it was typed for."""
    parser = _parser()
    options, unknown = parser.parse_known_args(words)
    if lacking := _without_value(options):
        parser.exit(2, f"gpu-magic: {lacking} needs a value; gpu-magic run --help explains the options.\n")
    if not unknown:
        return options
    name = unknown[0].partition("=")[0]
    close = difflib.get_close_matches(name, _OPTIONS[options.action], n=1)
    hint = f"; did you mean {close[0]}?" if close else ";"
    program = " ".join(filter(None, ("gpu-magic", options.action)))
    said = f"unrecognized arguments: {' '.join(unknown)}{hint} {program} --help explains the options."
    print(f"gpu-magic: {one_line(said)}", file=sys.stderr)
    raise SystemExit(2)


def _without_value(options: argparse.Namespace) -> str:
    """Return the option of `run` whose value is `--`, which argparse drops before Python 3.13."""
    for names, settings in RUN_OPTIONS.items() if options.action == "run" else ():
        value = getattr(options, names[-1].lstrip("-").replace("-", "_"))
        if [] in (value if settings.get("action") == "append" else [value]):
            return names[0]
    return ""


def _is_program(name: str) -> bool:
    """Return whether `gpu-magic run` would find a program of this name, also in this environment alone."""
    from gpu_magic.launching.launchers.words import find_program

    try:
        return bool(find_program(name, "."))
    except LaunchError:
        return False


def _meant(action: str, words: Sequence[str]) -> str:
    """Return what is said of a first word that is no action."""
    from gpu_magic.selection.request import is_request

    if close := difflib.get_close_matches(action, _ACTIONS, n=1):
        hint = f"did you mean gpu-magic {close[0]}?"
    elif is_request(action):
        hint = f"a command runs on these by gpu-magic run --gpus {action} -- python train.py."
    elif _is_program(action):
        hint = f"a command is run by gpu-magic run -- {shlex.join(words[words.index(action) :])}"
    else:
        hint = "alone it shows the GPUs, run runs a command on some, and doctor says what is wrong."
    return one_line(f"There is no gpu-magic {action}; {hint}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        "gpu-magic",
        description="Show the GPUs of this machine, and run commands on some of them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json", action="store_true", help="the GPUs as JSON: bytes, percent, degrees Celsius, watts"
    )
    parser.add_argument("--version", action="version", version=f"gpu-magic {gpu_magic.__version__}")
    actions = parser.add_subparsers(dest="action", metavar=", ".join(_ACTIONS))
    run = actions.add_parser(
        "run", usage="%(prog)s [options] -- COMMAND", help="run a command: gpu-magic run --help"
    )
    for names, settings in RUN_OPTIONS.items():
        run.add_argument(*names, **settings)
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="torchrun train.py")
    doctor = actions.add_parser(
        "doctor", help="say what is wrong with the GPU set-up: gpu-magic doctor --help"
    )
    form = doctor.add_mutually_exclusive_group()
    form.add_argument("--report", action="store_true", help="text for an issue, without names and paths")
    # A name of its own: the one before "doctor" is of the table.
    form.add_argument("--json", action="store_true", dest="as_json", help="all that was read, as JSON")
    return parser


def _doctor(options: argparse.Namespace) -> int:
    """Say what is wrong; the exit status is 1 where something is."""
    from gpu_magic.doctor.diagnosis import diagnose

    found = diagnose("shell")
    as_json = options.as_json or options.json
    shown = json.dumps(found.to_dict(), indent=2) if as_json else found.report() if options.report else found
    print(shown, flush=True)
    return 1 if found.wrong else 0


def _run(options: argparse.Namespace) -> int:
    """Run a command to its end; pass signals on to it."""
    from gpu_magic.display.gpu_notes import gpu_notes
    from gpu_magic.display.task_output import RankLines
    from gpu_magic.launching.devices import Free
    from gpu_magic.launching.prepare import prepare
    from gpu_magic.process.environment import variables_now
    from gpu_magic.process.session import current

    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    prepared = prepare(
        current(),
        words,
        options.gpus,
        options.count,
        each=options.each,
        force=options.force,
        free=Free(options.only_free, options.min_free, options.wait, _WaitingLines().show),
        dry_run=options.dry_run,
        variables=dict(options.env),
        folder=options.cwd,
        options={name for names in RUN_OPTIONS for name in names},
    )
    if options.dry_run:
        print(prepared)
        return 0
    task = _start(prepared)
    is_chosen = options.gpus is not None or options.count is not None or variables_now().name_gpus
    about_gpus = gpu_notes(task.devices, "--gpus 0,1 takes others", is_chosen=is_chosen)
    for note in (*about_gpus, *task.notes):
        print(note, file=sys.stderr)
    lines = RankLines(sys.stdout, has_ranks=len(task.outputs) > 1)
    for pieces in task.follow(cut=False):
        lines.show(pieces)
    lines.end()
    try:
        task.check()
    except CommandFailed as failure:
        # Of ranks, the cause stands somewhere between what they have written.
        if task.has_ranks or task.causes or task.failure:
            print(f"gpu-magic: {failure}", file=sys.stderr)
    code = task.code or 0
    return code if code >= 0 else 128 - code  # as shells report a signal


class _WaitingLines:
    """Says for whom a command waits: at first, and when that has changed, at most once a minute."""

    def __init__(self) -> None:
        self._said, self._next_at = "", 0.0

    def show(self, wait: Wait) -> None:
        """Say it, unless it was said, or something else was just now."""
        if wait.holders != self._said and time.monotonic() >= self._next_at:
            self._said, self._next_at = wait.holders, time.monotonic() + _BETWEEN_LINES
            print(f"Waiting for {wait.wanted}: {wait.holders}; Ctrl+C ends it.", file=sys.stderr, flush=True)


def _start(prepared: Prepared) -> Task:
    """Start a command; pass signals on to it, those that come meanwhile included."""
    from gpu_magic.launching.task import Task
    from gpu_magic.process.session import current

    came: list[int] = []
    started: list[Task] = []

    def pass_on(number: int, _: object) -> None:
        came.append(number)
        for task in started:
            if number == signal.SIGINT:
                task.interrupt()
            else:
                task.end()

    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, pass_on)
    started.append(Task("run", prepared, current(), is_attached=True))
    if came:
        pass_on(came[-1], None)
    return started[0]


def _show(*, as_json: bool) -> int:
    found = gpu_magic.gpus()
    if as_json and (problem := problem_text(found) or found.limitation):
        print(f"gpu-magic: {problem}", file=sys.stderr)
    records = [record_of(device) for device in found.devices] if as_json else []
    print(json.dumps(records, indent=2) if as_json else found, flush=True)
    return 0
