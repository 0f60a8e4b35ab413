"""`%to_gpu` and `%to_cpu` in a shell, with the framework of the tests on a simulated machine."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu_magic.move.move import read_places
from tests.eight_gpus import COUNT, Array, EightGpus, registered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.testing import Machine
    from tests.conftest import Typed

    Run = Callable[[str], list[str]]

GPU = "cuda:{0} = GPU {0} (SIMULATED NVIDIA A100-SXM4-80GB)"
OLD = "with the old copy (1.0 MiB on cpu). Move variables that share arrays in one line. Datasets and outputs stay."


pytestmark = pytest.mark.machine(f"{COUNT}xA100-80GB")


@pytest.fixture
def framework(tmp_path: Path, machine: Machine) -> Iterator[EightGpus]:
    with registered(tmp_path) as framework:
        framework.free = 1 << 40
        yield framework


@pytest.fixture
def run(framework: EightGpus, shell: InteractiveShell, typed: Typed) -> Run:
    """Return a way to run a cell in a shell with variables to move; the lines that are shown."""
    shell.run_line_magic("xmode", "Minimal")
    x = Array(None)
    variables = {"x": x, "y": Array(None), "batch": {"x": x, "rows": [x]}, "pair": (x, x), "n": 3}
    shell.push({**variables, "state": SimpleNamespace(x=x), "key": "x", "Array": Array})
    return lambda cell: typed(cell).text.splitlines()


def test_there_and_back(run: Run, shell: InteractiveShell) -> None:
    plan = run("%to_gpu batch pair --device 1 --dry-run")
    assert plan == [
        "batch  dict: 1 array  1.0 MiB  cpu → cuda:1",
        "pair   tuple                   shared with batch",
        f"1.0 MiB would move to {GPU.format(1)}, where 1.0 TiB are free. Nothing was changed.",
    ]
    batch, pair = shell.user_ns["batch"], shell.user_ns["pair"]
    assert batch["x"].ordinal is None
    moved = run("%to_gpu batch pair --device 1")
    assert moved == [
        *plan[:2],
        f"1.0 MiB moved to {GPU.format(1)}.",
        f"Not moved: x, state, {OLD}",
    ]
    new = shell.user_ns["pair"]
    assert shell.user_ns["batch"] is batch
    assert new is not pair
    assert batch["x"] is batch["rows"][0] is new[0] is new[1]
    assert batch["x"].ordinal == 1
    assert run("%to_gpu batch --device 1")[0] == f"Everything is already on {GPU.format(1)}."
    assert run("%to_cpu batch pair")[-1] == "1.0 MiB moved to the CPU."


def test_names_attributes_and_items(run: Run, shell: InteractiveShell) -> None:
    assert run("%to_gpu state.x batch[key]")[:2] == [
        "state.x     Array: 1 array  1.0 MiB  cpu → cuda:0",
        "batch[key]  Array                    shared with state.x",
    ]
    assert shell.user_ns["state"].x is shell.user_ns["batch"]["x"]
    assert shell.user_ns["x"].ordinal is None


WAYS = [
    "%to_gpu x, y --device smi:1  # both",
    "%%on_gpu 1 --only tests.eight_gpus\n%to_gpu x y",  # others here may have imported PyTorch
]


@pytest.mark.parametrize("line", WAYS)
def test_ways_to_write_it(run: Run, shell: InteractiveShell, line: str) -> None:
    run(line)
    assert [shell.user_ns[name].ordinal for name in "xy"] == [1, 1]


BAD = {
    "%to_gpu batc": "batc is not a variable here. Did you mean batch?",
    "%to_gpu stat.x": "stat is not a variable here. Did you mean state?",
    "%to_gpu": "No variable is named. Try %to_gpu model batch, or %to_gpu --all",
    "%to_cpu": "No variable is named. Try %to_cpu model batch, or %to_cpu --all",
    "%to_gpu state.wight": "object has no attribute 'wight'. Did you mean weight?",
    "%to_gpu state.hidden": "object has no attribute 'hidden'",  # and _hidden is not for users
    "%to_gpu state.weight.rael": "AttributeError: 'float' object has no attribute 'rael'. Did you mean real?",
    "%to_gpu odd.x": "object has no attribute 'x'",
    "%to_gpu batch['z']": "batch['z'] raises KeyError: 'z'",
    '%to_gpu batch[key] data["x y"]': "data is not a variable here.",
    "%to_gpu batch.values()": "'batch.values()' is not a variable, attribute or item.",
    "%to_gpu batch.copy()[key]": "'batch.copy()[key]' is not a variable, attribute or item.",
    "%to_gpu batch[": "'batch[' is not a variable, attribute or item.",
    "%to_gpu x[1]": "x[1] is part of an Array. Move all of it: x",
    "%to_gpu pair[0]": "pair[0] is part of a tuple. Move all of it: pair",
    "%to_gpu frozen.x": "frozen.x is part of a Frozen. Move all of it: frozen",
    "%to_gpu n": "Nothing to move in n (int): no framework's arrays.",
    "%to_gpu a": "a is a NumPy array, which has no device. To convert it to a tensor on the GPU: --numpy torch",
    "%to_gpu x --device 9": "x: cuda:9 cannot be used: there are eight.",
    "%to_gpu x --device nowhere": "'nowhere' is not a device",
    "%to_gpu x --all": "--all means every variable, but x is also named. Use one of the two.",
    "%to_gpu x cuda:1": "cuda:1 is not a variable. To name a device: --device cuda:1",
    "%to_cpu x cuda:1": "cuda:1 names a device, not a variable.",
}


@dataclass(frozen=True)
class Frozen:
    x: Array


class Odd:
    def __dir__(self) -> list[str]:
        raise RuntimeError


@pytest.mark.parametrize(("line", "said"), BAD.items())
def test_bad_input_is_one_line_and_nothing_has_moved(
    run: Run, shell: InteractiveShell, line: str, said: str
) -> None:
    x = shell.user_ns["x"]
    state = SimpleNamespace(x=x, weight=1.0, _hidden=1)
    shell.push({"frozen": Frozen(x), "odd": Odd(), "a": np.ones(2), "state": state})
    shown = run(line)
    assert len(shown) == 1
    assert said in shown[0]
    assert not shown[0].endswith("mean _hidden?")
    assert shell.user_ns["batch"]["x"] is x
    assert x.ordinal is None


def test_all_moves_what_can_be_moved_and_names_outputs(run: Run, shell: InteractiveShell) -> None:
    run("y")
    *_, moved, stays = run("%to_gpu --all")
    assert moved == f"2.0 MiB moved to {GPU.format(0)}."
    assert stays == f"Not moved: Out[1], {OLD}"
    x = shell.user_ns["x"]
    assert x.ordinal == 0
    assert all(one is x for one in (*shell.user_ns["pair"], shell.user_ns["state"].x))


def test_all_names_variables_without_arrays_that_take_too_long_to_search(
    run: Run, shell: InteractiveShell
) -> None:
    run(
        "class Record: pass\ndef make(): return [Record() for _ in range(60_000)]\n"
        "records, batch = make(), {'rows': make(), 'x': x}\n"
        "import numpy\ntable = {'rows': make(), 'n': numpy.ones(2)}"  # which does not move
    )
    too_long = "Not searched in full because that takes too long: records and table."
    before, *_ = run("%to_gpu --all --dry-run")[-1:]
    assert before == too_long
    assert run("%to_gpu --all")[-1] == too_long
    assert shell.user_ns["batch"]["x"] is shell.user_ns["x"]


def test_all_leaves_out_variables_that_share_no_arrays(run: Run) -> None:
    run("class Config: pass\nstate.config = config = Config()\nalso = [config]\nbatch['config'] = config")
    shown = "\n".join(run("%to_gpu --all --dry-run"))
    assert "batch" in shown
    assert "config" not in shown
    assert "also" not in shown
    assert run("%to_gpu state also --dry-run")[1].endswith("  nothing to move")


def test_what_does_not_fit_is_refused_and_simulated_memory_is_not_free(
    framework: EightGpus, run: Run
) -> None:
    framework.free = 1000
    assert "1.0 MiB do not fit on " in run("%to_gpu x")[0]
    assert run("%to_gpu x --dry-run")[-1].startswith("1.0 MiB do not fit on ")
    framework.free = None
    assert run("%to_gpu x --dry-run")[-1].endswith(", where an unknown amount is free. Nothing was changed.")


def test_or_cpu_moves_to_the_cpu_and_says_so(run: Run, typed: Typed) -> None:
    run("%to_gpu x")
    assert run("%to_gpu x --device smi:9 --or-cpu") == [
        "Moving to the CPU: There is no GPU 9. This machine has GPUs 0 to 7.",
        "x  Array: 1 array  1.0 MiB  cuda:0 → cpu",
        "1.0 MiB moved to the CPU.",
    ]
    assert len(typed.outputs) == 2


def test_a_move_that_fails_is_undone(framework: EightGpus, run: Run, shell: InteractiveShell) -> None:
    shell.push({"held": [Array(1)]})
    framework.sticky = "CUDA error: an illegal memory access was encountered"
    said = f"Moving to cuda:2 failed, so nothing was changed: RuntimeError: {framework.sticky}"
    assert run("%to_gpu held --device 2") == [f"UsageError: {said}"]
    assert shell.user_ns["held"][0].ordinal == 1


def test_memory_is_free_behind_a_move_and_an_error(run: Run, shell: InteractiveShell) -> None:
    old = weakref.ref(shell.user_ns["y"])
    gc.disable()
    try:
        run("%to_gpu y nothing")
        run("%to_gpu y --dry-run")
        run("%to_gpu y")
        assert old() is None
    finally:
        gc.enable()


DIVIDED = {
    "batch state.weight;": ["batch", "state.weight"],
    "rows['it\\'s'], batch": ["rows['it\\'s']", "batch"],
    "rows['''\"a'  b''']": ["rows['''\"a'  b''']"],
    "(rows)['[a']  (state).weight": ["(rows)['[a']", "(state).weight"],
}


@pytest.mark.parametrize(("typed", "names"), DIVIDED.items())
def test_names_are_divided_where_python_would(typed: str, names: list[str]) -> None:
    rows = {"it's": 2.0, "\"a'  b": 3.0, "[a": 4.0}
    space = {"batch": 1.0, "state": SimpleNamespace(weight=1.0), "rows": rows}
    assert list(read_places(typed, space, ())) == names
