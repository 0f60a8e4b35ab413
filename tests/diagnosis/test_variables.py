"""What is typed for variables that hide GPUs: in a shell, beside a lost GPU, with MIG instances, and AMD's GPUs."""

from __future__ import annotations

import json
import sysconfig
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.diagnosis.checks.gpus import check_gpus
from gpu_magic.diagnosis.checks.mps import check_mps
from gpu_magic.diagnosis.checks.visible_devices import check_visible_devices
from gpu_magic.diagnosis.facts import Facts, Kernel, System
from gpu_magic.process.guard import Guard
from gpu_magic.process.state import State
from gpu_magic.selection.seen import read_visible
from gpu_magic.selection.visible import Variables
from gpu_magic.testing import simulate
from tests.machine import AMD_CARDS, CARDS, GIB, MIG, Card, Driver, amd_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.devices.inventory import Inventory
    from tests.diagnosis.conftest import Machine, Page


def in_shell(machine: Inventory, **values: str) -> Facts:
    """Return the facts of `gpu-magic doctor` with these variables."""
    variables = Variables(**values)
    reading = read_visible(variables, machine)
    labels = UNKNOWN if reading.devices is UNKNOWN else tuple(device.label for device in reading.devices)
    kernel = Kernel("shell", Guard(State.ABSENT), variables, variables, reading.notes, labels)
    return Facts(machine, kernel, system=System())


# A shell


def test_a_shell_leaves_a_lost_gpu_out_by_uuid() -> None:
    """CUDA numbers those that are left, so 3 may mean none, and ends the list."""
    with simulate("4xA100-80GB") as simulated:
        simulated.gpus[1].lose()
        machine = gpu_magic.gpus()
    (found,) = check_gpus(in_shell(machine))
    uuids = ",".join(str(machine[number].uuid) for number in (0, 2, 3))
    assert found.mend == f"export CUDA_VISIBLE_DEVICES={uuids} CUDA_DEVICE_ORDER=PCI_BUS_ID"
    assert list(check_visible_devices(in_shell(machine))) == []  # that they can't be known is the same thing


def test_a_shell_names_mig_instances_by_uuid() -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)") as simulated:
        simulated.driver, simulated.cuda = "535.104.05", 12020
        machine = gpu_magic.gpus()
    first, second = (str(instance.uuid) for instance in machine[0].mig)
    (found,) = check_visible_devices(in_shell(machine, mask=f"{second},{first},{first}"))
    assert found.mend == f"export CUDA_VISIBLE_DEVICES={second},{first} CUDA_DEVICE_ORDER=PCI_BUS_ID"


def test_a_shell_gives_gpus_that_differ_their_numbers() -> None:
    with simulate("1xA100-80GB+1xT4"):
        machine = gpu_magic.gpus()
    (found,) = check_visible_devices(in_shell(machine))
    assert found.mend == "export CUDA_VISIBLE_DEVICES=0,1 CUDA_DEVICE_ORDER=PCI_BUS_ID"


def test_a_shell_takes_the_share_of_mps_away() -> None:
    with simulate("1xA100-80GB"):
        machine = gpu_magic.gpus()
    facts = replace(in_shell(machine), machine=UNKNOWN, system=System(mps_share="25"))
    (found,) = check_mps(facts)
    assert found.mend == "unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


@pytest.mark.parametrize(
    ("mask", "meant"),
    [
        ("0-2", "0,1,2"),
        ("[2, 0]", "2,0"),
        ("(1,)", "1"),
        ("all", "0,1,2,3"),
        ("cuda:2,cuda:0", "2,0"),
        ("O,1", "0,1"),
        ("2-0", ""),
        ("9-9999999", ""),
    ],
)
def test_what_a_value_seems_to_mean_is_suggested(mask: str, meant: str) -> None:
    with simulate("4xA100-80GB"):
        machine = gpu_magic.gpus()
    (found,) = {one.mend for one in check_visible_devices(in_shell(machine, mask=mask))}
    chosen = f"export CUDA_VISIBLE_DEVICES={meant} CUDA_DEVICE_ORDER=PCI_BUS_ID"
    assert found == (
        chosen if meant else "unset CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES"
    )


# What is said, done


DO = """
import gpu_magic, json
from gpu_magic.selection.visible import MASK
for about in ("GPUs", MASK):
    for found in gpu_magic.doctor().findings:
        if found.about == about and found.mend:
            eval(found.mend)
            break
print(json.dumps([[one.severity, one.about] for one in gpu_magic.doctor().findings if one.about in ("GPUs", MASK)]))
"""
UNLIKE = (replace(CARDS[0], name="NVIDIA T4", total=16 * GIB), *CARDS[1:])
SPLIT = (replace(CARDS[0], mig=MIG), *CARDS[1:])


@pytest.mark.parametrize(
    ("driver", "mask"),
    [
        *(
            (Driver(CARDS), mask)
            for mask in ("", "0,0", "9", "1;2", "'0,1'", "gpu-1a", "all", "0,-1,1", "0,9")
        ),
        *((Driver(CARDS), mask) for mask in ("GPU-", f"{CARDS[1].uuid},2", "MIG-b", "0,,1")),
        *((Driver(UNLIKE), mask) for mask in (None, "0", "1,2")),
        *((Driver(SPLIT), mask) for mask in (None, "0", "1,2", CARDS[0].uuid)),
        *((Driver(CARDS).losing(1), mask) for mask in (None, "0", "1,2", CARDS[1].uuid, CARDS[0].uuid)),
    ],
)
def test_what_a_process_was_started_with_is_mended(
    machine: Machine, driver: Driver, mask: str | None
) -> None:
    """It is outside what the process was given, so that it takes `force`; what stays is worth knowing."""
    machine.driver = driver
    variables = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    left = json.loads(machine.run(DO, **variables))
    assert [about for severity, about in left if severity == "wrong"] == []


@pytest.mark.parametrize("more", [{"GPU_MAGIC_ALLOW_FORCE": "0"}, {"SLURM_JOB_ID": "4711"}])
def test_gpus_of_others_are_not_offered(machine: Machine, more: dict[str, str]) -> None:
    found = machine.page(CUDA_VISIBLE_DEVICES="0,0", **more).about("CUDA_VISIBLE_DEVICES")
    assert (found["severity"], found["mend"]) == ("wrong", "")
    assert found["meaning"].startswith("This process was started so")


@pytest.mark.parametrize("card", [replace(CARDS[1], mode=2), replace(CARDS[1], lost=True)])
def test_a_gpu_that_is_not_seen_is_no_fault_of_this_process(machine: Machine, card: Card) -> None:
    machine.driver = Driver((CARDS[0], card, *CARDS[2:]))
    found = machine.page(CUDA_VISIBLE_DEVICES=CARDS[0].uuid).about("GPUs")
    assert (found["severity"], found["mend"]) == ("worth knowing", "")
    assert found["meaning"] == "This process does not see it."


# A machine of which no GPU can be read


def test_without_a_gpu_an_empty_variable_is_no_fault(machine: Machine) -> None:
    """It is how frameworks are kept from looking for GPUs, and none could be chosen."""
    machine.driver = None
    found = machine.page(CUDA_VISIBLE_DEVICES="").about("CUDA_VISIBLE_DEVICES")
    assert (found["severity"], found["mend"]) == ("worth knowing", "")


# AMD's GPUs


@pytest.fixture
def look(machine: Machine, native_amd: Path) -> Callable[..., Page]:
    """Return a way to read the page on a machine with four of AMD's GPUs."""
    machine.driver = None
    state = machine.folder / "amd_state"
    Driver(AMD_CARDS).write(state)
    origin = find_spec("amdsmi").origin  # type: ignore[union-attr]
    (machine.packages / "amdsmi").symlink_to(Path(str(origin)).parent)
    library = sysconfig.get_path("stdlib")
    standard = [library, f"{library}/lib-dynload"]

    def read(before: str = "", **variables: str) -> Page:
        given = amd_environment(native_amd, state) | variables
        return machine.page(f"sys.path += {standard}; import os; {before}", **given)

    return read


@pytest.mark.parametrize(
    ("variables", "name", "what"),
    [
        ({"HIP_VISIBLE_DEVICES": "-1"}, "HIP_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES=-1: ROCm sees no GPU."),
        (
            {"CUDA_VISIBLE_DEVICES": "-1"},
            "CUDA_VISIBLE_DEVICES",
            "CUDA_VISIBLE_DEVICES=-1: ROCm sees no GPU.",
        ),
        (
            {"ROCR_VISIBLE_DEVICES": ""},
            "ROCR_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES is empty, so ROCm sees no GPU.",
        ),
    ],
)
def test_amd_s_gpus_are_hidden_by_the_variable_that_is_named(
    look: Callable[..., Page], variables: dict[str, str], name: str, what: str
) -> None:
    page = look(**variables)
    assert page.wrong == [what]
    assert page.about(name)["meaning"] == "This process was started so."


def test_amd_s_gpus_that_a_cell_has_hidden(look: Callable[..., Page]) -> None:
    found = look("os.environ['HIP_VISIBLE_DEVICES'] = '-1'").about("HIP_VISIBLE_DEVICES")
    assert found["meaning"] == "A cell has set it, or a module."


def test_hip_s_numbers_are_not_taken_for_others(look: Callable[..., Page]) -> None:
    """HIP counts the first two of these GPUs the other way round."""
    found = look(HIP_VISIBLE_DEVICES="0,9").about("HIP_VISIBLE_DEVICES")
    assert found["mend"] == "gpu_magic.choose('auto')"
