"""The programs of claims, tried where there is no GPU: each has what it imports, and runs over the stand-ins.

So a lent GPU's minutes are not spent on a wrong name. A stand-in confirms what it plays, and nothing about a GPU.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import json
import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import LIMIT
from tests.gpu.programs.cuda import LockArguments
from tests.gpu.test_claims import CLAIMS, outcome_of
from tests.native import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Fresh
    from tests.gpu.machine import Machine

PROGRAMS = sorted(Path(__file__).parent.glob("programs/[a-z]*.py"))
# What the stand-ins can play, quick ones.
PLAYED = (
    "driver.before_and_after",
    "driver.empty_mask",
    "masks.reads:quotes",
    "masks.reads:reversed",
    "order.alike",
    "choosing.too_late",
)
# By the pretend accelerator
PLACED = (
    *("placing.cell", "placing.sampling", "placing.past_the_last", "moving.ties", "moving.cell"),
    "parking.same_step",
)
# Their other models are in tests/outside.
OUTSIDE = ("outside.dispatched", "outside.same_as_to:4-bit", "outside.same_as_to:LoRA")
CHECKPOINTS = tuple(
    name
    for name in CLAIMS
    if name.startswith("checkpoint.") and CLAIMS[name].needs[1:] in ((), ("whole GPUs",))
)


def _imports(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules and names that a program imports from gpu_magic, the tests and the benchmarks."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in (
            "gpu_magic",
            "tests",
            "benchmarks",
        ):
            yield from ((str(node.module), one.name) for one in node.names)


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.stem)
def test_a_program_imports_only_what_is_there(file: Path) -> None:
    """Also in its functions, which no import of the program runs."""
    import_module(f"tests.gpu.programs.{file.stem}")
    assert [
        (module, name) for module, name in _imports(file) if not hasattr(import_module(module), name)
    ] == []


def test_each_program_is_there_and_takes_the_arguments_of_its_claim() -> None:
    for claim in CLAIMS.values():
        module, _, name = claim.name.partition(":")[0].partition(".")
        program = getattr(import_module(f"tests.gpu.programs.{module}"), name)
        inspect.signature(program).bind(*json.loads(json.dumps(claim.arguments)))


def test_the_programs_need_only_what_is_carried() -> None:
    """`carry.sh` copies this folder and parts of the benchmarks."""
    carried = Path(__file__).with_name("carry.sh").read_text(encoding="utf-8")
    found = {module for file in PROGRAMS for module, _ in _imports(file)}
    others = {
        module for module in found if module.partition(".")[0] != "gpu_magic" and module[:10] != "tests.gpu."
    }
    assert {one for one in others if f"{one.replace('.', '/')}.py" not in carried} == set()


@pytest.mark.parametrize(
    "name", [PLAYED[0], *(pytest.param(name, marks=pytest.mark.nightly) for name in PLAYED[1:])]
)
def test_what_the_stand_ins_play_is_confirmed(stand_ins: Machine, name: str) -> None:
    found = outcome_of(CLAIMS[name], stand_ins)
    assert found["outcome"] == "confirmed", found["what"]


@pytest.mark.nightly
@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("name", PLACED)
def test_what_the_pretend_accelerator_plays_is_confirmed(
    stand_ins: Machine, pretend: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", pretend["PYTHONPATH"])
    found = outcome_of(CLAIMS[name]._replace(needs=("a driver",)), stand_ins)
    assert found["outcome"] == "confirmed", found["what"]


@pytest.mark.nightly
@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("name", OUTSIDE)
def test_other_packages_move_by_their_own_rules_on_a_device_that_they_know(
    stand_ins: Machine, pretend: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([pretend["PYTHONPATH"], str(SOURCES / "npu")]))
    monkeypatch.setenv("GPU_MAGIC_PRETEND_AS", "npu")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")  # DeepSpeed wants more of an NPU than there is
    found = outcome_of(CLAIMS[name]._replace(needs=("a driver",)), stand_ins)
    assert found["outcome"] == "confirmed", found["what"]


@pytest.mark.nightly
@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [(name, ()) for name in CLAIMS if name.startswith("rivals.")] + [("parking.given_back", (64,))],
)
def test_what_is_timed_or_weighed_runs_to_its_end(
    stand_ins: Machine,
    pretend: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    arguments: tuple[int, ...],
) -> None:
    """Whether it is confirmed here depends on this machine, which has no GPU."""
    monkeypatch.setenv("PYTHONPATH", pretend["PYTHONPATH"])
    found = outcome_of(CLAIMS[name]._replace(needs=("a driver",), arguments=arguments), stand_ins)
    assert found["figures"], found["what"]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints_are_asked_for_as_the_header_says(stand_ins: Machine, name: str) -> None:
    """The stand-in refuses a lock without a time limit, reserved bytes that are not zero, and steps out of order."""
    found = outcome_of(CLAIMS[name], stand_ins)
    if found["outcome"] == "not tried":  # this user is not root, the host is small, or Linux has no Yama
        return
    assert found["outcome"] == "measured"
    assert "(" not in found["what"].replace("(KeyboardInterrupt)", ""), found[
        "what"
    ]  # no error of the driver


def test_a_step_out_of_order_is_refused_and_changes_nothing(stand_ins: Machine, fresh: Fresh) -> None:
    steps = ("restore", "unlock", "lock", "lock", "restore", "checkpoint", "unlock", "restore", "unlock")
    code = f"""
        import os
        from tests.gpu.programs.cuda import CudaProcess

        process = CudaProcess(os.getppid())
        print([process.do(step).code for step in {steps}], process.state(), process.do("restore"))
        """
    said = "[401, 401, 0, 401, 401, 0, 401, 0, 0] running restore: unknown to the driver (401)\n"
    assert fresh(code) == said
    assert ctypes.sizeof(LockArguments) == 64


def test_a_checkpointed_process_waits_until_it_is_restored(stand_ins: Machine) -> None:
    found = outcome_of(CLAIMS["checkpoint.calls_wait"], stand_ins)
    assert found["what"].startswith("cuDeviceGetCount returns 0")
    assert (
        "an allocation waits; an interrupt does not end the wait; then it fails (KeyboardInterrupt)"
        in found["what"]
    )


@pytest.mark.parametrize(("variable", "answer"), [("", 100), ("PRETEND_CUDA_TRIES_AGAIN", 3)])
def test_either_way_of_drivers_under_an_empty_mask_is_told_by_its_answer(
    stand_ins: Machine, monkeypatch: pytest.MonkeyPatch, variable: str, answer: int
) -> None:
    if variable:
        monkeypatch.setenv(variable, "1")
    found = outcome_of(CLAIMS["driver.empty_mask_then_another"], stand_ins)
    assert found["outcome"] == "confirmed"
    assert found["what"].startswith(f"cuDeviceGetCount {answer}; with another CUDA_VISIBLE_DEVICES")


def test_what_cannot_be_tried_or_fails_is_told(stand_ins: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, reason in (("mig_and_mps.one_instance", "split by MIG"), ("order.unlike", "of one model")):
        found = outcome_of(CLAIMS[name], stand_ins)
        assert found["outcome"] == "not tried"
        assert reason in found["what"]
    monkeypatch.setenv("GPU_MAGIC_TEST_STATE", "/nowhere")
    found = outcome_of(CLAIMS["driver.choice"], stand_ins)
    assert found["outcome"] == "contradicted"
    assert found["what"].startswith("its program failed: ")
