"""What is typed in a shell behind `gpu-magic`, and in a cell behind `%gpu_launch`. Nothing is started: `--dry-run`."""

from __future__ import annotations

import atexit
import io
import re
import shlex
import shutil
import tempfile
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from typing import TYPE_CHECKING

from gpu_magic.command_line import main
from gpu_magic.errors import GpuMagicError
from gpu_magic.launch.launch import Script, prepare
from gpu_magic.shell.arguments import names_of, read_command
from gpu_magic.testing import simulate
from tests.fuzzing.target import Target, check_line, check_refusal, fields_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TARGETS"]

# Of the least busy GPUs: the machine is read twice then, half a second apart. `requests` has them, too.
_SLOW = re.compile(rb"auto", re.IGNORECASE)


@cache
def _folder() -> str:
    """Return a folder where the commands would be run, and which is used for temporary files."""
    folder = tempfile.mkdtemp(prefix="gpu_magic-fuzzing-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def _own_machine() -> Iterator[None]:
    """Have a machine of its own, and an empty folder for temporary files: others' would be looked through."""
    before, tempfile.tempdir = tempfile.tempdir, _folder()
    try:
        with simulate("4xA100-80GB"):
            yield
    finally:
        tempfile.tempdir = before


def check_command_line(data: bytes) -> None:
    """Check the words behind `gpu-magic launch --dry-run`, with a line feed between each two."""
    words = text_of(data.replace(b"\0", b"")).split("\n")  # a word of a process's has no NUL
    if _SLOW.search(data):
        return
    out, err = io.StringIO(), io.StringIO()
    with _own_machine(), redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(["launch", "--dry-run", "--cwd", _folder(), *words])
        except SystemExit as end:  # argparse's own answer: its usage, and then a line
            assert end.code in (0, 2)
            return
    if status == 0:
        assert out.getvalue().strip()
        return
    assert status == 2
    check_line(err.getvalue().removeprefix("gpu-magic: ").removesuffix("\n"))


def check_launch_line(data: bytes) -> None:
    """Check a line behind `%gpu_launch --dry-run`, and behind a line feed a cell, if there is one."""
    if _SLOW.search(data):
        return
    line, cell = fields_of(data, 2)
    try:
        options = read_command("%gpu_launch", line)
        script = Script("cell_1.py", cell) if cell else None
        options.dry_run, options.cwd, options.wait = True, _folder(), None
        with _own_machine():
            task = prepare(options, names=names_of("%gpu_launch"), script=script)
            try:
                # It can be typed in a shell: it has all words that were typed, or the launcher has them.
                assert len(shlex.split(task.shell_lines)) >= len(options.command)
            finally:
                task.files.remove()
    except GpuMagicError as error:
        check_refusal(error)


_WORDS = tuple(
    "--gpus -n --count --each --env --cwd --force --dry-run -- torchrun accelerate launch deepspeed python -m -c -V "
    "torch.distributed.run --nproc-per-node --nproc_per_node= --num_processes --gpu_ids --include --num_gpus "
    "--standalone --no-python --config_file train.py 3:1 2,0 none all GPU- reset A=1 CUDA_VISIBLE_DEVICES=0 . / ls ' \" \\\\ # | ; $x "
    "--background --keep".split()
)

TARGETS = (
    Target(
        "command-line",
        check_command_line,
        "the words behind gpu-magic launch",
        _WORDS,
        (
            "--gpus\n2,0\n--\npython\n-c\n1",
            "-n\n1\n--env\nA=1\n--each\nls\n-l",
            "--gpus\n3,1\n--\ntorchrun\n--nproc_per_node=2\n-m\nx",
            "accelerate\nlaunch\n-m\nx",
            "deepspeed\n--module\nx",
            "--force\n--\npython\n-m\ntorch.distributed.run\n--no-python\nls",
        ),
    ),
    Target(
        "launch-lines",
        check_launch_line,
        "what is typed behind %gpu_launch, and its cell",
        _WORDS,
        (
            "-n 2 --env A='b c' torchrun -m x --lr 1e-3 # quick",
            "--gpus 2, 0 --each ls -l",
            "--each python\nresult = 1",
            "python -c 'print(1)'",
            "bash -c 'a | b'",
        ),
    ),
)
