"""`gpu-magic` in a shell: the table of GPUs, and commands on GPUs of one's choice.

What an action needs is imported when it is asked for: without the others' the table takes a third less.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

import gpu_magic
from gpu_magic.errors import CommandFailed, GpuMagicError
from gpu_magic.gpus.table import problem_text, record_of
from gpu_magic.text import nearest_option, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpu_magic.gpus.wait import Wait
    from gpu_magic.launching.prepared import Prepared
    from gpu_magic.launching.task import Task
    from gpu_magic.process.session import Session

__all__ = ["EXAMPLES", "LAUNCH_OPTIONS", "main"]

EXAMPLES = """
examples:
  gpu-magic                                             the GPUs, and who uses them
  gpu-magic launch --gpus auto:2 -- torchrun train.py   one process for each of two free GPUs
  gpu-magic launch --gpus 2,0 -- python train.py        one process, whose cuda:0 is GPU 2
  gpu-magic launch --gpus auto --wait 2h -- ./train.sh  on one GPU, once one is free
  gpu-magic doctor                                      what is wrong with the GPU set-up, and how to fix it
"""


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text} is not NAME=value")
    return name, value


_FLAG = {"action": "store_true"}
# Those of `gpu-magic launch`, which stand before the command: their names, and what argparse is told of each.
LAUNCH_OPTIONS: dict[tuple[str, ...], dict[str, Any]] = {
    ("--gpus",): {"help": "as after %%gpus: 2,0 or auto:2; without it, those that this shell has"},
    ("-n", "--count"): {"type": int, "help": "only the first so many of them"},
    ("--each",): {"help": "start the command once for each GPU, which it has alone", **_FLAG},
    ("--env",): {
        "action": "append",
        "type": _pair,
        "metavar": "NAME=value",
        "help": "a variable for the command",
    },
    ("--cwd",): {"metavar": "FOLDER", "help": "where it is run"},
    ("--only-free",): {
        "help": "only GPUs that nobody else uses or has claimed; without enough of them nothing is started",
        **_FLAG,
    },
    ("--min-free",): {"metavar": "20GB", "help": "with auto: GPUs with so much free memory"},
    ("--wait",): {
        "metavar": "30m",
        "help": "wait so long until they are free, or have the memory of --min-free, and start it then",
    },
    ("--force",): {"help": "allow GPUs outside CUDA_VISIBLE_DEVICES", **_FLAG},
    ("--dry-run",): {"help": "say what would be run", **_FLAG},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: a command's own, or 2 if the line can't be run."""
    words = sys.argv[1:] if arguments is None else arguments
    _accept_any_text()
    if next((word for word in words if not word.startswith("-")), "") == "run":  # its former name
        print("gpu-magic: gpu-magic run is gpu-magic launch now.", file=sys.stderr)
        return 2
    options = _read(words)
    try:
        if options.action == "doctor":
            return _doctor(options)
        return _launch(options) if options.action == "launch" else _show(as_json=options.json)
    except GpuMagicError as error:
        print("gpu-magic:", str(error).replace("%gpus shows", "gpu-magic shows"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # a command that has started gets its interrupts itself
        if options.action == "launch":
            print("gpu-magic: Interrupted; nothing was started.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # who has read it, as `head` does, is gone; so nothing is to be written at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a line in one line."""

    def error(self, message: str) -> NoReturn:
        typed = re.search("invalid choice: '(.+?)'", message)
        near = nearest_option(typed[1], ("launch", "doctor")) if typed else ""
        hint = f"; did you mean {near}?" if near else f"; {self.prog} --help explains the options."
        self.exit(2, f"gpu-magic: {one_line(message)}{hint}\n")


def _accept_any_text() -> None:
    """Have what a terminal's encoding lacks shown as `?`: names come from the machine and can be any."""
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _read(words: Sequence[str]) -> argparse.Namespace:
    """Read a line; for what is no option, print the nearest of those of the action it was typed for."""
    parser = _Parser(
        "gpu-magic",
        description="Show the GPUs of this machine, and launch commands on some of them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    as_json = "the GPUs as JSON: bytes, percent, degrees Celsius, watts"
    parser.add_argument("--json", action="store_true", help=as_json)
    parser.add_argument("--version", action="version", version=f"gpu-magic {gpu_magic.__version__}")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    usage = "%(prog)s [options] -- COMMAND"
    launch = actions.add_parser("launch", usage=usage, help="run a command on GPUs: gpu-magic launch --help")
    for names, settings in LAUNCH_OPTIONS.items():
        launch.add_argument(*names, **settings)
    launch.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="torchrun train.py")
    doctor = actions.add_parser("doctor", help="say what is wrong with the GPUs: gpu-magic doctor --help")
    form = doctor.add_mutually_exclusive_group()
    form.add_argument("--report", action="store_true", help="text for an issue, without names and paths")
    # Without a default, which would hide that of a --json before "doctor".
    form.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="all of it, as JSON")
    options, unknown = parser.parse_known_args(words)
    asked = {"launch": launch, "doctor": doctor}.get(options.action, parser)
    if unknown:
        known = re.findall(r"--[a-z-]+", asked.format_help())
        near = nearest_option(unknown[0].partition("=")[0], known)
        hint = f" (did you mean {near}?)" if near else ""
        asked.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    for name, value in vars(options).items():  # before Python 3.13, argparse drops a value of "--"
        if name != "command" and [] in [value, *(value if isinstance(value, list) else [])]:
            asked.error(f"--{name.replace('_', '-')} needs a value")
    return options


def _doctor(options: argparse.Namespace) -> int:
    """Print what is wrong; the exit status is 1 if something is."""
    from gpu_magic.doctor.diagnosis import diagnose

    found = diagnose("shell")
    shown = found.report() if options.report else found
    print(json.dumps(found.to_dict(), indent=2) if options.json else shown, flush=True)
    return 1 if found.wrong else 0


def _launch(options: argparse.Namespace) -> int:
    """Run a command to its end; pass signals on to it."""
    from gpu_magic.gpus.choice import gpu_notes
    from gpu_magic.launching.devices import Free
    from gpu_magic.launching.prepare import prepare
    from gpu_magic.launching.shown import RankLines
    from gpu_magic.process.environment import variables_now
    from gpu_magic.process.session import current

    session = current()
    prepared = prepare(
        session,
        options.command[1:] if options.command[:1] == ["--"] else options.command,
        options.gpus,
        options.count,
        each=options.each,
        force=options.force,
        free=Free(options.only_free, options.min_free, options.wait, _waiting_lines()),
        dry_run=options.dry_run,
        variables=dict(options.env or ()),
        folder=options.cwd,
        options={name for names in LAUNCH_OPTIONS for name in names},
    )
    if options.dry_run:
        print(prepared)
        return 0
    task = _start(prepared, session)
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


def _waiting_lines() -> Callable[[Wait[Any]], None]:
    """Return what prints for whom a command waits: at first, and when that changes, at most once a minute."""
    said, next_at = "", 0.0

    def show(wait: Wait[Any]) -> None:
        nonlocal said, next_at
        if wait.holders != said and time.monotonic() >= next_at:
            said, next_at = wait.holders, time.monotonic() + 60.0
            print(f"Waiting for {wait.wanted}: {wait.holders}; Ctrl+C ends it.", file=sys.stderr, flush=True)

    return show


def _start(prepared: Prepared, session: Session) -> Task:
    """Start a command; pass signals on to it, those that come meanwhile included."""
    from gpu_magic.launching.task import Task

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
    started.append(Task("launch", prepared, session, is_attached=True))
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
