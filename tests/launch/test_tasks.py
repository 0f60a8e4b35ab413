"""`%gpu_tasks` as typed, in an IPython shell: commands that `%gpu_launch --background` has started."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from IPython.core.completer import provisionalcompleter

import gpu_magic
from gpu_magic.errors import CommandFailed
from gpu_magic.processes.tasks import BackgroundTask, tasks
from gpu_magic.testing import simulate
from tests.processes import marked, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

FAILS = "python -c 'print(6); raise SystemExit(3)'"


@pytest.fixture
def long(run: Callable[[str], str]) -> Callable[[str], str]:
    """Have two tasks that run until they are stopped, `slow` and `ev`."""
    for name in "slow", "ev":
        run(f"%gpu_launch --gpus 0 --background {name} sleep 600")
    return run


def test_without_a_task_it_says_how_one_is_started(run: Callable[[str], str]) -> None:
    assert run("%gpu_tasks").startswith("Nothing was started in the background")
    assert "There is no task wrong: none was started." in run("%gpu_tasks wait wrong")


@pytest.mark.parametrize("names", ["slow, ev", "slow,ev", "slow ev", "ev slow,"])
def test_several_are_stopped_by_their_names(long: Callable[[str], str], names: str) -> None:
    said = long(f"%gpu_tasks stop {names}")
    assert (said.count("slow: sleep 600: stopped"), said.count("ev: sleep 600: stopped")) == (1, 1)


def test_only_those_that_are_named_are_stopped(long: Callable[[str], str]) -> None:
    assert "There is no task other. There are: slow, ev." in long("%gpu_tasks stop ev, other")
    assert "%gpu_tasks stop needs a task's name. %gpu_tasks lists the names." in long("%gpu_tasks stop")
    assert all(task.is_running for task in tasks)
    assert long("%gpu_tasks stop ev").startswith("ev: sleep 600: stopped")
    listed = long("%gpu_tasks").splitlines()
    assert [line.split(":")[0] for line in listed] == ["slow", "ev"]
    assert [task.is_running for task in tasks] == [True, False]


def test_a_verb_has_its_place(long: Callable[[str], str]) -> None:
    assert long("%gpu_tasks slow --stop").startswith(
        "UsageError: There is no --stop. Try %gpu_tasks stop slow"
    )
    assert "There is no task stop. Did you mean %gpu_tasks stop slow ev?" in long("%gpu_tasks slow, ev stop")
    for line in ("%gpu_tasks stopp slow", "%gpu_tasks slow stopp", "%gpu_tasks slow stop"):
        assert "Did you mean %gpu_tasks stop slow?" in long(line)
    assert "There is no task slwo. Did you mean slow?" in long("%gpu_tasks stop slwo")
    assert all(task.is_running for task in tasks)


def test_who_asks_sees_the_figures_of_now(run: Callable[[str], str]) -> None:
    with simulate("1xA100-80GB", clock=lambda: 0.0) as machine:
        run("%gpu_launch --background slow sleep 600")
        until(lambda: "GPU 0: 0 %" in str(tasks.find("slow")))
        machine.gpus[0].run("train.py", "maria", 1 << 30, work=90)
        assert "GPU 0: 0 %" not in run("%gpu_tasks")
        run("%gpu_tasks stop slow")


def test_a_command_whose_gpus_cannot_be_read_goes_on(machine: Path) -> None:
    failing: list[Exception] = []

    def clock() -> float:
        for error in failing:
            raise error
        return 0.0

    with simulate("1xA100-80GB", clock=clock):
        task = gpu_magic.launch("sleep 600", gpus="0")
        until(lambda: "GPU 0: 0 %" in str(task))
        failing.append(RuntimeError("a call failed as nobody has foreseen"))
        until(lambda: "%" not in str(task))
        assert task.is_running
        failing.clear()
        until(lambda: "GPU 0: 0 %" in str(task))
        task.stop()
        assert not task.is_running


class Interrupting(io.StringIO):
    """A stream that interrupts who writes the first text, as a user can at that moment."""

    def write(self, text: str) -> int:
        sys.stdout = sys.__stdout__
        raise KeyboardInterrupt


def test_a_command_is_ended_or_listed_if_an_interrupt_comes_before_it_is_shown(
    run: Callable[[str], str], shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for background in "", "--background long":
        mark = uuid4().hex
        try:
            monkeypatch.setattr(sys, "stdout", Interrupting())
            shell.run_cell(f"%gpu_launch {background} --env MARK={mark} sleep 600")
        finally:
            monkeypatch.undo()
        assert bool(marked(mark)) == bool(background)
    assert [task.name for task in tasks if task.is_running] == ["long"]


def test_a_command_is_shown_as_it_is_typed(run: Callable[[str], str]) -> None:
    for command in (
        """python -c 'print("a")'""",
        """python -c "print('a')\"""",
        """printf %s "it's\"""",
        "true 'a b' c",
    ):
        assert f"{command}: done · " in run(f"%gpu_launch --gpus 0 -- {command}")


def test_a_name_is_one_that_its_line_can_have(long: Callable[[str], str]) -> None:
    for name in "wait", "stop", "a,b":
        assert f"{name} cannot be a task's name." in long(f"%gpu_launch --background {name} true")
        assert f"a {name} cannot be a task's name." in long(f"%gpu_launch --background 'a {name}' true")
        assert f"{name} cannot be a task's name." in long(
            f"get_ipython().run_cell_magic('on_gpu', 'cpu --background {name}', '1')"
        )
    for name in "a\u202eb", "a" * 100:
        assert "cannot be a task's name." in long(f"%gpu_launch --background {name} true")
        assert name not in long("%gpu_tasks")
    assert "slow already runs. Choose another name, or stop it: %gpu_tasks stop slow" in long(
        "%gpu_launch --background slow true"
    )
    assert len(list(tasks)) == 2


def test_one_that_is_waited_for_shows_what_it_wrote(run: Callable[[str], str]) -> None:
    run("%gpu_launch --background ok python -c 'print(5)'")
    first, second = run("%gpu_tasks wait ok").splitlines()
    assert first == "5"
    assert second.startswith("ok: python -c 'print(5)': done · ")
    for how in "wait ok", "ok":
        assert run(f"%gpu_tasks {how}").splitlines() == [first, second]
    assert run("%gpu_tasks stop ok") == run("%gpu_tasks") == f"{second}\n"
    run(f"%gpu_launch --background bad {FAILS}")
    said = run("%gpu_tasks wait ok, bad")
    assert said.startswith(f"5\n6\n{second}\n")
    assert "failed with exit code 3" in said


class Failing(BackgroundTask):
    """Runs until somebody waits for it, and has failed then."""

    name, is_running = "failing", True

    @property
    def has_failed(self) -> bool:
        return not self.is_running

    def join(self, timeout: float | None = None) -> bool:
        self.is_running = False
        return True

    def check(self) -> None:
        raise CommandFailed(str(self))

    def wait(self, timeout: float | None = None) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        return "failed"


def test_without_a_name_all_are_waited_for_and_a_failure_is_an_error_once(
    run: Callable[[str], str], shell: InteractiveShell
) -> None:
    run("%gpu_launch --background one sleep 1")
    tasks.add(Failing())
    run("%gpu_launch --background three true")

    def succeeds(line: str) -> bool:
        return shell.run_cell(line).success

    assert not succeeds("%gpu_tasks wait")
    assert not any(task.is_running for task in tasks)
    assert succeeds("%gpu_tasks wait")
    assert [line.split(":")[0] for line in run("%gpu_tasks").splitlines()] == ["one", "failing", "three"]
    assert not succeeds("%gpu_tasks wait failing")
    assert succeeds("%gpu_tasks wait three")


def test_tab_offers_the_verbs_and_then_names(long: Callable[[str], str], shell: InteractiveShell) -> None:
    def offers(line: str) -> list[str]:
        with provisionalcompleter():
            return [one.text for one in shell.Completer.completions(line, len(line))]

    assert offers("%gpu_tasks ") == ["wait", "stop", "slow", "ev"]
    assert offers("%gpu_tasks s") == ["stop", "slow"]
    assert offers("%gpu_tasks stop ") == ["slow", "ev"]
    assert offers("%gpu_tasks wait slow, ") == ["ev"]
    assert offers("%gpu_tasks wait slow,") == ["ev"]
