"""What ranks write is shown in lines, whatever pieces it comes in; much of it is cut, and said to be."""

from __future__ import annotations

import gc
import io
import os
import resource
import shutil
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_magic
from gpu_magic.errors import LaunchError
from gpu_magic.launch.output import Output, RankLines, last_traceback
from gpu_magic.launch.process import RunFolder
from tests.conftest import ROOT
from tests.reliability.steps import Steps

LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20), max_size=8)


def shown(*pieces: tuple[str, str]) -> str:
    written = io.StringIO()
    lines = RankLines(written, has_ranks=True)
    for label, text in pieces:
        lines.add(label, text)
    lines.end()
    return written.getvalue()


@given(LINES, st.data())
def test_lines_are_whole_however_they_are_divided(lines: list[str], data: st.DataObject) -> None:
    text = "".join(f"{line}\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert shown(*(("1", piece) for piece in pieces)) == "".join(f"[1] {line}\n" for line in lines)


def test_lines_of_two_ranks_do_not_mix() -> None:
    pieces = ("0", "zero, fir"), ("1", "one\n"), ("0", "st\nzero, second\n")
    assert shown(*pieces) == "[1] one\n[0] zero, first\n[0] zero, second\n"


def test_a_progress_bar_is_one_line() -> None:
    bar = "".join(f"\r {done} %" for done in range(0, 101, 10))
    assert shown(("0", bar), ("0", "\nepoch 1\r\n")) == "[0]  100 %\n[0] epoch 1\n"


def test_a_progress_bar_is_shown_before_its_end() -> None:
    written = io.StringIO()
    lines = RankLines(written, has_ranks=True, seconds=0)
    for text in ("\r10 %", "\r20 %\r30 %", "\r40 %\ndone\nand", " so on\n"):
        lines.show([(Output("1", "Rank 1", list), text)])
    assert written.getvalue() == "[1] 10 %\n[1] 30 %\n[1] 40 %\n[1] done\n[1] and so on\n"


def test_a_character_that_is_written_in_two_pieces_is_one(tmp_path: Path) -> None:
    file = tmp_path / "log"
    output = Output("0", "Rank 0", lambda: [file])
    assert output.read(1000) == ""
    whole = "a\u00dfb".encode()  # two bytes in the middle
    file.write_bytes(whole[:2])
    begun = output.read(1000)
    with file.open("ab") as more:
        more.write(whole[2:])
    assert begun + output.read(1000) == "a\u00dfb"


def test_more_than_a_page_can_take_is_cut_and_stands_in_the_file(machine: Path) -> None:
    """100 MB at once: the end of it is shown, and where the rest is."""
    code = "import sys; [sys.stdout.write('x' * 99 + chr(10)) for _ in range(1_000_000)]; print('the end')"
    task = gpu_magic.launch(["python", "-c", code], count=1)
    texts = [text for pieces in task.follow(cut=True) for _, text in pieces]
    assert sum(map(len, texts)) < 10_000_000
    assert "".join(texts).endswith("the end\n")
    cut = next(text for text in texts if "are left out here; they stand in " in text)
    file = cut.partition("they stand in ")[2].partition("\n")[0]
    assert task.outputs[0].was_cut
    assert (machine / file).stat().st_size == 100_000_008


def test_a_long_text_at_once_is_shown_whole(machine: Path) -> None:
    task = gpu_magic.launch(["python", "-c", "print('x' * 99 * 1000)"], count=1)
    text = "".join(text for pieces in task.follow(cut=True) for _, text in pieces)
    assert text == "x" * 99_000 + "\n"
    assert not task.outputs[0].was_cut


def test_a_text_without_lines_is_cut_and_its_end_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("".join(f"\r{done:9} %" for done in range(10_000)))
    output = Output("0", "Rank 0", lambda: [file])
    assert output.read(20_000).endswith("9999 %")
    again = Output("0", "Rank 0", lambda: [file]).tail(20_000)
    assert again.startswith("… 101.7 KiB are left out here; they stand in ")
    assert again.endswith("9999 %")


def test_half_a_character_before_what_is_left_out_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "log"
    output = Output("0", "Rank 0", lambda: [file])
    file.write_bytes("a\u00df".encode()[:2])
    assert output.read(1000) == "a"
    file.write_text("a\u00df\n" + "word\n" * 1000, encoding="utf-8")
    text = output.read(100)
    assert "are left out here" in text
    assert "\ufffd" not in text


def test_several_files_are_cut_to_what_is_left_of_the_bound(tmp_path: Path) -> None:
    """A rank's two: what it writes, and its errors."""
    files = [tmp_path / "stdout", tmp_path / "stderr"]
    for file in files:
        file.write_text("word\n" * 100)
    output = Output("0", "Rank 0", lambda: files)
    text = output.read(200)
    assert text.count("word\n") <= 40
    assert text.endswith(f"500 bytes are left out here; they stand in {files[1]}\n")
    assert output.read(200) == ""


def test_a_child_that_is_forked_leaves_the_files_alone(machine: Path) -> None:
    task = gpu_magic.launch("true", count=1)
    task.wait()
    if os.fork() == 0:
        del task
        gc.collect()
        os._exit(0)
    os.wait()
    assert task.files.path.is_dir()


def test_the_process_that_failed_is_named_and_not_one_that_has_logged_an_error(machine: Path) -> None:
    code = (
        "import os, time, traceback\n"
        "if os.environ['GPU_MAGIC_INDEX'] == '1':\n    time.sleep(0.2)\n    raise ValueError('the real one')\n"
        "try: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()"
    )
    task = gpu_magic.launch(["python", "-c", code], gpus="0,1", each=True)
    with pytest.raises(gpu_magic.CommandFailed, match=r"^Process 1:\n(.|\n)*the real one"):
        task.wait()


@pytest.mark.nightly  # PyTorch starts twice
def test_the_ranks_of_several_launchers_are_ranks_and_these_are_not(machine: Path) -> None:
    (machine / "show.py").write_text("print('here')")
    task = gpu_magic.launch("torchrun show.py", gpus="0,1", each=True)
    task.wait()
    assert [(rank.label, rank.title, rank.text) for rank in task.ranks] == [
        ("0.0", "Process 0, rank 0", "here\n"),
        ("1.0", "Process 1, rank 0", "here\n"),
    ]


def test_folders_are_there_until_their_process_ends_and_kept_ones_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a process that was killed go when another folder is made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = (
        "from gpu_magic.launch.process import RunFolder\nplain, kept = RunFolder(), RunFolder()\n"
        "print(plain.path, kept.keep(), flush=True)\ninput()"
    )
    variables = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
    ) as other:
        assert other.stdout
        plain, kept = map(Path, other.stdout.readline().split())
        RunFolder()
        assert plain.is_dir()
        other.kill()
    open_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    ours = RunFolder().keep()
    assert len(os.listdir("/proc/self/fd")) == open_files  # noqa: PTH208
    gc.collect()
    assert (plain.exists(), kept.is_dir(), ours.is_dir()) == (False, True, True)


def test_a_folder_that_is_kept_stays_while_another_process_looks_for_abandoned_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one can have opened the lock before it is removed, and lock it once it is given up."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    looking, other = Steps(), RunFolder()
    with looking.counted():
        RunFolder()
    other.remove()
    for moment in range(1, looking.count + 1):
        folder = RunFolder()
        with Steps(moment, folder.keep).counted():
            RunFolder()
        assert folder.keep().is_dir(), moment
        shutil.rmtree(folder.path)


def test_what_can_be_no_variable_is_a_line_and_leaves_nothing(machine: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    number: dict[str, Any] = {"N": 4}  # as one types it
    for variables in {"N": "a\0b"}, {"A=B": "1"}, {"": "1"}:
        with pytest.raises(LaunchError, match="cannot be a variable with the value"):
            gpu_magic.launch("true", count=1, env=variables)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    task = gpu_magic.launch("printenv N", count=1, env=number)
    task.wait()
    assert task.output == "4\n"


def test_a_signal_without_a_name_is_told_by_its_number(machine: Path) -> None:
    task = gpu_magic.launch(["python", "-c", "import os; os.kill(os.getpid(), 40)"], count=1)
    with pytest.raises(gpu_magic.CommandFailed, match="ended by signal 40"):
        task.wait()


def test_the_last_traceback_is_found_without_the_rank_before_its_lines() -> None:
    text = (
        'epoch 1\n[rank1]: Traceback (most recent call last):\n[rank1]:   File "a.py", line 2\n'
        "[rank1]: ValueError: boom\n"
    )
    assert last_traceback(text) == (
        'Traceback (most recent call last):\n  File "a.py", line 2\nValueError: boom'
    )
    assert last_traceback("all is well\n") == ""


def test_launches_leave_nothing_in_this_process(machine: Path) -> None:
    def left() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208

    gpu_magic.launch("true", count=1).wait()
    before = left()
    paths = []
    for _ in range(10):
        task = gpu_magic.launch("true", count=1)
        task.wait()
        paths.append(task.files.path)
    del task
    assert left() == before
    assert not any(path.exists() for path in paths)


def test_a_process_with_many_open_files_launches(machine: Path) -> None:
    """`select` takes no descriptor above 1023."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))  # an ordinary user's is often 1024
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(1100):
            files.enter_context(Path(os.devnull).open())
        task = gpu_magic.launch("printenv CUDA_VISIBLE_DEVICES", gpus="2")
        task.wait()
    assert task.output == "2\n"
