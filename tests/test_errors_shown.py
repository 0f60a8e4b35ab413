"""Errors of the Python functions show the user's own line: no frames of gpu_magic's, in Python and in IPython."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import pickle
import re
import signal
import threading
import traceback
from functools import partial
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.errors import BindingError, ChoiceError, CudaInitializedWarning, PlacementError
from gpu_magic.public import public
from gpu_magic.testing import simulate, start_cuda

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from tests.conftest import Fresh

PUBLIC = getattr(gpu_magic, "__all__")  # noqa: B009 - the stub has none
FUNCTIONS = [name for name in PUBLIC if inspect.isfunction(getattr(gpu_magic, name))] + ["map"]
# What is wrong, for each function that can be given something wrong.
REFUSED = [
    "gpu_magic.choose(9)",
    "gpu_magic.choose('auto:2', min_free='much')",
    "gpu_magic.wait_for(None)",
    "asyncio.run(gpu_magic.wait_for(9))",
    "asyncio.run(gpu_magic.wait_for('9'))",
    "gpu_magic.on_gpu('nothing')",
    "gpu_magic.on_gpu(9).__enter__()",
    "gpu_magic.on_gpu(9)(print)()",
    "gpu_magic.on_gpu(0)(5)",
    "gpu_magic.to_gpu('model')",
    "gpu_magic.to_gpu([], 'nothing')",
    "gpu_magic.to_cpu(None)",
    "gpu_magic.fit(5)",
    "gpu_magic.end_process(99999999)",
    "gpu_magic.my_processes().find('nobody')",
    "gpu_magic.launch('python', gpus=9)",
    "gpu_magic.launch(5)",
    "gpu_magic.launch(['false']).wait()",
    "gpu_magic.cluster(9)",
    "gpu_magic.map(print, [1])",
    "gpu_magic.gpu_time().usage",
]
# None of them takes this.
MISTYPED = [f"gpu_magic.{name}(nothing_like_it=1)" for name in FUNCTIONS if name != "fit"]
COUNT = r"gpu_magic/[\w/]+\.py"
RUN = f"""
    import asyncio, json, re, traceback, gpu_magic
    def shown(call):
        try:
            eval(call)
        except Exception:
            return traceback.format_exc()
    print("RESULT", json.dumps([[call, shown(call)] for call in {REFUSED + MISTYPED}]))
"""


def most(call: str) -> int:
    """Return how many frames of gpu_magic's are shown at most: a decorated function has that of the decorator."""
    return int("(print)" in call)


def test_every_function_is_tried() -> None:
    tried = {match[1] for call in REFUSED + MISTYPED if (match := re.search(r"gpu_magic\.(\w+)", call))}
    assert set(FUNCTIONS) <= tried


def test_python_shows_the_users_line_alone(fresh: Fresh) -> None:
    said = fresh(RUN, GPU_MAGIC_SIMULATE="4xA100-80GB")
    for call, shown in json.loads(said.rpartition("RESULT ")[2]):
        assert shown, f"{call} raises nothing"
        assert len(re.findall(COUNT, shown)) <= most(call), shown
        assert "During handling" not in shown, shown
        assert "Error" in shown or "Failed" in shown


def test_a_script_that_fails_shows_its_own_line(fresh: Fresh) -> None:
    with pytest.raises(AssertionError) as failed:
        fresh("import gpu_magic\ngpu_magic.choose(9)", GPU_MAGIC_SIMULATE="4xA100-80GB")
    shown = str(failed.value)
    assert shown.count("  File ") == 1
    assert "gpu_magic.errors.ChoiceError: There is no GPU 9" in shown


def test_a_machine_that_is_described_wrongly(fresh: Fresh) -> None:
    calls = [f"gpu_magic.{call}" for call in ("gpus()", "choose(1)", "my_processes()", "launch('true')")]
    said = fresh(RUN.replace(str(REFUSED + MISTYPED), str(calls)), GPU_MAGIC_SIMULATE="many")
    for call, shown in json.loads(said.rpartition("RESULT ")[2]):
        assert "SimulationError" in shown, call
        assert not re.findall(COUNT, shown), shown


def test_ipython_shows_the_users_line_alone(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    for call in (one for one in REFUSED + MISTYPED if "asyncio" not in one):
        with simulate("4xA100-80GB", clock=lambda: 0.0):
            result = shell.run_cell(f"import gpu_magic\n{call}")
        assert result.error_in_exec is not None, call
        shown = capsys.readouterr().out
        assert len(re.findall(COUNT, re.sub(r"\x1b\[[\d;]*m", "", shown))) <= most(call), shown


def test_ipython_awaits(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    with simulate("4xA100-80GB", clock=lambda: 0.0):
        result = shell.run_cell("import gpu_magic\nawait gpu_magic.wait_for(9)")
    assert isinstance(result.error_in_exec, ChoiceError)
    assert not re.findall(COUNT, re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out))


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_the_users_own_code_stays_in_the_traceback() -> None:
    def looked_at(line: str) -> None:
        gpu_magic.choose(9)

    with simulate("1xA100-80GB", clock=lambda: 0.0) as machine:
        machine.gpus[0].run("train.py", "maria", 20 << 30, work=90)
        with pytest.raises(ChoiceError, match="There is no GPU 9") as refused:
            gpu_magic.choose("auto", wait="10s", on_wait=looked_at)
    assert frames(refused.value)[1:] == ["looked_at"]


def test_a_function_on_a_gpu_shows_its_own_lines() -> None:
    @gpu_magic.on_gpu("cpu")
    def train() -> None:
        raise PlacementError("mine")

    with pytest.raises(PlacementError, match="mine") as raised:
        train()
    assert frames(raised.value)[-1] == "train"


def test_what_the_caller_was_handling_stays_the_context() -> None:
    def handle() -> None:
        try:
            dict[str, int]()["mine"]
        except KeyError:
            gpu_magic.choose(9)

    with simulate("1xA100-80GB"), pytest.raises(ChoiceError) as refused:
        handle()
    assert isinstance(refused.value.__context__, KeyError)
    assert refused.value.__context__.__traceback__ is not None


def test_a_cause_is_kept_with_the_frames_of_others() -> None:
    @public
    def wraps() -> None:
        try:
            json.loads("{")
        except ValueError as error:
            raise BindingError("It can't be read.") from error

    with pytest.raises(BindingError) as raised:
        wraps()
    cause = raised.value.__cause__
    assert isinstance(cause, ValueError)
    assert frames(cause)[-1] == "raw_decode"


def test_errors_that_are_nobodys_input_keep_all_frames() -> None:
    @public
    def fails() -> None:
        raise TypeError("a fault of the program")

    with pytest.raises(TypeError) as raised:
        fails()
    assert frames(raised.value)[-2:] == ["called", "fails"]


def test_a_coroutine_shows_the_line_that_awaits_it() -> None:
    @public
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ChoiceError("no")

    async def mine() -> None:
        await fails()

    with pytest.raises(ChoiceError) as raised:
        asyncio.run(mine())
    assert "awaited" not in frames(raised.value)
    assert "mine" in frames(raised.value)


def test_the_warning_of_a_wait_shows_the_line_that_called_it() -> None:
    async def awaits() -> None:
        await gpu_magic.wait_for("1")

    async def makes_a_task() -> None:
        await asyncio.create_task(gpu_magic.wait_for("1"))

    for wait in awaits, makes_a_task:
        with simulate("2xA100-80GB"):
            gpu_magic.choose(0)
            start_cuda()
            with pytest.warns(CudaInitializedWarning) as warned:
                asyncio.run(wait())
        assert (warned[0].filename, warned[0].lineno) == (__file__, wait.__code__.co_firstlineno + 1)


def test_the_log_has_the_frames(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "gpu_magic.api")
    with simulate("1xA100-80GB"), pytest.raises(ChoiceError):
        gpu_magic.choose(9)
    (record,) = caplog.records
    assert record.getMessage().startswith("ChoiceError: There is no GPU 9")
    assert record.exc_info
    assert "select" in "".join(traceback.format_exception(*record.exc_info))


def test_a_function_is_what_it_was_before_it_was_decorated() -> None:
    for name in FUNCTIONS:
        function = getattr(gpu_magic, name)
        assert function.__name__ == name
        assert str(inspect.signature(function)) != "(*args: 'Any', **kwargs: 'Any') -> 'Any'"
        assert pickle.loads(pickle.dumps(function)) is function


def interrupt_soon() -> Callable[[object], None]:
    """Return what interrupts this process once, a moment after its first call: a wait calls it at each look."""
    timers = iter([threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))])

    def call(_: object) -> None:
        for timer in timers:
            timer.start()

    return call


ENDED = "Waiting was stopped. Nothing was changed."


@pytest.mark.parametrize(
    "wait", [partial(gpu_magic.choose, "auto"), partial(gpu_magic.launch, "true", gpus="auto")]
)
def test_an_interrupted_wait_says_what_it_leaves_behind(wait: Callable[..., object]) -> None:
    tasks = list(gpu_magic.tasks())  # of other tests
    with simulate("1xA100-80GB", clock=lambda: 0.0) as machine:
        machine.gpus[0].run("train.py", "maria", 20 << 30, work=90)
        with pytest.raises(KeyboardInterrupt, match=ENDED) as interrupted:
            wait(only_free=True, wait="1h", on_wait=interrupt_soon())
        assert gpu_magic.gpus().now.mask is None
        assert list(gpu_magic.tasks()) == tasks
    assert len(frames(interrupted.value)) == 1


def test_an_interrupt_that_comes_as_the_choice_is_made_does_not_say_that_nothing_was(fresh: Fresh) -> None:
    code = """
    import os, signal, sys
    import gpu_magic

    def interrupt(event, given):
        if event == "os.putenv" and given[0] == b"CUDA_VISIBLE_DEVICES":
            os.kill(os.getpid(), signal.SIGINT)

    sys.addaudithook(interrupt)
    try:
        gpu_magic.choose("auto", wait="1m")
    except KeyboardInterrupt as interrupt:
        print([str(interrupt), os.environ["CUDA_VISIBLE_DEVICES"]])
    """
    assert fresh(code, GPU_MAGIC_SIMULATE="1xA100-80GB", GPU_MAGIC_CLAIMS="off") == "['', '0']\n"


def test_an_interrupt_that_comes_as_a_wait_decides_says_that_nothing_was_changed(fresh: Fresh) -> None:
    code = """
    import os, signal, sys
    import gpu_magic

    def interrupt(frame, event, _):
        if event == "call" and frame.f_code.co_name == "decide":
            os.kill(os.getpid(), signal.SIGINT)

    sys.setprofile(interrupt)
    try:
        gpu_magic.choose("auto", wait="1m")
    except KeyboardInterrupt as interrupt:
        print([str(interrupt), os.environ.get("CUDA_VISIBLE_DEVICES")])
    """
    assert fresh(code, GPU_MAGIC_SIMULATE="1xA100-80GB", GPU_MAGIC_CLAIMS="off") == f"['{ENDED}', None]\n"


def test_ipython_shows_an_interrupted_wait_in_one_line(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.user_ns["soon"] = interrupt_soon()
    with simulate("1xA100-80GB", clock=lambda: 0.0) as machine:
        machine.gpus[0].run("train.py", "maria", 20 << 30, work=90)
        shell.run_cell("import gpu_magic\ngpu_magic.choose(0, wait='1h', on_wait=soon)")
    assert capsys.readouterr().out.strip() == f"KeyboardInterrupt: {ENDED}"


def test_a_cancelled_wait_says_what_it_leaves_behind() -> None:
    async def mine() -> None:
        waiting = asyncio.create_task(gpu_magic.wait_for(1))
        while not waiting.done():
            await asyncio.sleep(0.2)
            waiting.cancel()
        await waiting

    with simulate("1xA100-80GB", clock=lambda: 0.0) as machine:
        machine.gpus[0].run("train.py", "maria", 20 << 30, work=90)
        with pytest.raises(asyncio.CancelledError, match=ENDED) as cancelled:
            asyncio.run(mine())
    assert frames(cancelled.value)[-1] == "mine"
