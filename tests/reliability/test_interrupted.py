"""What users type, interrupted at random moments and killed: nothing is left in between."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.reliability.fault import HEALTHY
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


@pytest.mark.timeout(600)  # hundreds of moments
def test_an_interrupt_at_any_moment(kernel: Kernel) -> None:
    kernel.run("from tests.reliability.interrupted import anywhere as _anywhere")
    reply = kernel.run(f"_found = _anywhere(get_ipython(), {INTERRUPTS})")
    assert reply.status == "ok", reply.stderr + reply.traceback
    found = ast.literal_eval(kernel.run("print(_found)").stdout)
    assert found["ended"]["interrupted"] > 100
    assert not found["wrong"], "\n".join(sorted(found["wrong"], key=lambda line: " shows " in line)[:12])


@pytest.mark.timeout(600)  # a process for each moment
def test_a_kill_at_any_moment(kernel: Kernel) -> None:
    kernel.run("from tests.reliability.killed import anywhere as _anywhere")
    reply = kernel.run(f"_found = _anywhere(get_ipython(), {KILLS})")
    assert reply.status == "ok", reply.stderr + reply.traceback
    assert ast.literal_eval(kernel.run("print(_found)").stdout) == []
