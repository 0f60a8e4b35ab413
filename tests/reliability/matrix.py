"""Tries a fault with every face, and tells what became of each."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from tests.conftest import LIMIT
from tests.reliability.faces import FACES
from tests.reliability.fault import HEALTHY, Variant
from tests.reliability.stage import SETUP, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel
    from tests.reliability.fault import Fault

__all__ = ["WORKS", "try_fault"]

WORKS, REFUSES, OMITTED = "works", "refuses", "omitted"


def try_fault(fault: Fault, start: Callable[[], Kernel]) -> dict[str, Any]:
    """Try a fault with every face.

    Returns
    -------
    dict[str, Any]
        `cells`: what became of each face, WORKS, or REFUSES where a cell was refused with one line; OMITTED where it
        was not tried. `said`: the lines of the table and of the choice.

    """
    kernel = start()
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    reply = kernel.run(SETUP)
    assert reply.status == "ok", reply.traceback
    outcomes = {face: OMITTED if face in fault.omitted else WORKS for face in FACES}
    said: list[str] = []
    for variant in fault.variants:
        found = _try_variant(kernel, fault, variant, is_last=variant is fault.variants[-1])
        for face, (refused, lines) in found.items():
            if refused:
                outcomes[face] = REFUSES
            if face in ("table", "choose"):
                said += lines
    return {"cells": outcomes, "said": said}


def _try_variant(
    kernel: Kernel, fault: Fault, variant: Variant, *, is_last: bool
) -> dict[str, tuple[bool, list[str]]]:
    kernel.change_machine(HEALTHY)
    kernel.run("import os\nfor _name in _TOLD: os.environ.pop(_name, None)\n%reload_ext gpu_magic")
    if not fault.chosen_before:
        kernel.change_machine(variant.driver)
        kernel.run("%reload_ext gpu_magic")
    stage = Stage.at(kernel, variant, is_last=is_last, is_alone=len(fault.variants) == 1)
    if fault.chosen_before:
        stage.type("%gpus 1,3", asks=(1, 3))
    found = {}
    for name, play in FACES.items():
        if name not in fault.omitted:
            kernel.change_machine(variant.driver)
            kernel.run(variant.code)
            stage.begin()
            play(stage)
            found[name] = stage.refused, stage.said
    if not is_last and fault.has_driver:
        _check_that_it_heals(stage)
    return found


def _check_that_it_heals(stage: Stage) -> None:
    """Check that all works again once the fault is gone."""
    stage.kernel.change_machine(HEALTHY)
    stage.kernel.run("import os\nfor _name in _TOLD: os.environ.pop(_name, None)\n%reload_ext gpu_magic")
    _wait_until_the_driver_answers(stage.kernel)
    stage.begin()
    stage.variant = Variant(name=f"after {stage.variant.name}")
    stage.type("%gpus 1,3", asks=(1, 3))
    assert not stage.refused, stage.said
    stage.type("%gpus reset", asks="reset")


def _wait_until_the_driver_answers(kernel: Kernel) -> None:
    """Wait for the ends of calls that hung: they come moments after the fault, and until then a GPU is not asked."""
    deadline = time.monotonic() + LIMIT
    while re.search("not answering|not answer:", kernel.run("print(gpu_magic.gpus())").stdout):
        assert time.monotonic() < deadline
        time.sleep(0.02)
