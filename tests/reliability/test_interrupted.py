"""What users type, interrupted at random moments and killed: nothing is left in between."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import pytest

from tests.reliability.faults import HEALTHY
from tests.reliability.interrupted import INTERRUPTS, KILLS
from tests.reliability.stage import SETUP

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> Kernel:
    kernel = start_kernel(HEALTHY, imported=("torch", "torch._dynamo"), **pretend)
    kernel.run("%load_ext gpu_magic")
    assert kernel.run(SETUP).status == "ok"
    return kernel


def times(before_each_push: int, every_night: int) -> list[Any]:
    return [before_each_push, pytest.param(every_night, marks=pytest.mark.nightly)]


@pytest.mark.timeout(600)  # hundreds of moments
@pytest.mark.parametrize("times", times(60, INTERRUPTS))
def test_an_interrupt_at_any_moment(kernel: Kernel, times: int) -> None:
    kernel.run("from tests.reliability.interrupted import anywhere as _anywhere")
    reply = kernel.run(f"_found = _anywhere(get_ipython(), {times})")
    assert reply.status == "ok", reply.stderr + reply.traceback
    found = ast.literal_eval(kernel.run("print(_found)").stdout)
    assert found["ended"]["interrupted"] > times / 5
    assert not found["wrong"], "\n".join(sorted(found["wrong"], key=lambda line: " shows " in line)[:12])


@pytest.mark.timeout(600)  # a process for each moment
@pytest.mark.parametrize("times", times(15, KILLS))
def test_a_kill_at_any_moment(kernel: Kernel, times: int) -> None:
    kernel.run("from tests.reliability.killed import anywhere as _anywhere")
    reply = kernel.run(f"_found = _anywhere(get_ipython(), {times})")
    assert reply.status == "ok", reply.stderr + reply.traceback
    assert ast.literal_eval(kernel.run("print(_found)").stdout) == []
