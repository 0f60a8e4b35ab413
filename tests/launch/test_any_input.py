"""Any words behind `gpu-magic launch` and any line behind `%gpu_launch`, with `--dry-run`: nothing is started."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from IPython.core.error import UsageError

from gpu_magic.command_line import main
from gpu_magic.errors import GpuMagicError
from gpu_magic.launch.output import last_traceback
from gpu_magic.testing import simulate
from tests.inputs import LISTS, LONG, ODD, check_line, check_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

WORDS = st.lists(
    LISTS
    | ODD
    | st.sampled_from(
        "--gpus -n --each --env A=1 -- torchrun python -m -c ls accelerate launch deepspeed --gpu_ids "
        "--nproc-per-node=2 --standalone train.py --cwd ~nobody-at-all --f --keep '".split()
    ),
    max_size=6,
)
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty folder for what commands write; others' would be looked through at each launch."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with simulate("4xA100-80GB"):
        yield tmp_path


@SHARED
@given(WORDS)
@example([])
@example(["--", "."])
@example(["--cwd", "x" * LONG, "ls"])
@example(["python", "x" * LONG])
@example(["--cwd", "~nobody-at-all", "ls"])
@example(["--f", "-n--", "y-", ""])
@example(["-n", "9" * LONG, "ls"])
@example(["accelerate", "launch", "-m", "x"])
def test_any_words_in_a_terminal(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    words = [word for word in words if "\0" not in word]  # no word of a process has it
    capsys.readouterr()
    try:
        status = main(["launch", "--dry-run", *words])
    except SystemExit as end:  # argparse's own answer: its usage, and then a line
        assert end.code in (0, 2)
        return
    printed = capsys.readouterr()
    if status == 0:
        assert printed.out.strip()
        return
    assert status == 2
    check_line(printed.err.removeprefix("gpu-magic: ").removesuffix("\n"))


@SHARED
@given(WORDS.map(" ".join))
@example("ls\0")
@example("-n 1 ./x\0")
@example("-n 2 --env A='b c' torchrun -m x --lr 1e-3 # quick")
@example("bash -c 'a | b'")
def test_any_line_in_a_cell(shell: InteractiveShell, line: str) -> None:
    shell.run_line_magic("load_ext", "gpu_magic")
    try:
        shell.run_line_magic("gpu_launch", f"--dry-run {line}")
    except (GpuMagicError, UsageError) as error:
        check_refusal(error)


@SHARED
@given(
    st.sampled_from(["here", "~", "~nobody-at-all", "/", ""]),
    st.lists(
        st.sampled_from(
            "mixed_precision: dynamo_config: num_machines: no false null bf16 ' \" # - 1 \n".split(" ")
        )
        | ODD,
        max_size=8,
    ).map(" ".join),
)
@example("~nobody-at-all", "")
@example("here", "mixed_precision: bf16\ndynamo_config:\n  x: 1\nnum_machines: 1")
@example("here", "\udcff: '")
def test_any_configuration_of_accelerate(
    folder: Path, capsys: pytest.CaptureFixture[str], home: str, text: str
) -> None:
    """What `accelerate config` has written, in the folder that HF_HOME names."""
    (folder / "accelerate").mkdir(exist_ok=True)
    (folder / "accelerate/default_config.yaml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(folder) if home == "here" else home)
        assert main(["launch", "--dry-run", "--gpus", "0,1", "accelerate", "launch", "-m", "x"]) == 0


@given(
    st.lists(
        st.sampled_from(["Traceback (most recent call last):", "[rank1]: ", "ValueError: x", "\n", "  File"])
        | ODD
    ).map("".join)
)
def test_a_traceback_is_found_whatever_stands_before_it(text: str) -> None:
    assert last_traceback(text) in ("", last_traceback(f"before\n{text}"))
