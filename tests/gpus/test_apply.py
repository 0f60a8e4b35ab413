"""A choice takes effect whole, or changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpu_magic.errors import NotFreeError
from gpu_magic.gpus.apply import Asked, commit, decide
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.request import parse
from gpu_magic.process.environment import variables_now
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from tests.claims.holders import stranger
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh

# What a thread of the user's can do, at a moment that is the same each time: as GPU 2 is chosen.
STARTS = """
    import json, os, sys, warnings
    import gpu_magic
    from gpu_magic.testing import simulate, start_cuda
    moments = [{variable!r}]
    def start(event, about):
        if event == "os.putenv" and about[0].decode() in moments:
            moments.clear()
            start_cuda()
    warnings.simplefilter("ignore")
    with simulate("4xA100-80GB"):
        gpu_magic.choose("3,1")
        sys.addaudithook(start)
        choice = gpu_magic.choose("2")
        print(json.dumps([choice.is_applied, choice.refusal.partition(". To")[0], os.environ["CUDA_VISIBLE_DEVICES"]]))
        same = gpu_magic.choose("2" if choice.is_applied else "3,1")
        print(json.dumps(same.is_applied))
"""


@pytest.mark.parametrize(
    ("variable", "result"),
    [
        (
            "CUDA_VISIBLE_DEVICES",
            [False, "Too late: CUDA has started. This process keeps GPU 3 (cuda:0), GPU 1 (cuda:1)", "3,1"],
        ),
        ("CUDA_DEVICE_ORDER", [True, "", "2"]),  # CUDA has read the new choice then
    ],
)
def test_cuda_that_starts_while_a_choice_takes_effect_is_noticed(
    fresh: Fresh, variable: str, result: list[object]
) -> None:
    first, same = fresh(STARTS.format(variable=variable)).splitlines()
    assert json.loads(first) == result
    assert json.loads(same) is True


def test_gpus_that_another_process_claims_meanwhile_leave_the_memory_settings_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "4xA100-80GB clock=0")
    session, before = current(), variables_now()
    with stranger() as one:

        def claim_between() -> None:
            asked = Asked(parse("1"), Options(memory_limit="8GiB", only_free=True), "1")
            snapshot = Snapshot.take(session)
            decision = decide(asked, snapshot)
            one.run(f"claims.hold([{snapshot[1].uuid!r}])")
            commit(session, decision)

        with pytest.raises(NotFreeError):
            session.claims.pick_in_turn(claim_between, waits=False)
    assert not session.settings.memory
    assert session.claims.held == set()
    assert variables_now() == before
    session.unload()


def test_a_choice_that_cuda_has_overtaken_leaves_the_claims_as_they_were(
    fresh: Fresh, native: Path, tmp_path: Path
) -> None:
    Driver(CARDS).write(tmp_path / "machine")
    code = """
        import ctypes, sys, warnings
        import gpu_magic
        from gpu_magic.process.session import current
        def start(event, about):
            if event == "os.putenv" and about[0] == b"CUDA_VISIBLE_DEVICES":
                ctypes.CDLL("libcuda.so.1").cuInit(0)
        warnings.simplefilter("ignore")
        gpu_magic.choose("3,1")
        sys.addaudithook(start)
        print(gpu_magic.choose("2").is_applied, *sorted(current().claims.held))
    """
    said = fresh(code, **environment(native, tmp_path / "machine"))
    assert said == f"False {CARDS[1].uuid} {CARDS[3].uuid}\n"
