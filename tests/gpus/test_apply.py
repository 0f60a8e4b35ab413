"""A choice takes effect whole, or changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_magic.errors import NotFreeError
from gpu_magic.gpus.apply import apply
from gpu_magic.gpus.options import Options
from gpu_magic.process.environment import variables_now
from gpu_magic.process.session import current
from gpu_magic.process.view import read_machine
from tests.claims.holders import stranger

if TYPE_CHECKING:
    from gpu_magic.devices.model import Inventory


def test_gpus_that_another_process_claims_meanwhile_leave_the_memory_settings_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "4xA100-80GB clock=0")
    session, before = current(), variables_now()
    with stranger() as one:

        def claim(machine: Inventory) -> Inventory:
            one.run(f"claims.hold([{machine.gpus[1].uuid!r}])")
            return machine

        with pytest.raises(NotFreeError):
            apply(
                session,
                "1",
                Options(memory_limit="8GiB", only_free=True),
                inventory=read_machine(session),
                in_turn=claim,
            )
    assert not session.settings.memory
    assert session.claims.held == set()
    assert variables_now() == before
    session.unload()
