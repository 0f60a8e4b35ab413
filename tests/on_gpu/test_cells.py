"""A `%%on_gpu` cell is a cell like any other: in a shell of this process, with a framework of these tests."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import sys
from typing import TYPE_CHECKING

import nbformat
import pytest
from IPython.core.error import UsageError
from nbformat.v4 import new_code_cell, new_notebook

import gpu_magic
from gpu_magic.testing import simulate
from tests.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from tests.conftest import Typed


@pytest.fixture
def run(fakes: Path, typed: Typed) -> Typed:
    """Return a way to run a cell in a shell with the extension, and with a framework imported."""
    assert typed("import abacus, asyncio").error is None
    return typed


def test_the_last_value_is_displayed_and_kept(run: Typed) -> None:
    assert run("%%on_gpu 2\nx = abacus.made()\nx") == ("gpu:2", None, "Out[2]: 'gpu:2'\n")
    assert run("_ is x, Out[2] is x, _2 is x, abacus.made()").value == (True, True, True, "cpu")
    for silent in ("x = 1", "None", "for i in range(2):\n    i", "# only a comment"):
        assert run(f"%%on_gpu 2\n{silent}") == (None, None, "")
    for end in (";", "; ", ";  # quiet", ";\n\n"):
        assert run(f"%%on_gpu 2\n1 + 1{end}").text == ""
    assert run("%%on_gpu 2\n'a;b;'  # not ;").value == "a;b;"


@pytest.mark.parametrize("mode", ["all", "last", "none", "last_expr", "last_expr_or_assign"])
def test_the_shell_s_interactivity_is_that_of_a_plain_cell(
    run: Typed, shell: InteractiveShell, mode: str
) -> None:
    shell.ast_node_interactivity = mode
    for cell in ("1\n2\n3", "1\n2;", "a = b = 4", "1\nx = 5;", "x = 7", "x: int = 8", "y = 1\ny += 1"):
        ours, plain = run(f"%%on_gpu 2\n{cell}").text, run(cell).text
        assert re.sub(r"\[\d+\]", "", ours) == re.sub(r"\[\d+\]", "", plain), cell


def test_a_traceback_has_the_notebook_s_lines_and_no_frames_of_ours(run: Typed) -> None:
    text = run("%%on_gpu 2\ndef divide(a):\n    return a / 0\n\ndivide(1)").text
    for line in ("----> 5 divide(1)", "----> 3     return a / 0"):
        assert line in text
    assert text.count("Traceback (most recent call last)") == 1
    assert "gpu_magic" not in text
    for above in ("%%gpu_time\n", "%%on_gpu 1\n"):
        assert "----> 4 x / 0" in run(f"{above}%%on_gpu 2\nx = 1\nx / 0").text
    assert run("abacus.made()").value == "cpu"


def test_a_function_of_such_a_cell_has_its_lines_later(run: Typed, shell: InteractiveShell) -> None:
    run("%%on_gpu 2\n\ndef late():\n    return 1 / 0")
    assert "----> 4     return 1 / 0" in run("late()").text
    assert "return 1 / 0" in inspect.getsource(shell.user_ns["late"])
    shell.run_cell("%%on_gpu 2\nx = 1\n1/0", store_history=False)
    assert "----> 3 1/0" in run("%%on_gpu 2\nx = 1\n1/0").text


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("print('ran')\nif x\n    3", 3),
        ("\n\nprint('ran')\nx = = 1", 5),
        ("print('ran')\nreturn 5", 3),
        ("print('ran')\n%%on_gpu 1\nprint('ran')\nx = = 1", 5),
        ("%%on_gpu 1\nprint('ran')\nx = = 1", 4),
        ("print('ran')\n  x = 1", 3),
    ],
)
def test_a_syntax_error_is_told_as_in_a_plain_cell(run: Typed, body: str, line: int) -> None:
    ours, plain = run(f"%%on_gpu 2\n{body}"), run(f"\nNone\n{body}")
    assert type(ours.error) is type(plain.error)
    assert ours.error.lineno == line
    for frame in ("gpu_magic", "interactiveshell.py", "run_cell_magic"):
        assert frame not in ours.text
    assert ours.text.count("\n") == plain.text.count("\n")


def test_await_and_async_for(run: Typed, shell: InteractiveShell) -> None:
    assert run("%%on_gpu 2\nawait asyncio.sleep(0.01)\nabacus.made()").value == "gpu:2"
    run("async def numbers():\n    for i in range(3):\n        await asyncio.sleep(0)\n        yield i")
    assert run("%%on_gpu 1\nasync for i in numbers():\n    x = i, abacus.made()\nx").value == (2, "gpu:1")
    quiet = run("%%on_gpu 1\nasync with asyncio.Lock():\n    pass\nawait asyncio.sleep(0, result=5);")
    assert quiet == (None, None, "")
    run("async def make():\n    await asyncio.sleep(0)\n    return abacus.made()")
    assert run("%%on_gpu 3\nawait asyncio.gather(make(), make())").value == ["gpu:3"] * 2
    assert "----> 4 1/0" in run("%%on_gpu 3\nawait asyncio.sleep(0.01)\n\n1/0").text
    assert run("%%on_gpu 1\nasync def f():\n    await asyncio.sleep(0)\nabacus.made()").value == "gpu:1"
    assert run("abacus.made()").value == "cpu"
    shell.autoawait = False
    assert "SyntaxError" in run("%%on_gpu 1\nawait asyncio.sleep(0)").text


def test_magics_and_commands_work_inside_and_outside(run: Typed) -> None:
    cell = run("%%on_gpu 2\nfiles = !echo a\nprint(files)\n%pwd")
    assert "['a']" in cell.text
    assert run("%%on_gpu 2\n%timeit -n1 -r1 abacus.made()").error is None
    for cell_ in ("%%time\n%%on_gpu 2\nabacus.made()", "%%on_gpu 2\n%%time\nabacus.made()"):
        found = run(cell_)
        assert (found.value, "Wall time" in found.text) == ("gpu:2", True)
    for above in ("%%capture out\n%%on_gpu 2", "%%on_gpu 2\n%%capture out"):
        assert run(f"{above}\nprint(abacus.made())\n7").text == ""
        assert run("out.stdout, out.outputs[0].data").value == ("gpu:2\n", {"text/plain": "7"})
    assert run("%%on_gpu 1\n%%on_gpu 3\nabacus.made()").value == "gpu:3"
    found = run("%%on_gpu 2\n%prun -q a = abacus.made()\n%time b = abacus.made()\na, b")
    assert found.value == ("gpu:2", "gpu:2")
    assert isinstance(run("# my comment\n%%on_gpu 2\nprint('ran')").error, UsageError)  # not on the CPU


def test_a_body_that_code_gives_runs_within_its_cell(run: Typed) -> None:
    """As `run_cell_magic` gives it."""
    give = "get_ipython().run_cell_magic('on_gpu', '3', {!r})"
    assert run(f"%%on_gpu 1\n{give.format('a = abacus.made()')}\na, abacus.made()").value == (
        "gpu:3",
        "gpu:1",
    )
    assert run(give.format("%%on_gpu 2\n%pwd\nabacus.made()")).value == "gpu:2"
    assert run(give.format("7;")).value is None
    assert "cuda:3 cannot be used: Quipu has 1." in run(give.format("import quipu\nprint('ran')")).text
    failed = run(give.format("x = 1\n\nx / 0"))
    assert "----> 3 x / 0" in failed.text
    assert "gpu_magic" not in failed.text
    assert "await works only in the cell itself" in run(give.format("await asyncio.sleep(0)")).text
    assert isinstance(run(give.format("x = = 1")).error, SyntaxError)
    assert run("abacus.made()").value == "cpu"


def test_a_cell_for_help_does_not_run_and_a_terminal_asks_for_more_lines(
    run: Typed, shell: InteractiveShell
) -> None:
    for line in ("%%on_gpu --help", "%%gpu_time -h"):
        assert "\n    %%" in run(f"{line}\nx = 1").text
        assert "x" not in shell.user_ns
        assert shell.check_complete(f"{line}\nx = 1")[0] == "incomplete"
        assert shell.check_complete(f"{line}\nx = 1\n\n")[0] == "complete"


def test_names_are_the_notebook_s(run: Typed) -> None:
    run("%%on_gpu 2\nfrom math import tau\nclass A: ...\ny = [tau for _ in range(2)]")
    assert run("A.__module__, y == [tau, tau], __name__").value == ("__main__", True, "__main__")
    local = "def f(n):\n    return get_ipython().run_cell_magic('on_gpu', '{n}', 'abacus.made()')\nf(2)"
    assert run(local).value == "gpu:2"
    run("d, line, body = 3, 'cpu', 'abacus.made()'")
    for line in ("$d", "{d}"):
        assert run(f"%%on_gpu {line}\nabacus.made()").value == "gpu:3"
    for call in ("line, body", "\n    'cpu', 'abacus.made()'"):
        assert run(f"get_ipython().run_cell_magic('on_gpu', {call})").value == "cpu:0"
    for before in ("", "x = 1\n"):  # an import of the future is as in a plain cell
        cell = f"{before}from __future__ import annotations\ndef f(a: int): ...\nf.__annotations__"
        assert run(f"%%on_gpu cpu\n{cell}").value == {"a": "int"}


def test_hooks_and_transformers_run_once_and_history_keeps_the_cell_as_typed(
    run: Typed, shell: InteractiveShell
) -> None:
    seen: list[str] = []
    hook, transform = lambda _: seen.append("hook"), lambda lines: [seen.append(lines[-1]), lines][1]
    shell.events.register("post_run_cell", hook)
    shell.input_transformers_cleanup.append(transform)
    try:
        for body in ("x = 6\nx * 7", "\n\nx = 6\nawait asyncio.sleep(0)", "    x = 6\n    x", ">>> x = 6"):
            seen.clear()
            assert run(f"%%on_gpu cpu\n{body}").error is None
            assert seen == [f"{body.splitlines()[-1].strip(' >')}\n", "hook"]
            assert shell.history_manager.input_hist_raw[-1] == f"%%on_gpu cpu\n{body}"
    finally:
        shell.input_transformers_cleanup.remove(transform)
        shell.events.unregister("post_run_cell", hook)


def test_the_block_ends_with_its_cell_whatever_runs_in_it(run: Typed, shell: InteractiveShell) -> None:
    inside = "get_ipython().run_cell({!r})\nabacus.made()"
    for cell in ("", "y = 1", "%%on_gpu 1\nabacus", "1 / 0", "x = = 1"):
        assert run(f"%%on_gpu 2\n{inside.format(cell)}").text.endswith("gpu:2'\n")
        assert run("abacus.made()").value == "cpu"
    found = run("%%timeit -n3 -r2\n%%on_gpu 2\nassert abacus.made() == 'gpu:2'; len(vars(abacus.here))")
    assert found.error is None
    assert run("%%prun\n%%on_gpu 2\nx = abacus.made()").error is None
    assert run("x, abacus.made()").value == ("gpu:2", "cpu")
    assert run("%%on_gpu 2\nabacus.made()\n%reload_ext gpu_magic\nabacus.made()").value == "cpu"


def test_a_decorated_function_of_a_module_is_loaded_again(
    run: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As %autoreload does when its file has changed, and with a class whose instances stay."""
    code = (
        "import abacus, gpu_magic\n@gpu_magic.on_gpu({})\ndef make(): return abacus.made()\n"
        "class Net:\n    version = {}"
    )
    file = tmp_path / "steps_of_tests.py"
    file.write_text(code.format(1, 1))
    monkeypatch.syspath_prepend(tmp_path)
    run("from IPython.extensions.autoreload import ModuleReloader\nreloader = ModuleReloader()")
    run("import steps_of_tests as steps\nnet = steps.Net()\nreloader.check(check_all=True)")
    assert run("steps.make(), net.version").value == ("gpu:1", 1)
    file.write_text(code.format(3, 3))
    os.utime(file, (file.stat().st_atime, file.stat().st_mtime + 5))
    run("%reload_ext gpu_magic\nreloader.check(check_all=True)")
    assert run("%%on_gpu 2\nsteps.make(), net.version, abacus.made()").value == ("gpu:3", 3, "gpu:2")


def test_each_cell_of_a_notebook_file_has_its_block(
    run: Typed, shell: InteractiveShell, tmp_path: Path
) -> None:
    cells = ("%%on_gpu 2\na = abacus.made()", "b = abacus.made()", "%%on_gpu 9\nabacus", "c = 1")
    (tmp_path / "all.ipynb").write_text(nbformat.writes(new_notebook(cells=[*map(new_code_cell, cells)])))
    assert "cuda:9 cannot be used" in run(f"%%on_gpu 1\n%run -i {tmp_path / 'all.ipynb'}").text
    assert run("a, b, 'c' in globals(), abacus.made()").value == ("gpu:2", "gpu:1", False, "cpu")


def test_a_block_whose_end_ipython_did_not_announce_ends_before_the_next_cell(
    run: Typed, shell: InteractiveShell
) -> None:
    cell = "%%on_gpu 2\nx = abacus.made()"
    asyncio.run(shell.run_cell_async(cell, transformed_cell=shell.transform_cell(cell)))
    assert run("x, abacus.made()").value == ("gpu:2", "cpu")


@pytest.mark.parametrize(
    ("how", "after", "said"),
    [
        ("import quipu", 1, " The cell was stopped there."),
        ("try:\n    import quipu\nexcept ImportError: ...", 1, " The cell was stopped there."),
        ("def use():\n    import quipu\nuse()", 2, ""),
    ],
)
def test_a_cell_that_imports_what_can_not_run_there_has_an_error(
    run: Typed, shell: InteractiveShell, how: str, after: int, said: str
) -> None:
    """After the import, or at the end, which stops Run All."""
    cell = run(f"%%on_gpu 2\nabacus.made()\nx = 1\n{how}\nx = 2")
    assert cell.text == f"UsageError: cuda:2 cannot be used: Quipu has 1.{said}\n"
    assert isinstance(cell.error, UsageError)
    assert run("import quipu\nx, quipu.made()").value == (after, "cpu")
    cell = run("%%on_gpu 2\nprint('not again')\nquipu")
    assert cell.text == (
        "UsageError: cuda:2 cannot be used: Quipu has 1. The cell did not run. To run it on the CPU, add --or-cpu\n"
    )
    assert run("%%on_gpu 2 --or-cpu\nquipu.made()").value == "cpu:0"


def test_the_physical_gpu_behind_it_is_named(run: Typed) -> None:
    with simulate("4xA100-80GB"):
        run("%gpus 2,3")
        for target in ("smi:3", "1", "cuda:1", "{place}"):
            run("place = 1")
            said = run(f"%%on_gpu {target} -v\nabacus.made()")
            assert "Ran on cuda:1 = GPU 3 (SIMULATED NVIDIA A100-SXM4-80GB): Abacus on gpu:1.\n" in said.text
        assert "GPU 0 is not visible here (cuda:0 = GPU 2, " in run("%%on_gpu smi:0\n1").text
        assert "There is no GPU 9. This machine has GPUs 0 to 3. " in run("%%on_gpu smi:9\n1").text
        run("%gpus reset")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%%on_gpu", "No device is named. Expected 0, cuda:0"),
        ("%%on_gpu 0,1", "%gpu_launch torchrun for a script, or %gpu_cluster with "),
        ("%%on_gpu 0 --only", "--only"),
        ("%%on_gpu {nothing[0]}", "'{nothing[0]}' is not a variable"),
        ("%%on_gpu {None}", "The value in braces is None, and names nothing."),
        ("%%on_gpu xpu:0 --only quipu", "no imported framework has such a device."),
    ],
)
def test_bad_input_is_one_line_and_nothing_runs(run: Typed, line: str, said: str) -> None:
    text = run(f"{line}\nprint('ran')").text
    assert said in text
    assert text.startswith("UsageError: ")
    assert text.count("\n") == 1


def test_a_background_cell_has_a_device_a_result_and_errors_of_its_own(run: Typed) -> None:
    run("import gpu_magic")
    run("%%on_gpu 1 --background eval\n%%on_gpu 2\nabacus.made()")
    assert run("task = gpu_magic.tasks()['eval']\ntask.wait(), abacus.made()").value == ("gpu:2", "cpu")
    assert run("str(task).startswith('done'), isinstance(task, gpu_magic.BackgroundTask)").value == (
        True,
        True,
    )
    shown = run("%%on_gpu 1 --background eval\ndef fails():\n    raise ValueError('boom')\nfails()").text
    shown += run("gpu_magic.tasks()['eval'].join()").text
    assert "----> 4 fails()" in shown
    for frame in ("gpu_magic", "hidden"):
        assert frame not in shown
    waited = run("gpu_magic.tasks()['eval'].wait()")
    assert "----> 4 fails()" in waited.text
    assert isinstance(waited.error, gpu_magic.CommandFailed)
    for line, said in (
        ("1 --background eval\nawait asyncio.sleep(0)", "Use asyncio.run(...)"),
        ("1 --background eval\n%%capture\n1", "the output stays below this cell"),
        ("9 --background eval\nabacus", "cuda:9 cannot be used: Abacus has 4. The cell did not run"),
    ):
        assert said in run(f"%%on_gpu {line}").text


FAILS = """
import gc, gpu_magic, weakref
class Big: ...
living = []
def holds(error):
    big = Big()
    living.append(weakref.ref(big))
    raise error
def fails():
    try:
        holds(KeyError())
    except KeyError:
        {}
"""


@pytest.mark.parametrize(
    "way",
    [
        "holds(ValueError())",
        "try: holds(ValueError())\n        except ValueError as error: raise ExceptionGroup('two', [error])",
    ],
)
def test_a_background_cell_that_failed_holds_no_frames_and_leaves_those_of_debug(
    run: Typed, shell: InteractiveShell, way: str
) -> None:
    run(FAILS.format(way))
    run("1 / 0")
    before = shell.InteractiveTB.tb
    shown = run("%%on_gpu 1 --background job\nfails()").text
    shown += run("gpu_magic.tasks()['job'].join()\ngc.collect();").text
    assert "KeyError" in shown
    assert "ValueError" in shown
    assert run("[one() for one in living]").value == [None, None]
    assert shell.InteractiveTB.tb is before
    assert run("%tb").text.endswith("ZeroDivisionError: division by zero\n")


def nothing() -> None: ...


@pytest.mark.parametrize(
    ("work", "is_stopped"),
    [
        ("'done'", None),
        ("started.set()\nwhile True: time.sleep(0.01)", True),
        (
            "with contextlib.suppress(KeyboardInterrupt):\n    started.set()\n    while True: time.sleep(0.01)",
            False,
        ),
        (  # as Lightning's Trainer and many scripts do
            "try:\n    started.set()\n    while True: time.sleep(0.01)\nexcept KeyboardInterrupt: raise SystemExit(1)",
            True,
        ),
    ],
)
def test_stopping_interrupts_a_background_cell(run: Typed, work: str, *, is_stopped: bool | None) -> None:
    """A debugger traces functions; with a flag of CPython's left set, it would wait for ever in Python 3.11."""
    run("import gpu_magic, contextlib, threading, time\nstarted = threading.Event()")
    run(f"%%on_gpu 1 --background loop\n{work}")
    if is_stopped is not None:
        assert "loop already runs" in run("%%on_gpu 1 --background loop\n1").text
        run("started.wait()\ngpu_magic.tasks()['loop'].stop()")
    run("task = gpu_magic.tasks()['loop']\ntask.join()")
    ended = "stopped" if is_stopped else "done ·"
    assert run("task.is_running, task.has_failed, str(task)").value[:2] == (False, False)
    assert run("str(task)").value.startswith(ended)
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    nothing()
    sys.settrace(before)


def test_an_error_of_a_background_cell_that_is_stopped_is_told(run: Typed) -> None:
    """Such as a checkpoint that could not be saved."""
    run("import gpu_magic, threading, time\nstarted = threading.Event()")
    run(
        "%%on_gpu 1 --background loop\ntry:\n    started.set()\n    while True: time.sleep(0.01)\n"
        "except KeyboardInterrupt:\n    raise OSError('disk full')"
    )
    run("started.wait()\ntask = gpu_magic.tasks()['loop']\ntask.stop()\ntask.join()")
    assert run("task.has_failed").value is True
    assert run("str(task)").value.startswith("failed: OSError: disk full ·")
    assert "OSError: disk full" in run("%gpu_tasks wait loop").text


def test_a_call_that_can_not_be_interrupted_is_told_in_a_line(run: Typed, tmp_path: Path) -> None:
    """A C function that says that it has begun, and returns when a named pipe is opened."""
    pipe, begun = tmp_path / "pipe", tmp_path / "begun"
    os.mkfifo(pipe)
    run("import ctypes")
    command = f"touch {begun}; cat {pipe}".encode()
    run(f"%%on_gpu 1 --background eval\nctypes.CDLL(None).system({command!r})\nwhile True: pass")
    until(begun.exists)
    assert run("%gpu_tasks stop eval").text.startswith(
        "eval: interrupted in a call that cannot be interrupted; ends when the call returns · "
    )
    pipe.open("w").close()
    assert "\neval: stopped" in run("%gpu_tasks wait eval").text


def test_another_choice_is_refused_while_a_background_cell_runs_on_a_gpu(run: Typed) -> None:
    with simulate("4xA100-80GB"):
        run("%gpus 2,0,3,1\nimport threading\ngo = threading.Event()")
        run("%%on_gpu 1 --background eval\ngo.wait()")
        assert run("%gpus 0,1").text == (
            "UsageError: eval runs on cuda:1 = GPU 0 (SIMULATED NVIDIA A100-SXM4-80GB), which another choice would "
            "change. First run %gpu_tasks wait eval or %gpu_tasks stop eval\n"
        )
        assert "UsageError" not in run("%gpus 2,0,3,1").text
        run("go.set()\n%gpu_tasks wait eval")
        assert run("%gpus 0,1").text.startswith("cuda:0 = GPU 0")
        run("%gpus reset")


def test_a_background_cell_is_shown_as_a_cell_and_has_a_name(run: Typed, shell: InteractiveShell) -> None:
    shell.ast_node_interactivity = "all"
    run("import gpu_magic")
    body = "!echo from a shell\n%timeit -n1 -r1 abacus.made()\n'first'\nNone\n'last'"
    text = run(f"%%on_gpu 1 --background\n{body}").text
    name = text.partition(":")[0]
    assert re.fullmatch(r"cell_\d+", name)
    text += run(f"gpu_magic.tasks()[{name!r}].wait();").text
    for shown in ("from a shell", "per loop", "'first'\n", "'last'\n"):
        assert shown in text.replace("\r", "")


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ("none", "no GPU is visible here."),
        ("2,0", "visible here are cuda:0 = GPU 2, cuda:1 = GPU 0."),
        ("all", "the GPUs here are SIMULATED, and nothing runs on them."),
    ],
)
@pytest.mark.usefixtures("fakes")  # none is imported
def test_without_a_framework_the_machine_says_whether_a_gpu_is_there(
    typed: Typed, choice: str, why: str
) -> None:
    with simulate("4xA100-80GB"):
        typed(f"%gpus {choice}")
        cell = typed("%%on_gpu 3\n1")
        typed("%gpus reset")
    assert cell.text == (
        f"UsageError: cuda:3 cannot be used: {why} The cell did not run. To run it on the CPU, add --or-cpu\n"
    )
