"""When a kernel parks by itself: its clock is set forward here. `tests/kernel/test_parking.py` has real kernels."""

from __future__ import annotations

import os
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from traitlets import TraitError

from gpu_magic.park.idle import OwnRest
from gpu_magic.process.parked import parked
from gpu_magic.shell.parking import IdleParking
from tests.eight_gpus import COUNT, Array, EightGpus, registered
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.testing import Machine
    from tests.conftest import Typed

pytestmark = pytest.mark.machine(f"{COUNT}xA100-80GB")
MINUTE = 60


class Idle:
    """A kernel's part that parks, with a clock and an event loop that stand still."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.now, self._calls = 0.0, list[Any]()
        kernel = SimpleNamespace(io_loop=SimpleNamespace(add_callback=self._calls.append))
        shell.kernel = kernel  # type: ignore[attr-defined] # as ipykernel's shells have one
        self.parking = IdleParking(shell, lambda: self.now)
        self.names = shell.user_ns

    def is_parked_after(self, seconds: float) -> bool:
        """Set the clock forward, and let the loop run. Return whether the array is parked."""
        self.now += seconds
        self.parking.look()
        while self._calls:
            self._calls.pop()()
        return self.names["x"].ordinal is None


@pytest.fixture
def idle(
    shell: InteractiveShell, typed: Typed, machine: Machine, tmp_path: Path
) -> Iterator[tuple[Idle, EightGpus]]:
    with registered(tmp_path) as framework:
        framework.free = 1 << 40
        shell.push({"x": Array(1)})
        one = Idle(shell)
        one.parking.set_after(30 * MINUTE)
        yield one, framework
        one.parking.close()
    parked.replace(())


def test_it_parks_after_that_time_and_not_before(idle: tuple[Idle, EightGpus], typed: Typed) -> None:
    one, _ = idle
    assert not one.is_parked_after(29 * MINUTE)
    assert one.is_parked_after(MINUTE)
    one.parking.set_after(None)
    back = "Variables were parked while this kernel was idle. Back: 1.0 MiB on cuda:1.\n"
    assert typed("display(x.ordinal)").text == f"{back}1\n"
    assert one.names["x"].ordinal == 1
    assert not one.is_parked_after(300 * MINUTE)  # off


def test_it_tries_once_after_a_cell(idle: tuple[Idle, EightGpus], typed: Typed) -> None:
    one, framework = idle
    framework.free = 1000
    assert not one.is_parked_after(30 * MINUTE)
    framework.free = 1 << 40
    assert not one.is_parked_after(30 * MINUTE)
    one.parking.set_after(None)
    said = "This idle kernel could not park its variables: 1.0 MiB do not fit in the host's memory, where 1000 bytes"
    assert typed("display(1)").text.startswith(said)
    assert typed("display(1)").text == "1\n"


def test_where_gpus_cannot_be_read_it_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "nonsense")
    rest = OwnRest().look(300 * MINUTE)
    assert (rest.seconds, rest.why_not) == (0, "Whether this kernel works on a GPU is unknown.")


def test_the_clock_begins_again_with_each_cell(idle: tuple[Idle, EightGpus], shell: InteractiveShell) -> None:
    one, _ = idle
    assert not one.is_parked_after(29 * MINUTE)
    shell.events.trigger("post_run_cell", None)
    assert not one.is_parked_after(29 * MINUTE)
    assert one.is_parked_after(MINUTE)


def test_what_was_parked_by_hand_stays_so(idle: tuple[Idle, EightGpus], typed: Typed) -> None:
    one, _ = idle
    one.parking.set_after(None)
    typed("%gpu_park")
    typed("print(1)")
    one.parking.set_after(MINUTE)
    assert one.is_parked_after(30 * MINUTE)
    one.parking.set_after(None)
    assert typed("display(x.ordinal)").text == "None\n"


def test_a_full_gpu_that_cannot_be_waited_for_stops_the_cell_with_what_to_type(
    idle: tuple[Idle, EightGpus], typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, framework = idle
    assert one.is_parked_after(30 * MINUTE)
    one.parking.set_after(None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-nowhere")
    framework.free = 1000
    said = " ".join(typed("display('ran')").text.split())
    assert said.startswith("PlacementError: This cell did not run because its variables are parked:")
    assert said.endswith("To another GPU: %gpu_unpark --device 1. To leave them on the CPU: %gpu_park")
    assert "ran'" not in said
    framework.free = 1 << 40
    assert typed("display('ran')").text.endswith("Back: 1.0 MiB on cuda:1.\n'ran'\n")


def test_the_server_is_answered_as_soon_as_it_is_known_who_works(
    idle: tuple[Idle, EightGpus], machine: Machine
) -> None:
    """The first look at a busy GPU that others use does not tell."""
    machine.gpus[1].run("train.py", "tom", 20 << 30, work=90)
    machine.gpus[1].run("ipykernel", "maria", 2 << 30, pid=os.getpid(), work=0)
    one, answers = idle[0], list[Any]()
    one.parking.set_after(None)
    one.parking.ask(SimpleNamespace(send=answers.append, close=list))
    until(lambda: one.is_parked_after(0))
    assert answers == [{"parked": 1 << 20}]


def test_beside_what_was_parked_by_hand_nothing_parks_and_the_server_is_told(
    idle: tuple[Idle, EightGpus], typed: Typed, shell: InteractiveShell
) -> None:
    one, answers = idle[0], list[Any]()
    shell.push({"big": Array(1)})
    one.parking.set_after(None)
    typed("%gpu_park x")
    one.parking.ask(SimpleNamespace(send=answers.append, close=list))
    until(lambda: one.is_parked_after(0) and bool(answers))
    assert answers == [{"refused": "Others are parked by hand. To bring them back: %gpu_unpark"}]
    assert shell.user_ns["big"].ordinal == 1


def test_a_cell_that_runs_between_the_question_and_the_parking_keeps_the_variables(
    idle: tuple[Idle, EightGpus], typed: Typed
) -> None:
    one, answers = idle[0], list[Any]()
    one.parking.set_after(None)
    one.parking.ask(SimpleNamespace(send=answers.append, close=list))
    typed("1")
    until(lambda: one.is_parked_after(0) or bool(answers))
    assert answers == [{"refused": "This kernel is in use."}]
    assert one.names["x"].ordinal == 1
    one.parking.ask(SimpleNamespace(send=answers.append, close=list))
    until(lambda: one.is_parked_after(0))


def test_a_server_cannot_ask_without_bound(idle: tuple[Idle, EightGpus]) -> None:
    answers: list[Any] = []
    comms = [SimpleNamespace(send=answers.append, close=list) for _ in range(10)]
    idle[0].parking.set_after(None)
    for comm in comms:
        idle[0].parking.ask(comm)
    idle[0].parking.close()
    assert len(answers) == 10


@pytest.mark.parametrize("value", ["'soon'", "True", "-3", "'30 parsecs'", "[1]"])
def test_a_bad_time_is_one_line_and_changes_nothing(
    typed: Typed, shell: InteractiveShell, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    typed("%config GpuMagics.park_after = '30m'")
    typed(f"%config GpuMagics.park_after = {value}")
    (said,) = caplog.messages
    assert re.fullmatch(r"park_after: .* is not a time\. Try 30m, 90s or 1h30m\. To turn it off: None", said)
    assert typed("%config GpuMagics.park_after").value == "30m"


@pytest.mark.parametrize("value", ["None", "0", "'0'", "''", "' off '", "False"])
def test_each_value_that_means_off_turns_it_off(typed: Typed, value: str) -> None:
    typed("%config GpuMagics.park_after = '30m'")
    typed(f"%config GpuMagics.park_after = {value}")
    assert typed("%config GpuMagics.park_after").value is None


def test_a_bad_time_in_the_configuration_adds_nothing(shell: InteractiveShell) -> None:
    shell.config.GpuMagics.park_after = "soon"
    with pytest.raises(TraitError, match=r"park_after: soon is not a time\. Try 30m") as refused:
        shell.run_line_magic("load_ext", "gpu_magic")
    (line,) = refused.value._render_traceback_()  # type: ignore[attr-defined] # IPython's protocol
    assert line.endswith("It is in IPython's configuration; gpu_magic is not loaded.")
    shell.config.GpuMagics.park_after = "2h"
    shell.run_line_magic("load_ext", "gpu_magic")
    assert shell.run_line_magic("config", "GpuMagics.park_after") == "2h"
