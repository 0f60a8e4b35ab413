"""`%gpu_park` and `%gpu_unpark` in a shell, with the framework of the tests on a simulated machine: room, waits, lines."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.errors import NotFreeError, PlacementError
from gpu_magic.process.parked import parked
from tests.claims.holders import stranger
from tests.conftest import LIMIT
from tests.eight_gpus import COUNT, Array, EightGpus, registered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.testing import Machine
    from tests.conftest import Typed

    Run = Callable[[str], list[str]]

pytestmark = pytest.mark.machine(f"{COUNT}xA100-80GB")

GPU = "cuda:{0} = GPU {0} (SIMULATED NVIDIA A100-SXM4-80GB)"
TOLD = "Variables are parked on the CPU: 1.0 MiB from cuda:1 and 1.0 MiB from cuda:2. To bring them back: %gpu_unpark"


@pytest.fixture
def framework(tmp_path: Path, machine: Machine) -> Iterator[EightGpus]:
    with registered(tmp_path) as framework:
        framework.free = 1 << 40
        yield framework
    parked.replace(())


@pytest.fixture
def run(framework: EightGpus, shell: InteractiveShell, typed: Typed) -> Run:
    """Return a way to run a cell in a shell with variables on two GPUs; the lines that are shown."""
    shell.run_line_magic("xmode", "Minimal")
    x = Array(1)
    shell.push({"x": x, "pair": (x, Array(2)), "here": Array(None), "n": 3, "Array": Array})
    return lambda cell: typed(cell).text.splitlines()


def where(shell: InteractiveShell) -> list[int | None]:
    names = shell.user_ns
    return [names["x"].ordinal, *(one.ordinal for one in names["pair"]), names["here"].ordinal]


def test_there_and_back(run: Run, shell: InteractiveShell, framework: EightGpus) -> None:
    framework.reserved = 1 << 20
    assert run("%gpu_park --dry-run") == [
        "Would park x (1.0 MiB) and pair (1.0 MiB): 2.0 MiB in the host's memory, where 1.0 TiB are free."
    ]
    assert where(shell) == [1, 1, 2, None]
    first, *figures, last = run("%gpu_park")
    assert first == "Parked x (1.0 MiB) and pair (1.0 MiB)."
    assert figures[1] == f"{GPU.format(1)}: 1.0 MiB → 1.0 MiB in use"
    assert last == TOLD
    assert where(shell) == [None] * 4
    assert shell.user_ns["pair"][0] is shell.user_ns["x"]
    assert run("%gpu_unpark --dry-run") == [
        f"Would go back to {GPU.format(1)}: x (1.0 MiB) and pair.",
        f"Would go back to {GPU.format(2)}: pair (1.0 MiB).",
    ]
    assert run("%gpu_unpark") == [
        f"Back on {GPU.format(1)}: x (1.0 MiB) and pair.",
        f"Back on {GPU.format(2)}: pair (1.0 MiB).",
    ]
    assert where(shell) == [1, 1, 2, None]
    assert shell.user_ns["pair"][0] is shell.user_ns["x"]


def test_the_first_cell_afterwards_shows_once_that_variables_are_parked(
    run: Run, shell: InteractiveShell
) -> None:
    run("%gpu_park")
    assert run("print(n)") == ["3", TOLD]  # printed, then shown
    assert run("print(n)") == ["3"]
    run("%gpu_unpark")
    run("%gpu_park x")
    gpu_magic.park()  # again, which shows it no more often
    shell.run_cell("n", silent=True)  # hidden, as a front end's own
    assert run("print(n)") == ["3", TOLD]
    run("%gpu_unpark")
    assert where(shell) == [1, 1, 2, None]
    run("%gpu_park")
    run("%gpu_unpark")  # as they are back before they are used
    assert run("print(n)") == ["3"]


@pytest.mark.parametrize(
    "cell",
    [
        "# bring it back\n%gpu_unpark",
        "1\n%gpu_unpark",
        "r = %gpu_unpark",
        "import gpu_magic; r = gpu_magic.unpark()",
        "resume()",
    ],
)
def test_a_cell_that_brings_all_back_does_not_say_that_something_is_parked(run: Run, cell: str) -> None:
    run("import gpu_magic\ndef resume():\n    print(gpu_magic.unpark())")
    run("%gpu_park")
    assert not [line for line in run(cell) if "parked" in line]
    assert run("print(n)") == ["3"]


def test_a_failing_cell_says_below_its_error_that_variables_are_parked(run: Run) -> None:
    run("%gpu_park")
    assert sorted(run("x.here")) == ["", "AttributeError: 'Array' object has no attribute 'here'", TOLD]


def test_what_is_parked_stands_once_in_a_cell_that_shows_it(run: Run, shell: InteractiveShell) -> None:
    run("%gpu_park")
    assert run("# again\n%gpu_park") == ["Nothing to park.", TOLD]
    assert run("1\n%gpu_free").count(TOLD) == 1
    assert run("%gpu_unpark x")[1:] == [TOLD.replace("1.0 MiB from cuda:1 and ", "")]
    run("%gpu_unpark")
    run("%gpu_park")
    shell.push({"new": Array(3)})
    first, *_, last = run("%gpu_park")
    assert (first, last) == (
        "Parked new (1.0 MiB).",
        TOLD.replace(" and ", ", ").replace(". To", " and 1.0 MiB from cuda:3. To"),
    )
    assert run("spark = 1")[0].startswith("Variables are parked on the CPU: ")


def test_no_cell_prints_it_once_the_extension_is_unloaded(run: Run, shell: InteractiveShell) -> None:
    run("%gpu_park")
    shell.run_line_magic("unload_ext", "gpu_magic")
    assert run("print(n)") == ["3"]
    shell.run_line_magic("load_ext", "gpu_magic")
    run("%gpu_unpark")
    assert where(shell) == [1, 1, 2, None]


def test_where_and_gpu_free_and_gpus_know_what_is_parked(run: Run) -> None:
    run("%gpu_park")
    run("n")
    assert run("%where x pair here") == [
        "x     the CPU, parked from cuda:1: 1.0 MiB",
        "pair  the CPU, parked from cuda:1: 1.0 MiB",
        "      the CPU, parked from cuda:2: 1.0 MiB",
        "here  the CPU: 1.0 MiB",
    ]
    assert run("%gpu_free")[-1] == TOLD
    (line,) = (line for line in run("print(__import__('gpu_magic').gpus())") if line.startswith("Parked"))
    assert (
        line.split(maxsplit=1)[1]
        == "1.0 MiB from cuda:1 and 1.0 MiB from cuda:2. To bring it back: %gpu_unpark"
    )
    run("%gpu_unpark")
    assert not [line for line in run("print(__import__('gpu_magic').gpus())") if line.startswith("Parked")]


def test_too_little_memory_on_the_host_is_refused_with_the_figures(
    run: Run, shell: InteractiveShell, framework: EightGpus
) -> None:
    framework.free = 1 << 20
    said = (
        "UsageError: 2.0 MiB do not fit in the host's memory, where 1.0 MiB are free. Nothing was changed. "
        "Park some: %gpu_park NAME"
    )
    assert run("%gpu_park") == [said]
    assert where(shell) == [1, 1, 2, None]
    run("%gpu_park x")
    assert where(shell) == [None, None, 2, None]


def test_a_full_gpu_is_refused_with_who_holds_it_and_another_one_can_be_named(
    run: Run, shell: InteractiveShell, framework: EightGpus, machine: Machine
) -> None:
    machine.gpus[1].run("train.py", "maria", 60 << 30)
    run("%gpu_park x")
    framework.free = 1000
    (said,) = run("%gpu_unpark")
    begin = f"UsageError: 1.0 MiB do not fit on {GPU.format(1)}, where 1000 bytes are free ("
    assert said.startswith(begin)
    assert "maria: train.py, 60.0 GiB" in said
    assert said.endswith(
        "). Nothing was changed. To wait: %gpu_unpark --wait 30m. To another GPU: %gpu_unpark --device 1"
    )
    assert where(shell) == [None, None, 2, None]
    framework.free = 1 << 40
    assert run("%gpu_unpark --device smi:5")[0] == f"Back on {GPU.format(5)}: x (1.0 MiB) and pair."
    assert where(shell) == [5, 5, 2, None]


def test_a_wait_ends_when_there_is_room(run: Run, shell: InteractiveShell, framework: EightGpus) -> None:
    run("%gpu_park")
    framework.free = 1000
    lines: list[str] = []

    def on_wait(line: str) -> None:
        lines.append(line)
        framework.free = 1 << 40

    gpu_magic.unpark(wait="1h", on_wait=on_wait)
    assert lines[0].startswith("Waiting for SIMULATED GPU 1 and GPU 2, 0 s of 1 h: ")
    assert where(shell) == [1, 1, 2, None]


def test_a_wait_leaves_the_gpu_to_who_came_before(
    shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", f"{COUNT}xA100-80GB clock=0")
    shell.run_line_magic("load_ext", "gpu_magic")
    shell.push({"x": Array(1), "y": Array(2)})
    lines: list[str] = []
    with registered(tmp_path), stranger() as earlier:
        gpu_magic.park()
        uuid = gpu_magic.gpus()[1].uuid
        earlier.run("import gpu_magic.claims.held, gpu_magic.claims.folder")
        earlier.run("globals().update(held=sys.modules['gpu_magic.claims.held'])")
        earlier.run("globals().update(folder_of=sys.modules['gpu_magic.claims.folder'])")
        earlier.run(
            f"globals().update(place=held.PlaceInLine(folder_of.Access())) or place.join('1 0 0 {uuid}')"
        )

        def on_wait(line: str) -> None:
            lines.append(line)
            earlier.run("place.leave()")

        gpu_magic.unpark("x", wait="1h", on_wait=on_wait)
        assert "GPU 1 is kept for " in lines[0]
        assert [shell.user_ns[name].ordinal for name in "xy"] == [1, None]
        parked.replace(())


def test_a_wait_that_ends_without_room_changes_nothing(
    run: Run, shell: InteractiveShell, framework: EightGpus
) -> None:
    run("%gpu_park")
    framework.free = 1000
    with pytest.raises(NotFreeError, match=r"Timed out after .* waiting for SIMULATED GPU 1"):
        gpu_magic.unpark(wait=0.01)

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gpu_magic.unpark(wait="1h", on_wait=interrupt)
    assert where(shell) == [None] * 4
    framework.free = 1 << 40
    run("%gpu_unpark --wait 1h")
    assert where(shell) == [1, 1, 2, None]


def test_parked_arrays_are_kept_alive_only_by_variables(run: Run, shell: InteractiveShell) -> None:
    run("%gpu_park")
    there = weakref.ref(shell.user_ns["x"])
    gc.disable()
    try:
        run("%gpu_unpark")
        assert there() is None
    finally:
        gc.enable()


@pytest.mark.timeout(LIMIT)  # searches 150,000 objects several times
def test_what_is_named_is_found_however_long_that_takes(run: Run, shell: InteractiveShell) -> None:
    """Deep in a variable with more objects than a search through all variables looks at."""
    x = shell.user_ns["x"]
    boxes = [SimpleNamespace(inner=[number]) for number in range(150_000)]
    boxes[0].inner = [x]
    shell.user_ns.clear()
    shell.push({"boxes": boxes})
    del x
    assert run("%gpu_park boxes --dry-run") == [
        "Would park boxes (1.0 MiB): 1.0 MiB in the host's memory, where 1.0 TiB are free."
    ]
    run("%gpu_park boxes")
    assert boxes[0].inner[0].ordinal is None
    run("%gpu_unpark")
    assert boxes[0].inner[0].ordinal == 1
    said = gpu_magic.park().text
    assert said.count("boxes") == 1  # not searched in full


BAD = {
    "%gpu_park nothing": "nothing is not a variable here.",
    "%gpu_park n": "Nothing to park in n: no arrays on a GPU.",
    "%gpu_park here": "Nothing to park in here: no arrays on a GPU.",
    "%gpu_park 3": "3 names a device, not a variable.",
    "%gpu_park cuda:1": "cuda:1 names a device, not a variable.",
    "%gpu_park n;": "Nothing to park in n: no arrays on a GPU.",
    "%gpu_park x.device()": "'x.device()' is not a variable, attribute or item.",
    "%gpu_unpark 3": "3 is not a variable. To name a device: --device 3",
    "%gpu_unpark --device cpu": "What is parked is on the CPU already.",
    "%gpu_unpark --dry-run --wait soon": "soon is not a time.",
    "%gpu_unpark --device nowhere": "'nowhere' is not a device",
    "%gpu_unpark --device 9": "cuda:9 cannot be used: there are eight.",
    "%gpu_unpark --wait soon": "soon is not a time. Try 30m, 90s or 1h30m",
}


@pytest.mark.parametrize(("line", "said"), BAD.items())
def test_bad_input_is_one_line_and_nothing_has_moved(
    run: Run, shell: InteractiveShell, line: str, said: str
) -> None:
    if "unpark" in line:
        run("%gpu_park")
    before = where(shell)
    shown = run(line)
    assert len(shown) == 1
    assert said in shown[0]
    assert where(shell) == before
    run("%gpu_unpark")
    assert where(shell) == [1, 1, 2, None]


def test_without_a_name_of_its_gpu_a_device_cannot_be_waited_for(
    run: Run, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("%gpu_park x")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-nowhere")
    with pytest.raises(PlacementError, match="is unknown"):
        gpu_magic.unpark(wait="1h")
