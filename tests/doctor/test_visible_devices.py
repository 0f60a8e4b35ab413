"""Variables that hide GPUs, and CUDA that was started with them: what is found, and that what it says fixes it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import gpu_magic
from gpu_magic.devices.model import Inventory
from gpu_magic.devices.problems import Cause, GpuCause, GpuProblem, Problem
from gpu_magic.doctor.checks import check_cuda, check_gpus, check_visible_devices
from gpu_magic.doctor.diagnosis import read_kernel
from gpu_magic.doctor.facts import Facts
from gpu_magic.process.drivers import State
from gpu_magic.process.given import Grant
from gpu_magic.process.guard import Guard
from gpu_magic.process.mask import MASK, Flaw, Note, Variables
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.testing import simulate, start_cuda
from tests.doctor.conftest import AMD, inventory, kernel

if TYPE_CHECKING:
    from gpu_magic.doctor.facts import Finding, Program

SPLIT = "1xA100-80GB(3g.40gb,4g.40gb)"


def about(name: str = MASK, program: Program = "python") -> list[Finding]:
    """Return what is found about something in this process."""
    snapshot = Snapshot.take(current())
    facts = Facts(snapshot.machine, read_kernel(snapshot, program))
    found = [*check_gpus(facts), *check_visible_devices(facts), *check_cuda(facts)]
    return [one for one in found if one.about == name]


def wrong(*names: str) -> list[Finding]:
    return [one for name in names for one in about(name) if one.severity == "wrong"]


# What is said, done


MASKS = {
    "4xA100-80GB": ["", "-1", "0,0", "1;2", "'0,1'", '"2,0"', "gpu-1a", "all", "0,-1,1", "0,9", "GPU-"],
    "1xT4+3xA100-80GB": ["0", "1,2"],
    f"{SPLIT}+2xA100-80GB": ["", "0", "1,2"],
    SPLIT: ["", "0"],  # `all` fails there: one process can use one MIG instance
}


@pytest.mark.parametrize(("profile", "mask"), [(one, mask) for one, masks in MASKS.items() for mask in masks])
def test_what_a_process_was_started_with_is_mended(profile: str, mask: str) -> None:
    """It is outside what the process was given, so that it takes `force`; what stays is worth knowing."""
    with simulate(profile, mask=mask):
        (found,) = about()
        eval(found.fix)
        assert wrong(MASK) == []


@pytest.mark.parametrize("mask", [None, "0", "1,2"])
def test_a_lost_gpu_is_left_out(mask: str | None) -> None:
    with simulate("4xA100-80GB", mask=mask) as machine:
        machine.gpus[1].lose()
        eval(about("GPUs")[0].fix)
        assert wrong("GPUs", MASK) == []


def test_a_cell_that_has_hidden_all_gpus_was_no_choice() -> None:
    with simulate("2xA100-80GB"):
        for before in ("", "1", "reset"):
            if before:
                gpu_magic.choose(before)
            os.environ[MASK] = ""
            (found,) = about()
            assert (found.severity, found.effect) == ("wrong", "A cell or a module has set it.")
            eval(found.fix)
            assert about() == []


def test_none_that_was_chosen_is_no_fault() -> None:
    with simulate("2xA100-80GB"):
        gpu_magic.choose("[None]")
        (found,) = about()
        assert (found.severity, found.effect) == ("worth knowing", "You chose this.")
        start_cuda()
        (found,) = about("CUDA")
        assert found.severity == "worth knowing"


# How it is typed

UNSET, JOB = (
    "unset CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES",
    Grant("Slurm job 4711", scheduler="Slurm"),
)


def export(mask: str) -> str:
    return f"export CUDA_VISIBLE_DEVICES={mask} CUDA_DEVICE_ORDER=PCI_BUS_ID"


def fixes(machine: Inventory, program: Program = "kernel", **more: Any) -> set[tuple[str, str]]:
    found = list(check_visible_devices(Facts(machine, kernel(machine, program, **more))))
    assert all(one.fix or one.effect for one in found)  # what fixes it, or why nothing does
    return {(one.severity, one.fix) for one in found}


@pytest.mark.parametrize(
    ("program", "mask", "grant", "line"),
    [
        # All GPUs, where none is seen.
        ("kernel", "", Grant(), "%gpus all --force"),
        ("unattended kernel", "", Grant(), "%gpus all --force"),
        ("python", "", Grant(), "gpu_magic.choose('all', force=True)"),
        ("shell", "", Grant(), UNSET),
        # What a value seems to mean.
        ("shell", "0-2", Grant(), export("0,1,2")),
        ("shell", "[2, 0]", Grant(), export("2,0")),
        ("shell", "(1,)", Grant(), export("1")),
        ("shell", "all", Grant(), export("0,1,2,3")),
        ("shell", "cuda:2,cuda:0", Grant(), export("2,0")),
        ("shell", "2-0", Grant(), UNSET),
        ("shell", "9-9999999", Grant(), UNSET),
        # GPUs of others are not offered.
        ("kernel", "0,0", JOB, ""),
        ("kernel", "", JOB, "#SBATCH --gres=gpu:1"),
    ],
)
def test_what_chooses_gpus_there(program: Program, mask: str, grant: Grant, line: str) -> None:
    assert fixes(inventory(), program, mask=mask, grant=grant) == {("wrong", line)}


def test_a_shell_names_a_lost_gpu_s_neighbours_and_mig_instances_by_uuid() -> None:
    """CUDA numbers those that are left, so 3 may mean none, and ends the list."""
    machine = inventory("3xA100-80GB")
    first, lost, last = machine.gpus
    machine = replace(machine, gpus=(first, lost._replace(problem=GpuProblem(GpuCause.LOST)), last))
    (found,) = check_gpus(Facts(machine, kernel(machine, "shell")))
    assert found.fix == export(f"{first.uuid},{last.uuid}")
    machine = inventory(SPLIT, driver_version="535.104.05", cuda_version="12.2")
    one, other = (str(instance.uuid) for instance in machine[0].mig)
    first_only = {("worth knowing", export(f"{other},{one}"))}  # CUDA takes the first, which may be meant
    assert fixes(machine, "shell", mask=f"{other},{one}") == first_only


def test_without_a_gpu_an_empty_variable_is_no_fault() -> None:
    """It is how frameworks are kept from looking for GPUs, and none could be chosen."""
    assert fixes(Inventory(problem=Problem(Cause.NO_LIBRARY)), mask="") == {("worth knowing", "")}


# AMD's GPUs


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        (Variables(hip="-1"), "HIP_VISIBLE_DEVICES"),
        (Variables(mask="-1"), "CUDA_VISIBLE_DEVICES"),
        (Variables(rocr=""), "ROCR_VISIBLE_DEVICES"),
    ],
)
def test_amd_s_gpus_are_hidden_by_the_variable_that_is_named(variables: Variables, name: str) -> None:
    process = kernel(AMD, variables=variables)
    for launched, by in (
        (variables, "This process was started with it."),
        (Variables(), "A cell or a module has set it."),
    ):
        (found,) = check_visible_devices(Facts(AMD, replace(process, launched=launched)))
        assert (found.severity, found.about, found.effect) == ("wrong", name, by)
        assert found.problem.startswith(name)
        assert found.problem.endswith(": ROCm sees no GPU.")


def test_hip_s_numbers_are_not_taken_for_others() -> None:
    assert {fix for _, fix in fixes(AMD, variables=Variables(hip="0,9"))} == {"%gpus auto"}
    # Of what is hidden no more all are meant.
    frozen = Guard(State.FROZEN, is_known=True, devices=(), vendor="amd")
    (found,) = check_cuda(Facts(AMD, kernel(AMD, variables=Variables(), guard=frozen)))
    assert found.fix == "%gpus all --restart"


# CUDA


@pytest.mark.parametrize(("before", "name"), [("1", MASK), ("", "CUDA")])
def test_a_choice_that_came_too_late_is_made_with_a_restart(before: str, name: str) -> None:
    with simulate("4xA100-80GB", order="PCI_BUS_ID"):
        os.environ[MASK] = before
        start_cuda()
        os.environ[MASK] = "2,3"
        found = [*about(MASK, "kernel"), *about("CUDA", "kernel")]
        assert [(one.severity, one.about, one.fix) for one in found] == [
            ("wrong", name, "%gpus 2,3 --restart")
        ]
        assert ("This process keeps GPU 1" in found[0].problem) == (before == "1")
        (outside,) = about(name)
        assert outside.fix == "gpu_magic.choose('2,3')"
        assert ("restart Python" in outside.effect) == (name == "CUDA")


@pytest.mark.parametrize(("state", "severity"), [(State.FORKED, "wrong"), (State.UNCLEAR, "worth knowing")])
def test_a_forked_process(state: State, severity: str) -> None:
    machine, fix = inventory(), 'multiprocessing.set_start_method("spawn", force=True)'
    (found,) = check_cuda(Facts(machine, kernel(machine, guard=Guard(state))))
    assert (found.severity, found.fix) == (severity, fix)


def test_a_list_that_lacks_the_gpus_of_the_variable_is_worth_knowing() -> None:
    machine, note = inventory(), Note("Slurm allotted other GPUs.", Flaw.CONTRADICTION)
    (found,) = check_visible_devices(Facts(machine, kernel(machine, mask="0", notes=(note,))))
    assert (found.severity, found.problem, found.fix) == ("worth knowing", str(note), "")
