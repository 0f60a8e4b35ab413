"""Faults of a driver at the door that all features pass: what `%gpus` shows and chooses, in process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from IPython.core.error import UsageError

from gpu_magic.testing import Machine, simulate
from tests.reliability.faults import functions

if TYPE_CHECKING:
    from tests.conftest import Typed


def type_all(typed: Typed, machine: Machine, unfit: tuple[int, ...] = ()) -> None:
    """Type what asks the driver: each line does what it says, or is refused in one and changes nothing."""
    names = {name: index for index, gpu in enumerate(machine.gpus) for name in (str(index), gpu.uuid)}
    for line, wanted in (("%gpus", None), ("%gpus 1,3", [1, 3]), ("%gpus auto", 1), ("%gpus reset", [])):
        before = os.environ.get("CUDA_VISIBLE_DEVICES")
        done = typed(line)
        assert "Traceback" not in done.text, done.text
        mask = os.environ.get("CUDA_VISIBLE_DEVICES")
        if done.error is not None:
            assert isinstance(done.error, UsageError), done.error
            assert done.text.count("\n") == 1, done.text
        if done.error is not None or wanted is None:
            assert mask == before, line
            continue
        found = [names[name] for name in mask.split(",")] if mask else []
        assert found == wanted or (wanted == 1 and len(found) == 1 and found[0] not in unfit), line


@pytest.mark.parametrize("error", [3, 15, 999], ids=["NOT_SUPPORTED", "GPU_IS_LOST", "UNKNOWN"])
@pytest.mark.parametrize("gpus", [(1,), pytest.param((0, 1, 2, 3), marks=pytest.mark.nightly)])
def test_each_function_of_nvml_answers_an_error(typed: Typed, gpus: tuple[int, ...], error: int) -> None:
    for function in functions():
        with simulate("4xA100-80GB", clock=lambda: 0.0) as machine:
            for index in gpus:
                machine.gpus[index].fail(function, error)
            type_all(typed, machine)


@pytest.mark.parametrize("error", [4, 9, 18, 999])
def test_the_driver_does_not_start(typed: Typed, error: int) -> None:
    with simulate("4xA100-80GB", clock=lambda: 0.0) as machine:
        machine.refusal = error
        type_all(typed, machine)
        assert "4 GPUs" not in typed("%gpus").text


def test_a_gpu_is_lost(typed: Typed) -> None:
    with simulate("4xA100-80GB", clock=lambda: 0.0) as machine:
        machine.gpus[0].lose()
        type_all(typed, machine, unfit=(0,))
        machine.gpus[0].recover()
        assert "lost" not in typed("%gpus").text
