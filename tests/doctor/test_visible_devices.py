"""Variables that hide GPUs, and CUDA that was started with them: what is found, and that what it says mends it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.devices.inventory import Inventory
from gpu_magic.doctor.checks import check_cuda, check_gpus, check_visible_devices
from gpu_magic.doctor.diagnosis import diagnose
from gpu_magic.doctor.facts import Facts
from gpu_magic.process.given import Grant
from gpu_magic.process.guard import Guard
from gpu_magic.process.mask import MASK, Variables
from gpu_magic.process.state import State
from gpu_magic.testing import simulate, start_cuda
from tests.doctor.conftest import inventory, kernel

if TYPE_CHECKING:
    from gpu_magic.doctor.facts import Finding

SPLIT = "1xA100-80GB(3g.40gb,4g.40gb)"


def about(name: str = MASK) -> list[Finding]:
    """Return what the doctor finds about something in this process."""
    return [one for one in gpu_magic.doctor().findings if one.about == name]


# What is said, done


@pytest.mark.parametrize(
    ("profile", "mask"),
    [
        *(
            ("4xA100-80GB", mask)
            for mask in (
                "",
                "-1",
                "0,0",
                "9",
                "1;2",
                "'0,1'",
                '"2,0"',
                "gpu-1a",
                "all",
                "0,-1,1",
                "0,9",
                "GPU-",
            )
        ),
        *(("1xT4+3xA100-80GB", mask) for mask in ("0", "1,2")),
        *((f"{SPLIT}+2xA100-80GB", mask) for mask in ("", "0", "1,2")),
        *((SPLIT, mask) for mask in ("", "0")),
    ],
)
def test_what_a_process_was_started_with_is_mended(profile: str, mask: str) -> None:
    """It is outside what the process was given, so that it takes `force`; what stays is worth knowing."""
    with simulate(profile, mask=mask):
        (found,) = about()
        eval(found.mend)
        assert [one for one in about() if one.severity == "wrong"] == []


@pytest.mark.parametrize("mask", [None, "0", "1,2"])
def test_a_lost_gpu_is_left_out(mask: str | None) -> None:
    with simulate("4xA100-80GB", mask=mask) as machine:
        machine.gpus[1].lose()
        eval(about("GPUs")[0].mend)
        assert [one for one in about("GPUs") + about() if one.severity == "wrong"] == []


def test_a_cell_that_has_hidden_all_gpus_was_no_choice() -> None:
    with simulate("2xA100-80GB"):
        for before in ("", "1", "reset"):
            if before:
                gpu_magic.choose(before)
            os.environ[MASK] = ""
            (found,) = about()
            assert (found.severity, found.meaning) == ("wrong", "A cell has set it, or a module.")
            eval(found.mend)
            assert about() == []


def test_none_that_was_chosen_is_no_fault() -> None:
    with simulate("2xA100-80GB"):
        gpu_magic.choose("none")
        (found,) = about()
        assert (found.severity, found.meaning) == ("worth knowing", "You have chosen so.")
        start_cuda()
        (found,) = about("CUDA")
        assert found.severity == "worth knowing"


def test_where_all_gpus_are_split_by_mig_auto_is_offered() -> None:
    """`all` fails there: one process can use one MIG instance."""
    with simulate(SPLIT, mask=""):
        (found,) = about()
        assert found.mend == "gpu_magic.choose('auto', force=True)"
        eval(found.mend)
        assert about() == []


def test_several_mig_instances_of_which_cuda_takes_one() -> None:
    with simulate(SPLIT) as machine:
        machine.driver, machine.cuda = "535.104.05", 12020
        os.environ[MASK] = ",".join(str(one.uuid) for one in gpu_magic.gpus()[0].mig)
        (found,) = about()
        assert found.severity == "worth knowing"


# How it is typed


def mends(machine: Inventory, program: str = "kernel", **more: object) -> list[tuple[str, str]]:
    facts = Facts(machine, kernel(machine, program, **more))  # type: ignore[arg-type]
    return [(one.severity, one.mend) for one in check_visible_devices(facts)]


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("kernel", "%gpus all --force"),
        ("unattended kernel", "%gpus all --force"),
        ("python", "gpu_magic.choose('all', force=True)"),
        ("shell", "unset CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES"),
    ],
)
def test_all_gpus_are_chosen_where_none_is_seen(program: str, line: str) -> None:
    assert mends(inventory(), program, mask="") == [("wrong", line)]


@pytest.mark.parametrize(
    ("mask", "meant"),
    [
        ("0-2", "0,1,2"),
        ("[2, 0]", "2,0"),
        ("(1,)", "1"),
        ("all", "0,1,2,3"),
        ("cuda:2,cuda:0", "2,0"),
        ("2-0", ""),
        ("9-9999999", ""),
    ],
)
def test_what_a_value_seems_to_mean_is_suggested(mask: str, meant: str) -> None:
    ((_, found),) = set(mends(inventory(), "shell", mask=mask))
    chosen = f"export CUDA_VISIBLE_DEVICES={meant} CUDA_DEVICE_ORDER=PCI_BUS_ID"
    assert found == chosen if meant else found.startswith("unset CUDA_VISIBLE_DEVICES ")


def test_a_shell_names_a_lost_gpu_s_neighbours_and_mig_instances_by_uuid() -> None:
    """CUDA numbers those that are left, so 3 may mean none, and ends the list."""
    machine = inventory("3xA100-80GB")
    first, lost, last = machine.gpus
    machine = replace(machine, gpus=(first, replace(lost, problem="not answering"), last))
    (found,) = check_gpus(Facts(machine, kernel(machine, "shell")))
    assert found.mend == f"export CUDA_VISIBLE_DEVICES={first.uuid},{last.uuid} CUDA_DEVICE_ORDER=PCI_BUS_ID"
    machine = inventory(SPLIT, driver_version="535.104.05", cuda_version="12.2")
    one, other = (str(instance.uuid) for instance in machine[0].mig)
    ((_, mend),) = mends(machine, "shell", mask=f"{other},{one},{one}")
    assert mend == f"export CUDA_VISIBLE_DEVICES={other},{one} CUDA_DEVICE_ORDER=PCI_BUS_ID"


def test_gpus_of_others_are_not_offered() -> None:
    job = Grant("Slurm job 4711")
    assert mends(inventory(), mask="0,0", grant=job) == [("wrong", "")]
    assert mends(inventory(), mask="", grant=job) == [("wrong", "#SBATCH --gres=gpu:1")]


def test_without_a_gpu_an_empty_variable_is_no_fault() -> None:
    """It is how frameworks are kept from looking for GPUs, and none could be chosen."""
    assert mends(Inventory(problem="NVML is not here."), mask="") == [("worth knowing", "")]


# AMD's GPUs

AMD = replace(inventory(), gpus=tuple(replace(gpu, vendor="amd", hip_id=gpu.index) for gpu in inventory()))


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"hip": "-1"}, "HIP_VISIBLE_DEVICES"),
        ({"mask": "-1"}, "CUDA_VISIBLE_DEVICES"),
        ({"rocr": ""}, "ROCR_VISIBLE_DEVICES"),
    ],
)
def test_amd_s_gpus_are_hidden_by_the_variable_that_is_named(variables: dict[str, str], name: str) -> None:
    process = kernel(AMD, variables=Variables(**variables))
    (found,) = check_visible_devices(Facts(AMD, process))
    assert (found.severity, found.about, found.meaning) == ("wrong", name, "This process was started so.")
    assert found.what.startswith(name)
    assert "ROCm sees no GPU" in found.what
    (found,) = check_visible_devices(Facts(AMD, replace(process, launched=Variables())))
    assert found.meaning == "A cell has set it, or a module."


def test_hip_s_numbers_are_not_taken_for_others() -> None:
    assert {mend for _, mend in mends(AMD, variables=Variables(hip="0,9"))} == {"%gpus auto"}
    # Of what is hidden no more all are meant.
    frozen = Guard(State.FROZEN, is_known=True, devices=(), vendor="amd")
    (found,) = check_cuda(Facts(AMD, kernel(AMD, variables=Variables(), guard=frozen)))
    assert found.mend == "%gpus all --restart"


# CUDA


def test_a_choice_that_came_too_late_is_made_with_a_restart() -> None:
    with simulate("4xA100-80GB", order="PCI_BUS_ID"):
        os.environ[MASK] = "1"
        start_cuda()
        os.environ[MASK] = "2,3"
        (found,) = [one for one in diagnose("kernel").findings if one.about == MASK]
        assert (found.severity, found.mend) == ("wrong", "%gpus 2,3 --restart")
        assert "this process stays with GPU 1" in found.what


def test_cuda_that_was_started_while_all_were_hidden() -> None:
    with simulate("4xA100-80GB"):
        os.environ[MASK] = ""
        start_cuda()
        os.environ[MASK] = "2,3"
        found = [one for one in diagnose("kernel").findings if one.about in ("CUDA", MASK)]
        assert [(one.severity, one.about, one.mend) for one in found] == [
            ("wrong", "CUDA", "%gpus 2,3 --restart")
        ]
        (outside,) = about("CUDA")
        assert outside.mend == "gpu_magic.choose('2,3')"
        assert "restart Python" in outside.meaning


@pytest.mark.parametrize(("state", "severity"), [(State.FORKED, "wrong"), (State.UNCLEAR, "worth knowing")])
def test_a_forked_process(state: State, severity: str) -> None:
    machine = inventory()
    (found,) = check_cuda(Facts(machine, kernel(machine, guard=Guard(state))))
    assert (found.severity, found.mend) == (
        severity,
        'multiprocessing.set_start_method("spawn", force=True)',
    )


@pytest.mark.parametrize(
    ("error", "line"), [(803, "sudo reboot"), (802, "sudo systemctl restart nvidia-fabricmanager"), (46, "")]
)
def test_a_driver_that_cuda_can_t_use(error: int, line: str) -> None:
    machine = inventory()
    (found,) = check_cuda(Facts(machine, kernel(machine, guard=Guard(State.BROKEN, error=error))))
    assert f"(CUDA error {error})." in found.what
    assert found.mend == line
