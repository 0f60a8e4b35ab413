"""What the Python functions are given by mistake: each gets one line that says what would work."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import gpu_magic
from gpu_magic.errors import ChoiceError, GpuMagicError, LaunchError, PlacementError, SimulationError
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.parametrize("array", [torch.ones(3), torch.tensor(1), np.array(1)])
def test_an_array_is_no_device(array: Any) -> None:
    model = torch.nn.Linear(4, 2)
    with pytest.raises(
        PlacementError, match=r"^An? \w+ is not a device. To move several variables: to_gpu\(\(model"
    ):
        gpu_magic.to_gpu(model, array)
    with pytest.raises(PlacementError, match=r"^An? \w+ does not name a device. Try on_gpu\(0\)"):
        gpu_magic.on_gpu(array)


def test_whole_numbers_of_numpy_are_devices() -> None:
    gpu_magic.on_gpu(np.int64(1))  # type: ignore[arg-type]
    with pytest.raises(PlacementError, match="cuda:3"):
        gpu_magic.to_gpu(torch.ones(1), np.int64(3))  # type: ignore[arg-type]


def test_arrays_of_numbers_are_gpus_and_a_figure_is_none() -> None:
    assert "cuda:0 = GPU 1" in str(gpu_magic.choose(torch.tensor([1, 3])))
    with pytest.raises(ChoiceError, match=r"tensor\(1.5000\) does not name a GPU"):
        gpu_magic.choose(torch.tensor(1.5))


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        (2, "0,1"),
        (np.int64(2), "0,1"),
        ([2, 0], "2,0"),
        ("3", "3"),
        ("auto:1", "0"),
        (np.array([1, 3]), "1,3"),
    ],
)
def test_what_is_waited_for(wanted: Any, there: str) -> None:
    asyncio.run(gpu_magic.wait_for(wanted))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == there


@pytest.mark.parametrize("wanted", [None, True, 2.5, {1, 2}, torch.tensor(1.5)])
def test_what_can_t_be_waited_for_is_refused_at_the_call(wanted: Any) -> None:
    with pytest.raises(ChoiceError, match=r"names no GPUs to wait for. Try wait_for\(1\)"):
        gpu_magic.wait_for(wanted)  # type: ignore[unused-coroutine]


def test_a_wait_can_be_a_task_for_one_of_the_gpus() -> None:
    async def chosen() -> str:
        return str(await asyncio.create_task(gpu_magic.wait_for(gpu_magic.gpus()[2])))

    assert "cuda:0 = GPU 2" in asyncio.run(chosen())


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("python 'x", {}, r"cannot be split into words \(no closing quotation\). Try launch\("),
        (5, {}, r"5 is neither a text nor a list of words. Try launch\('python train.py'\)"),
        (b"true", {}, "b'true' is neither a text nor a list of words"),
        ("true", {"env": "A=1"}, r"env='A=1' has no names with values. Try env=\{"),
        ("true", {"count": "2"}, r"count='2' is not a number of GPUs. Try launch\(..., count=2\)"),
        ("true", {"count": True}, "count=True is not a number of GPUs"),
        ("true", {"cwd": 5}, "cwd=5 is not a folder"),
    ],
)
def test_what_can_t_be_launched(command: Any, options: dict[str, Any], said: str) -> None:
    before = dict(gpu_magic.tasks())
    with pytest.raises(LaunchError, match=said):
        gpu_magic.launch(command, **options)
    assert gpu_magic.tasks() == before


def test_what_is_not_of_the_kind_that_is_needed() -> None:
    with pytest.raises(LaunchError, match=r"count='2' is not a number of GPUs. Try cluster\(..., count=2\)"):
        gpu_magic.cluster(count="2")  # type: ignore[arg-type]
    with pytest.raises(ChoiceError, match="5 is not a name"):
        gpu_magic.choose("auto:2", model=5)  # type: ignore[arg-type]
    with pytest.raises(ChoiceError, match=r"on_wait=5 is not a function\. Try on_wait=print"):
        gpu_magic.choose("auto", wait="1s", on_wait=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        lambda: gpu_magic.choose("auto", only_free="no"),  # type: ignore[arg-type]
        lambda: gpu_magic.choose(1, dry_run="no"),  # type: ignore[arg-type]
        lambda: gpu_magic.launch("true", each="no"),  # type: ignore[arg-type]
        lambda: gpu_magic.on_gpu(0, or_cpu="no"),  # type: ignore[arg-type]
    ],
)
def test_a_flag_is_true_or_false(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"^\w+='no' is neither True nor False\.$"):
        call()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_flag_can_be_of_numpy() -> None:
    assert not gpu_magic.choose(1, dry_run=np.True_).is_applied  # type: ignore[arg-type]
    assert gpu_magic.choose(1, dry_run=np.False_).is_applied  # type: ignore[arg-type]


def test_pandas_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="not installed: pip install pandas"):
        gpu_magic.history().to_pandas()


def test_a_clock_can_be_a_number() -> None:
    with simulate("1xT4", clock=0) as machine:
        machine.gpus[0].run("train.py", "maria", 1 << 30, work=50)
        assert machine.clock() == 0.0
        gpu_magic.gpus()  # the first reading knows no work of processes
        assert gpu_magic.gpus()[0].status == gpu_magic.gpus()[0].status


def test_a_clock_is_nothing_else() -> None:
    said = "clock='noon' is neither a number of seconds nor a function. Try clock=0"
    with pytest.raises(SimulationError, match=said), simulate("1xT4", clock="noon"):
        pass


# What `choose` says is in tests/gpus; here are the options of each function, as Python's keywords.
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gpu_magic.choose("auto:2", min_free=60), "--min-free 60 is less than 1 MiB. Try --min-free 60GB"),
        (lambda: gpu_magic.wait_for(2, within="soon"), "soon is not a time. Try 30m, 90s or 1h30m"),
        (lambda: gpu_magic.launch("true", gpus="2,0", count=5), "-n 5 does not fit 2 GPUs. Try -n 2"),
        (lambda: gpu_magic.launch("true", gpus=1, min_free="1GB"), "--min-free 1GB goes with auto. Try --gpus auto --min-free 1GB"),
        (lambda: gpu_magic.fit(torch.nn.Linear(4, 2)), "No batch is named. Try %gpu_fit model optimizer batch"),
        (lambda: gpu_magic.on_gpu("cpu", mirror=True), "--mirror needs GPUs, and only cpu is named. Omit --mirror."),
    ],
)  # fmt: skip
def test_options_are_named_as_they_are_typed(call: Callable[[], object], said: str) -> None:
    with pytest.raises(GpuMagicError) as refused:
        call()
    assert str(refused.value) == said
