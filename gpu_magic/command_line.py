"""`gpu-magic` in a shell: the table of GPUs, and commands on GPUs of one's choice.

What an action needs is imported when it is asked for: without the others' the table takes a third less.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shlex
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import gpu_magic
from gpu_magic.devices.model import Gpu
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.errors import CommandFailed, GpuMagicError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_magic.devices.model import Device
    from gpu_magic.launching.prepared import Prepared
    from gpu_magic.launching.task import Task

__all__ = ["EXAMPLES", "RUN_OPTIONS", "main"]

EXAMPLES = """
examples:
  gpu-magic                                         the GPUs, and who uses them
  gpu-magic run --gpus auto:2 -- torchrun train.py  one process for each of two free GPUs
  gpu-magic run --gpus 2,0 -- python train.py       one process, whose cuda:0 is GPU 2
  gpu-magic doctor                                  what is wrong with the GPU set-up, and how to fix it
"""


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text} is not NAME=value")
    return name, value


_ACTIONS = ("run", "doctor")
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
    ("--force",): {"action": "store_true", "help": "allow GPUs outside CUDA_VISIBLE_DEVICES"},
    ("--dry-run",): {"action": "store_true", "help": "say what would be run"},
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
    options = _parser().parse_args(words)
    try:
        if options.action == "doctor":
            return _doctor(options)
        return _run(options) if options.action == "run" else _show(as_json=options.json)
    except GpuMagicError as error:
        print(f"gpu-magic: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # who has read it, as `head` does, is gone; so nothing is to be written at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a line in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"gpu-magic: {message}; {self.prog} --help explains the options.\n")


def _meant(action: str, words: Sequence[str]) -> str:
    """Return what is said of a first word that is no action."""
    from gpu_magic.selection.request import is_request
    from gpu_magic.text import one_line

    if close := difflib.get_close_matches(action, _ACTIONS, n=1):
        hint = f"did you mean gpu-magic {close[0]}?"
    elif is_request(action):
        hint = f"a command runs on these by gpu-magic run --gpus {action} -- python train.py."
    elif shutil.which(action):
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
    run = actions.add_parser("run", help="run a command: gpu-magic run --help")
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
    from gpu_magic.api.diagnosis import doctor_in

    found = doctor_in("shell")
    as_json = options.as_json or options.json
    shown = json.dumps(found.to_dict(), indent=2) if as_json else found.report() if options.report else found
    print(shown, flush=True)
    return 1 if found.wrong else 0


def _run(options: argparse.Namespace) -> int:
    """Run a command to its end; pass signals on to it."""
    from gpu_magic.display.gpu_notes import gpu_notes
    from gpu_magic.display.task_output import RankLines
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
    records = [_record(device) for device in found.devices] if as_json else []
    print(json.dumps(records, indent=2) if as_json else found, flush=True)
    return 0


def _record(device: Device) -> dict[str, Any]:
    """Return a device as JSON has it; null for what the driver would not tell."""
    status = device.status
    processes = None if status.processes is UNKNOWN else status.processes
    return {
        "index": device.index if isinstance(device, Gpu) else None,
        "vendor": device.vendor if isinstance(device, Gpu) else "nvidia",
        "gpu": device.index if isinstance(device, Gpu) else device.gpu_index,
        "uuid": _known(device.uuid),
        "name": _known(device.name),
        "memory_total": _known(device.memory_total),
        "memory_used": _known(status.memory_used),
        "utilization": _known(status.utilization),
        "temperature": _known(status.temperature),
        "power": _known(status.power),
        "problem": device.problem if isinstance(device, Gpu) else "",
        "processes": processes
        and [
            {name: _known(getattr(one, name)) for name in ("pid", "name", "owner", "memory")}
            for one in processes
        ],
    }


def _known(value: object) -> object:
    return None if value is UNKNOWN else value
