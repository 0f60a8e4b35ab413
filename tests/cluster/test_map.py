"""`gpu_magic.map` from a program: calls are spread over engines, and the first that fails ends all."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ipyparallel import AsyncResult, LoadBalancedView

import gpu_magic
from tests.conftest import LIMIT
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable


def number() -> Callable[[object], str]:
    """Return a function that tells the number of its engine. No engine can import it."""
    return lambda _: os.environ["GPU_MAGIC_INDEX"]


def processes(cluster: gpu_magic.Cluster) -> list[int]:
    return cluster.client[:].apply_async(os.getpid).get(LIMIT)


def test_results_are_in_the_order_of_the_items_and_a_free_engine_takes_the_next(
    cluster: gpu_magic.Cluster, tmp_path: Path
) -> None:
    def waits(item: int) -> tuple[int, str]:
        if item == 0:
            while not (tmp_path / "last").exists():
                time.sleep(0.01)
        if item == 39:
            (tmp_path / "last").touch()
        return item, os.environ["GPU_MAGIC_INDEX"]

    found = gpu_magic.map(waits, range(40))
    assert [item for item, _ in found] == list(range(40))
    ranks = [rank for _, rank in found]
    assert ranks.count(ranks[0]) == 1


def test_items_can_come_from_an_iterator_and_be_none(cluster: gpu_magic.Cluster) -> None:
    assert gpu_magic.map(abs, (-item for item in range(3))) == [0, 1, 2]
    assert gpu_magic.map(abs, []) == []


def test_what_was_defined_here_goes_there_and_comes_back(cluster: gpu_magic.Cluster) -> None:
    @dataclass
    class Point:
        x: int

    factor = 3

    def scale(point: Point) -> Point:
        return Point(point.x * factor)

    assert gpu_magic.map(scale, [Point(1), Point(2)]) == [Point(3), Point(6)]


def test_calls_are_no_ranks(cluster: gpu_magic.Cluster) -> None:
    cluster.client[:].execute("import os; kept = os.environ['RANK']", block=False).get(LIMIT)
    names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG"
    assert gpu_magic.map(lambda _: [name for name in names if name in os.environ], [0, 1]) == [[], []]
    assert sorted(cluster.client[:].pull("kept", block=False).get(LIMIT)) == ["0", "1"]


@pytest.mark.parametrize("gpus", [0, "0", [0]])
def test_engines_are_named_by_their_gpus(cluster: gpu_magic.Cluster, gpus: Any) -> None:
    """GPU 0 is that of engine 1."""
    assert set(gpu_magic.map(number(), range(4), gpus=gpus)) == {"1"}


@pytest.mark.parametrize(
    ("gpus", "says"),
    [
        (3, "No engine has GPU 3. They have GPU 2 and GPU 0."),
        ("GPU-77", "No engine has GPU-77. They have GPU 2 and GPU 0."),
        ("auto", "No engine has auto. They have GPU 2 and GPU 0."),
        ("2 0", "'2 0': separate GPUs by commas. Try 2,0"),
        ("2 1", "No engine has GPU 1. They have GPU 2 and GPU 0."),
        ("2,all", "'all' cannot be part of a list. Try all"),
    ],
)
def test_gpus_without_an_engine_are_one_line(cluster: gpu_magic.Cluster, gpus: Any, says: str) -> None:
    with pytest.raises((gpu_magic.ClusterError, gpu_magic.ChoiceError)) as raised:
        gpu_magic.map(abs, [1], gpus=gpus)
    assert str(raised.value) == says


def test_the_first_error_ends_all_and_the_engines_go_on(cluster: gpu_magic.Cluster, tmp_path: Path) -> None:
    before = processes(cluster)

    def fails(item: int) -> None:
        (tmp_path / f"begun-{item}").touch()
        if item == 0:
            time.sleep(LIMIT)
        while not (tmp_path / "begun-0").exists():
            time.sleep(0.01)
        raise ValueError("no such\nthing")

    with pytest.raises(gpu_magic.CallFailed) as raised:
        gpu_magic.map(fails, range(100))
    error = raised.value
    assert (error.position, error.kind) == (1, "ValueError")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["begun-0", "begun-1"]
    label = cluster.engines[error.engine].label
    line = next(
        number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "no such" in text
    )
    assert str(error) == (
        f"Item 1 (1) failed in {label}:\n"
        "Traceback (most recent call last):\n"
        f'  File "{__file__}", line {line}, in fails\n'
        '    raise ValueError("no such\\nthing")\n'
        "ValueError: no such\nthing"
    )
    assert gpu_magic.map(lambda _: os.getpid(), range(20))
    assert processes(cluster) == before


def test_an_exit_is_an_error(cluster: gpu_magic.Cluster) -> None:
    with pytest.raises(gpu_magic.CallFailed) as raised:
        gpu_magic.map(lambda _: sys.exit(3), [1])
    assert raised.value.kind == "SystemExit"
    assert gpu_magic.map(abs, [-1]) == [1]


def test_an_engine_that_ends_is_named_with_its_item_and_started_anew(
    cluster: gpu_magic.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(item: int) -> int:
        if item == 5:
            # Its guardian, which tells how it has ended, is late: the controller of the engines knows it before.
            os.system(f"kill -STOP {os.getppid()}; (sleep 1; kill -CONT {os.getppid()}) &")
            os.kill(os.getpid(), 9)
        return item

    with pytest.raises(gpu_magic.CallFailed) as raised:
        gpu_magic.map(ends, range(1000))
    error = raised.value
    label = cluster.engines[error.engine].label.capitalize().replace("gpu", "GPU")
    assert str(error) == f"{label} has ended during item 5 (5)."
    assert error.__notes__ == [f"{label} was restarted without variables."]
    assert "ended by SIGKILL" in capsys.readouterr().err
    assert [gpu_magic.map(number(), [0], gpus=gpu) for gpu in (2, 0)] == [["0"], ["1"]]


def test_engines_that_can_not_load_the_function_say_so(cluster: gpu_magic.Cluster) -> None:
    class Hidden:
        def __reduce__(self) -> Any:
            return __import__, ("not_installed_there",)

        def __call__(self, item: int) -> int:
            return item

    with pytest.raises(gpu_magic.CallFailed) as raised:
        gpu_magic.map(Hidden(), [1])
    first, *_, last = str(raised.value).splitlines()
    assert first.startswith("Hidden cannot be loaded in engine ")
    assert last == "ModuleNotFoundError: No module named 'not_installed_there'"
    assert raised.value.position is None


def test_what_can_not_be_pickled_is_one_line_and_nothing_runs(
    cluster: gpu_magic.Cluster, tmp_path: Path
) -> None:
    lock = threading.Lock()

    def touches(item: object) -> object:
        (tmp_path / "begun").touch()
        return item

    def uses_the_lock(item: object) -> object:
        return touches(lock)

    says = "cannot be handed over: TypeError: cannot pickle '_thread.lock' object"
    with pytest.raises(gpu_magic.ClusterError, match=f"Item 1 {says}"):
        gpu_magic.map(touches, [0, lock])
    with pytest.raises(gpu_magic.ClusterError, match=f"uses_the_lock {says}"):
        gpu_magic.map(uses_the_lock, [0])
    assert not (tmp_path / "begun").exists()
    with pytest.raises(gpu_magic.CallFailed, match=f"Item 0 .*\nThe result {says}") as raised:
        gpu_magic.map(lambda _: threading.Lock(), [0])
    assert raised.value.kind == ""


def test_what_is_no_function_is_one_line(cluster: gpu_magic.Cluster) -> None:
    with pytest.raises(
        gpu_magic.ClusterError, match=r"^3 is not a function, which map calls with each item\.$"
    ):
        gpu_magic.map(3, [1])  # type: ignore[arg-type]


def test_what_calls_write_is_shown_behind_the_position_of_their_item(
    cluster: gpu_magic.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def speaks(item: str) -> None:
        print(item, "is\nhere")
        if item == "b":
            raise ValueError(item)

    gpu_magic.map(speaks, ["a"])
    assert capsys.readouterr().out == "[0] a is\n[0] here\n"
    with pytest.raises(gpu_magic.CallFailed):
        gpu_magic.map(speaks, ["b"])
    assert capsys.readouterr().out == "[0] b is\n[0] here\n"


def test_what_a_call_writes_is_shown_also_if_it_is_over_before_anybody_looks(
    cluster: gpu_magic.Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_async = LoadBalancedView.apply_async

    def waits(view: LoadBalancedView, *args: object) -> AsyncResult:
        reply = apply_async(view, *args)
        reply.wait_for_output()
        return reply

    monkeypatch.setattr(LoadBalancedView, "apply_async", waits)
    gpu_magic.map(print, ["a"])
    assert capsys.readouterr().out == "[0] a\n"


def test_what_calls_write_is_shown_while_they_run(
    cluster: gpu_magic.Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def speaks(item: int) -> int:
        print("begun", flush=True)
        while not (tmp_path / "seen").exists():
            time.sleep(0.01)
        return item

    seen = ""

    def look() -> None:
        def is_there() -> bool:
            nonlocal seen
            seen += capsys.readouterr().out
            return "[0] begun\n" in seen

        until(is_there)
        (tmp_path / "seen").touch()

    thread = threading.Thread(target=look)
    thread.start()
    assert gpu_magic.map(speaks, [7]) == [7]
    thread.join()


@pytest.mark.nightly  # it takes over a second
def test_no_bar_goes_to_a_file(cluster: gpu_magic.Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_magic.map(lambda item: (time.sleep(1.2), item)[1], [1, 2, 3]) == [1, 2, 3]
    assert capsys.readouterr() == ("", "")


def test_an_engine_that_does_something_else_is_left_to_it(cluster: gpu_magic.Cluster, tmp_path: Path) -> None:
    """Neither is it waited for, nor interrupted; and once it is free, it takes part."""

    def waits(folder: Path) -> str:
        (folder / "begun").touch()
        while not (folder / "end").exists():
            time.sleep(0.01)
        return "not interrupted"

    other = cluster.client[0].apply_async(waits, tmp_path)
    until((tmp_path / "begun").exists)
    assert set(gpu_magic.map(number(), range(5))) == {"1"}
    with pytest.raises(gpu_magic.CallFailed):
        gpu_magic.map(lambda item: 1 / item, [0])

    def ends_the_other(item: int) -> str:
        (tmp_path / "end").touch()
        if item == 0:
            while not (tmp_path / "from-0").exists():
                time.sleep(0.01)
        if os.environ["GPU_MAGIC_INDEX"] == "0":
            (tmp_path / "from-0").touch()
        return os.environ["GPU_MAGIC_INDEX"]

    assert set(gpu_magic.map(ends_the_other, range(5))) == {"0", "1"}
    assert other.get(LIMIT) == "not interrupted"
