"""The file of a saved choice: what it can hold, and what may stand in its place."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ipykernel.kernelapp import IPKernelApp

from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.apply import apply, resume
from gpu_magic.gpus.choose import choose
from gpu_magic.gpus.options import Options
from gpu_magic.option_table import CHOICE
from gpu_magic.process.session import current
from gpu_magic.restart.saved import read_saved, remember, remembered, save, saved_choice_file, take
from gpu_magic.testing import start_cuda
from tests.inputs import LISTS, check_refusal
from tests.processes import needs_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Typed

NOT_APPLIED = "The choice from before the restart was not applied"


pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kernel-1.json"


def saved(**changes: Any) -> str:
    """Return what is saved; this process is no kernel, and has no connection file."""
    now = {"kernel": "", "saved": time.time()}
    return json.dumps(now | {"request": "3,0", "options": {}, "replaces": []} | changes)


def test_a_saved_choice_is_applied_once_with_its_options(file: Path) -> None:
    file.write_text(saved(options={"growth": True}))
    said = resume(file)
    assert said.startswith("Applied the choice from before the restart:\ncuda:0 = GPU 3 ")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,0"
    assert "allocate memory as they need it" in said
    assert not file.exists()


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (601, ": it is older than 10 minutes"),
        (-7200, ": it is older than 10 minutes"),
        ({"saved": float("inf")}, ": it is older than 10 minutes"),
        ({"saved": "now"}, ": its file cannot be read."),
        ({"saved": 10**400}, ": its file cannot be read."),
        ({"options": []}, ": its file cannot be read."),
        ({"replaces": "2"}, ": its file cannot be read."),
        ({"replaces": [2]}, ": its file cannot be read."),
        ({"options": {"model": ["A100"]}}, "is not a name"),
        ({"options": {"by": "colour"}}, ": by='colour' is neither"),
        ({"options": {"memory_limit": 10**400}}, "is not a size"),
        ({"request": "GPU-ffffffff"}, ": No GPU here has a UUID that starts with GPU-ffffffff"),
        ({"kernel": "/run/of-another.json"}, ": it was saved for another kernel."),
        (b"[" * 60_000, ": its file cannot be read."),
        (b"\xff\xfe{", ": its file cannot be read."),
    ],
)
def test_what_is_no_good_is_dropped_and_told(
    file: Path, what: bytes | dict[str, Any] | int, says: str
) -> None:
    """Other bytes, other values, or a choice of so many seconds ago."""
    changes = {"saved": time.time() - what} if isinstance(what, int) else what
    file.write_bytes(changes if isinstance(changes, bytes) else saved(**changes).encode())
    said = resume(file)
    assert said.startswith(f"{NOT_APPLIED}:")
    assert says in said
    assert current().chosen is None
    assert not file.exists()


def test_a_choice_that_was_made_since_is_the_newer_one(file: Path) -> None:
    apply(current(), "2")
    file.write_text(saved())
    assert resume(file) == f"{NOT_APPLIED}: you made another choice since."
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"


def test_too_late_also_after_the_restart(file: Path) -> None:
    file.write_text(saved())
    start_cuda()
    assert resume(file).startswith(f"{NOT_APPLIED}. Too late: CUDA has started")


KEPT = "GPU 0, as chosen with --restart. To choose 2,0 instead, run this again."


def test_in_the_run_after_a_restart_each_earlier_choice_is_replaced_once(file: Path, typed: Typed) -> None:
    file.write_text(saved(request="0", replaces=["auto --growth", "2,0"]))
    resume(file)
    assert typed("%gpus auto --growth").text.startswith("GPU 0, as chosen with --restart.")
    assert typed("%gpus 2,0 --dry-run").text.startswith("cuda:0 = GPU 2")  # a question, not a choice
    assert typed("%gpus 2,0 --wait 1s").text.strip() == KEPT
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    assert typed("%gpus 2,0").text.startswith("cuda:0 = GPU 2")


def test_a_choice_that_two_cells_have_made_is_replaced_in_both(file: Path, typed: Typed) -> None:
    file.write_text(saved(request="0", replaces=["1", "2", "1"]))
    resume(file)
    for request in ("1", "2", "1"):
        assert typed(f"%gpus {request}").text.startswith("GPU 0, as chosen with --restart.")
    assert typed("%gpus 1").text.startswith("cuda:0 = GPU 1")


def test_a_choice_that_a_cell_has_made_often_counts_when_it_is_run_again_as_the_message_says(
    file: Path, typed: Typed
) -> None:
    file.write_text(saved(request="0", replaces=["1"] * 3))
    resume(file)
    assert typed("%gpus 1").text.startswith(
        "GPU 0, as chosen with --restart. To choose 1 instead, run this again"
    )
    assert typed("%gpus 1").text.startswith("cuda:0 = GPU 1")


def test_whatever_else_is_chosen_after_a_restart_counts_at_once_and_ends_this(
    file: Path, typed: Typed
) -> None:
    file.write_text(saved(request="0", replaces=["2,0"]))
    resume(file)
    assert typed("%gpus 0").text.startswith("cuda:0 = GPU 0")  # the cell that has the new choice
    assert typed("%gpus 3").text.startswith("cuda:0 = GPU 3")
    assert typed("%gpus 2,0").text.startswith("cuda:0 = GPU 2")


def test_an_earlier_choice_does_not_stop_the_run_after_a_restart_once_cuda_has_started(
    file: Path, typed: Typed
) -> None:
    file.write_text(saved(request="0", replaces=["2,0"]))
    resume(file)
    start_cuda()
    assert typed("%gpus 2,0 --strict").text.strip() == KEPT
    assert "Too late" in str(typed("%gpus 2,0 --strict").error)


def test_python_keeps_the_choice_of_a_restart_as_the_magic_does(file: Path, typed: Typed) -> None:
    file.write_text(saved(request="0", replaces=["2,0", "auto:1"]))
    resume(file)
    os.environ["CUDA_VISIBLE_DEVICES"] = "3"  # the notebook's own line, above
    assert str(choose([2, 0])) == KEPT
    assert typed("import gpu_magic\n(await gpu_magic.wait_for(1)).instead_of").value == "auto:1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize("what", ["pipe", "link", pytest.param("file of another user", marks=needs_root)])
def test_what_is_not_a_file_of_this_user_s_is_removed_unread(file: Path, what: str) -> None:
    kept = file.with_name("kept")
    kept.write_text(saved())
    if what == "pipe":
        os.mkfifo(file)
    elif what == "link":
        file.symlink_to(kept)
    else:
        os.chown(kept.rename(file), 12345, -1)
    assert "its file does not belong to this user" in resume(file)
    assert current().chosen is None
    assert not os.path.lexists(file)


@pytest.fixture
def as_kernel(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Return a way to make this process a kernel with a connection file; all have one runtime folder."""

    def begin(connection: Path) -> None:
        IPKernelApp.clear_instance()
        connection.parent.mkdir(exist_ok=True)
        connection.write_text("{}")
        IPKernelApp.instance(connection_file=str(connection), connection_dir=str(tmp_path / "runtime"))

    yield begin
    IPKernelApp.clear_instance()


def test_what_is_left_of_a_write_that_was_cut_off_is_no_obstacle(
    tmp_path: Path, as_kernel: Callable[[Path], None]
) -> None:
    as_kernel(tmp_path / "runtime" / "kernel-1.json")
    for name in ("gpu_magic", "gpu_magic_started"):
        folder = tmp_path / "runtime" / name
        folder.mkdir(mode=0o700)
        (folder / "kernel-1.new").write_text("half a fi")
    devices = apply(current(), "2").devices
    remember(devices)
    assert remembered() == {device.identity for device in devices}
    save("2", devices, {})
    file = saved_choice_file()
    assert file is not None
    assert take(file) == (devices[0].uuid, {}, ("2",))


def test_a_second_restart_replaces_what_the_first_one_replaced(
    file: Path, tmp_path: Path, as_kernel: Callable[[Path], None]
) -> None:
    file.write_text(saved(request="0", replaces=["2,0"]))
    resume(file)
    as_kernel(tmp_path / "runtime" / "kernel-1.json")
    save("3", apply(current(), "3").devices, {})
    again = saved_choice_file()
    assert again is not None
    assert set(take(again).replaces) >= {"2,0", "3"}


def test_a_kernel_of_another_folder_keeps_what_others_remember(
    tmp_path: Path, as_kernel: Callable[[Path], None]
) -> None:
    here, elsewhere = tmp_path / "runtime" / "kernel-1.json", tmp_path / "elsewhere" / "kernel-2.json"
    ended = tmp_path / "runtime" / "kernel-3.json"
    for connection, request in ((ended, "3"), (here, "2"), (elsewhere, "1")):
        as_kernel(connection)
        remember(apply(current(), request).devices)
        ended.unlink(missing_ok=True)
    found = {}
    for connection in (here, elsewhere, ended):
        as_kernel(connection)
        found[connection.stem] = len(remembered())
    assert found == {"kernel-1": 1, "kernel-2": 1, "kernel-3": 0}


def test_a_process_that_nobody_restarts_remembers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    remember(apply(current(), "2").devices)
    assert not list(tmp_path.iterdir())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(st.sampled_from(sorted(CHOICE)), JSON, max_size=2),
    LISTS | JSON,
    st.sampled_from(["", "kernel", "saved"]),
    JSON,
)
@example({"force": "yes"}, "none", "", None)
@example({}, False, "", None)
@example({"growth": True, "memory_limit": "8GB"}, "GPU-8f3a", "", None)
def test_whatever_is_saved_is_applied_as_it_stands_or_refused_in_one_line(
    options: dict[str, Any], request: Any, changed: str, value: Any
) -> None:
    raw = saved(request=request, options=options, **({changed: value} if changed else {})).encode()
    try:
        asked, kept, _ = read_saved(raw, "", time.time())
        read = Options.saved(kept)
    except ChoiceError as error:
        check_refusal(error)
        return
    assert asked == request
    assert {name: getattr(read, name) for name in options} == options
    assert read.force in (True, False), "what is no yes and no no is taken for a yes"
