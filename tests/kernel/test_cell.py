"""A `%%on_gpu` cell is a cell like any other, in a real kernel; PyTorch has a pretend accelerator."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.conftest import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kernel.conftest import Kernel


STATE = "print(torch.get_default_device(), torch.accelerator.current_device_index(), torch.ones(1).device)"
BEFORE = "cpu 0 cpu\n"
SHOWN = "pretend:2\n {'text/plain': '7'}\n"


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> Kernel:
    """Return a kernel with the extension loaded, and PyTorch with four devices imported."""
    kernel = start_kernel(imported=("torch",), **pretend)
    for cell in ("%load_ext gpu_magic", "import torch", "import asyncio"):
        assert kernel.run(cell).status == "ok"
    return kernel


def test_the_last_value_is_displayed_and_kept(kernel: Kernel) -> None:
    reply = kernel.run("%%on_gpu 2\nx = torch.ones(2)\nx")
    assert reply.text == "tensor([1., 1.], device='pretend:2')"
    assert kernel.run("print(_ is x, Out[4] is x, _4 is x)").stdout == "True True True\n"
    assert kernel.run("%%on_gpu 2\nx = 1").text == ""
    assert kernel.run("%%on_gpu 2\nNone").text == ""
    assert kernel.run("%%on_gpu 2\nfor i in range(2):\n    i").text == ""


@pytest.mark.parametrize("end", [";", "; ", ";  # quiet", ";\n\n"])
def test_a_semicolon_silences(kernel: Kernel, end: str) -> None:
    assert kernel.run(f"%%on_gpu 2\n1 + 1{end}").text == ""
    assert kernel.run("%%on_gpu 2\n'a;b;'  # not ;").text == "'a;b;'"


@pytest.mark.parametrize(
    ("mode", "shown"), [("all", "123"), ("last", "3"), ("none", ""), ("last_expr_or_assign", "3")]
)
def test_the_shell_s_interactivity_is_kept(kernel: Kernel, mode: str, shown: str) -> None:
    kernel.run(f"get_ipython().ast_node_interactivity = {mode!r}")
    assert kernel.run("%%on_gpu 2\n1\n2\n3").text == shown
    assert kernel.run("1\n2\n3").text == shown  # as a plain cell has it
    for cell in ("1\n2;", "a = b = 4", "1\nx = 5;"):
        assert kernel.run(f"%%on_gpu 2\n{cell}").text == kernel.run(cell).text, cell
    expected = "7" if mode == "last_expr_or_assign" else ""
    assert kernel.run("%%on_gpu 2\nx = 7").text == expected == kernel.run("x = 7").text


def test_one_traceback_with_the_notebook_s_lines(kernel: Kernel) -> None:
    reply = kernel.run("%%on_gpu 2\ndef divide(a):\n    return a / 0\n\ndivide(1)")
    assert reply.status == "error"
    assert reply.errors == ["division by zero"]
    assert "----> 5 divide(1)" in reply.traceback
    assert "----> 3     return a / 0" in reply.traceback
    assert "1 %%on_gpu 2" in reply.traceback
    assert reply.traceback.count("Traceback (most recent call last)") == 1
    assert "gpu_magic" not in reply.traceback  # our own frames are hidden
    assert "run_cell_magic('on_gpu'" not in reply.traceback  # the notebook's line is shown instead
    assert kernel.run(STATE).stdout == BEFORE


def test_a_function_of_such_a_cell_has_its_lines_later(kernel: Kernel) -> None:
    kernel.run("%%on_gpu 2\n\ndef late():\n    return 1 / 0")
    reply = kernel.run("late()")
    assert "----> 4     return 1 / 0" in reply.traceback
    assert "in late()" in reply.traceback  # before it, the cell as this IPython calls it
    assert "return 1 / 0" in kernel.run("import inspect; print(inspect.getsource(late))").stdout


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
def test_a_syntax_error_is_told_as_in_a_plain_cell(kernel: Kernel, body: str, line: int) -> None:
    reply = kernel.run(f"%%on_gpu 2\n{body}")
    assert (reply.status, reply.stdout) == ("error", "")
    assert f"line {line}\n" in reply.traceback
    plain = kernel.run(body.replace("%%on_gpu 1\n", ""))
    assert reply.traceback.count("\n") == plain.traceback.count("\n")
    for frame in ("gpu_magic", "interactiveshell.py", "run_cell_magic"):
        assert frame not in reply.traceback
    assert kernel.run(STATE).stdout == BEFORE


def test_a_late_import_of_the_future_is_as_in_a_plain_cell(kernel: Kernel) -> None:
    cell = "x = 1\nfrom __future__ import annotations\ndef f(a: int): ...\nf.__annotations__"
    reply = kernel.run(f"%%on_gpu cpu\n{cell}")
    assert (reply.status, reply.text) == ("ok", "{'a': 'int'}")


def test_an_error_stops_run_all(kernel: Kernel) -> None:
    replies = kernel.run_all("%%on_gpu 2\n1/0", "print('went on')")
    assert [reply.status for reply in replies] == ["error"]


def test_await_and_async_for(kernel: Kernel) -> None:
    reply = kernel.run("%%on_gpu 2\nawait asyncio.sleep(0.01)\ntorch.ones(1).device")
    assert reply.text == "device(type='pretend', index=2)"
    kernel.run(
        "async def numbers():\n    for i in range(3):\n        await asyncio.sleep(0)\n        yield i"
    )
    reply = kernel.run("%%on_gpu 1\nasync for i in numbers():\n    x = torch.full((1,), i)\nx")
    assert reply.text == "tensor([2], device='pretend:1')"
    reply = kernel.run("%%on_gpu 1\nasync with asyncio.Lock():\n    pass\nawait asyncio.sleep(0, result=5);")
    assert (reply.status, reply.text, reply.stderr) == ("ok", "", "")
    reply = kernel.run("%%on_gpu 3\nawait asyncio.sleep(0.01)\n\n1/0")
    assert "----> 4 1/0" in reply.traceback
    assert kernel.run(STATE).stdout == BEFORE
    assert kernel.run("%%on_gpu 1\nasync def f():\n    await asyncio.sleep(0)\n'not awaited'").text


def test_autoawait_off_is_as_in_a_plain_cell(kernel: Kernel) -> None:
    kernel.run("%autoawait off")
    reply = kernel.run("%%on_gpu 1\nawait asyncio.sleep(0)")
    assert reply.status == "error"
    assert "SyntaxError" in reply.traceback


def test_shell_commands_and_other_magics_work_inside(kernel: Kernel) -> None:
    reply = kernel.run("%%on_gpu 2\n!echo from the shell\nfiles = !echo a\n%env X=1\nprint(files)\n%pwd")
    assert "from the shell" in reply.stdout
    assert "env: X=1" in reply.stdout
    assert "['a']" in reply.stdout
    assert reply.text.startswith("'")
    assert "1 loop each" in kernel.run("%%on_gpu 2\n%timeit -n1 -r1 torch.ones(1)").stdout
    assert kernel.run("%%on_gpu 2\nlen?").status == "ok"
    assert kernel.run("%%on_gpu 2\n%%bash\necho $((1+2))").stdout == "3\n"


def test_it_nests_with_time_either_way_round(kernel: Kernel) -> None:
    for cell in ("%%time\n%%on_gpu 2\ntorch.ones(1).device", "%%on_gpu 2\n%%time\ntorch.ones(1).device"):
        reply = kernel.run(cell)
        assert "Wall time" in reply.stdout
        assert reply.text == "device(type='pretend', index=2)"
    reply = kernel.run("%%time\n%%on_gpu 2\nx = 1\nx / 0")
    assert "----> 4 x / 0" in reply.traceback
    assert kernel.run(STATE).stdout == BEFORE


def test_it_nests_with_capture_either_way_round(kernel: Kernel) -> None:
    for cell in (
        "%%capture out\n%%on_gpu 2\nprint(torch.ones(1).device)\n7",
        "%%on_gpu 2\n%%capture out\nprint(torch.ones(1).device)\n7",
    ):
        reply = kernel.run(cell)
        assert (reply.stdout, reply.text) == ("", "")
        assert kernel.run("print(out.stdout, out.outputs[0].data)").stdout == SHOWN


def test_it_nests_with_itself(kernel: Kernel) -> None:
    reply = kernel.run("%%on_gpu 1\n%%on_gpu 3\ntorch.ones(1).device")
    assert reply.text == "device(type='pretend', index=3)"
    reply = kernel.run(
        "%%on_gpu 1\nip = get_ipython()\nip.run_cell_magic('on_gpu', '3', 'a = torch.ones(1)')\n"
        "a.device, torch.ones(1).device, torch.accelerator.current_device_index()"
    )
    assert reply.text == "(device(type='pretend', index=3), device(type='pretend', index=1), 1)"
    assert kernel.run(STATE).stdout == BEFORE


def test_history_keeps_the_cell_as_typed(kernel: Kernel) -> None:
    cell = "%%on_gpu 2\nx = 1\nx"
    kernel.run(cell)
    ask = "list(get_ipython().history_manager.get_range(raw=True, start=4, stop=5))[0][2]"
    assert kernel.run(ask).text == repr(cell)
    kernel.run("%%on_gpu 2\nawait asyncio.sleep(0)")
    assert kernel.run(ask.replace("start=4, stop=5", "start=6, stop=7")).text == repr(
        "%%on_gpu 2\nawait asyncio.sleep(0)"
    )


def test_hooks_run_once(kernel: Kernel) -> None:
    kernel.run(
        "seen = []\nip = get_ipython()\nip.events.register('pre_run_cell', lambda info: seen.append('pre'))\n"
        "ip.events.register('post_run_cell', lambda result: seen.append('post'))"
    )
    kernel.run("%%on_gpu 2\n1")
    assert kernel.run("print(seen)").stdout == "['post', 'pre', 'post', 'pre']\n"


@pytest.mark.parametrize("line", [f"time.sleep({LIMIT})", "await asyncio.sleep(2)"])
def test_an_interrupt_restores_everything(kernel: Kernel, tmp_path: Path, line: str) -> None:
    def interrupt() -> None:
        while not (tmp_path / "started").exists():
            time.sleep(0.05)
        time.sleep(0.5)  # a sleep of asyncio's ends first, as in a plain cell
        kernel.interrupt()

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    reply = kernel.run(f"%%on_gpu 2\nimport time\ntorch.ones(1)\nopen('started', 'w').close()\n{line}")
    thread.join()
    assert reply.status == "error"
    assert kernel.run(STATE).stdout == BEFORE


def test_names_are_the_notebook_s(kernel: Kernel) -> None:
    kernel.run("%%on_gpu 2\nfrom math import tau\nclass A: ...\ny = [tau for _ in range(2)]")
    assert kernel.run("print(A.__module__, y == [tau, tau], __name__)").stdout == "__main__ True __main__\n"
    assert kernel.run("%%on_gpu 2\n# only a comment").status == "ok"
    local = (
        "def f(n):\n    return get_ipython().run_cell_magic('on_gpu', '{n}', 'torch.ones(1).device')\nf(2)"
    )
    assert kernel.run(local).text == "device(type='pretend', index=2)"
    kernel.run("d = 3")
    assert kernel.run("%%on_gpu $d\ntorch.ones(1).device").text == "device(type='pretend', index=3)"
    assert kernel.run("%%on_gpu {d}\ntorch.ones(1).device").text == "device(type='pretend', index=3)"


def test_futures_stay_as_in_a_plain_cell(kernel: Kernel) -> None:
    reply = kernel.run(
        "%%on_gpu 2\nfrom __future__ import annotations\ndef f(a: nothing): ...\nf.__annotations__"
    )
    assert reply.text == "{'a': 'nothing'}"


def test_tasks_and_contexts_in_an_awaiting_cell(kernel: Kernel) -> None:
    kernel.run("async def make():\n    await asyncio.sleep(0)\n    return str(torch.ones(1).device)")
    reply = kernel.run("%%on_gpu 3\nawait asyncio.gather(make(), make())")
    assert reply.text == "['pretend:3', 'pretend:3']"
    reply = kernel.run(
        "%%on_gpu 1\nwith torch.device('pretend:3'):\n    await asyncio.sleep(0)\n    a = torch.ones(1).device\n"
        "a, torch.ones(1).device"
    )
    assert reply.text == "(device(type='pretend', index=3), device(type='pretend', index=1))"
    assert kernel.run(STATE).stdout == BEFORE


def test_a_cell_that_is_not_stored_has_its_lines(kernel: Kernel) -> None:
    kernel.run(
        "try:\n    get_ipython().run_cell('%%on_gpu 2\\nx = 1\\n1/0', store_history=False)\nfinally: pass"
    )
    reply = kernel.run("%%on_gpu 2\nx = 1\n1/0")
    assert "----> 3 1/0" in reply.traceback


def test_two_shells_can_have_it(kernel: Kernel) -> None:
    reply = kernel.run(
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "one, two = InteractiveShell(), InteractiveShell()\n"
        "for shell in (one, two):\n    shell.run_line_magic('load_ext', 'gpu_magic')\n"
        "for shell in (two, one):\n    shell.run_line_magic('unload_ext', 'gpu_magic')\n"
        "hooks = [shell.events.callbacks['post_run_cell'] for shell in (one, two)]\n"
        "print(one.input_transformers_post, two.input_transformers_post, *hooks)"
    )
    assert (reply.status, reply.stdout) == ("ok", "[] [] [] []\n")


def test_a_magic_that_is_called_with_variables_runs(kernel: Kernel) -> None:
    kernel.run("line, body = 'cpu', 'torch.ones(1).device'")
    reply = kernel.run("get_ipython().run_cell_magic('on_gpu', line, body)")
    assert reply.text == "device(type='cpu')"


def test_a_magic_that_is_called_over_several_lines_runs(kernel: Kernel) -> None:
    reply = kernel.run("get_ipython().run_cell_magic('on_gpu',\n    'cpu', 'torch.ones(1).device')")
    assert reply.text == "device(type='cpu')"
