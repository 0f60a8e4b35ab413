"""AMD's GPUs, read by the real amdsmi over a pretend libamd_smi.so."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import gpu_magic
from gpu_magic.devices.amd import Amd, _known, _opens, _places, _power, find_amdsmi
from gpu_magic.devices.model import UNKNOWN
from gpu_magic.interrupts import in_background
from gpu_magic.process.session import current
from tests.machine import AMD_CARDS, CARDS, GIB, IN_CONTAINER, Driver, amd_environment, environment
from tests.programs.runner import Runner

AMD = Driver(AMD_CARDS, version="6.12.12")
Ask: TypeAlias = Callable[..., Any]


@pytest.fixture
def ask(native: Path, native_amd: Path, tmp_path: Path) -> Ask:
    """Return a way to run a function on a machine with AMD's GPUs, and NVIDIA's where they are given."""

    def run(
        program: Callable[..., Any],
        *arguments: Any,
        amd: Driver | None = AMD,
        nvidia: Driver | None = None,
        **variables: str,
    ) -> Any:
        found: dict[str, str] = {}
        if nvidia is not None:
            nvidia.write(tmp_path / "nvidia")
            found = environment(native, tmp_path / "nvidia")
        if amd is not None:
            amd.write(tmp_path / "amd")
            found = amd_environment(native_amd, tmp_path / "amd", found)
        late = "GPU_MAGIC_TEST_", "GPU_MAGIC_SIMULATE"
        return Runner(found | variables, late)(program, *arguments)

    return run


def inventory() -> dict[str, Any]:
    found = gpu_magic.gpus()
    numbers = [[None if one is UNKNOWN else one for one in (gpu.minor, gpu.hip_id)] for gpu in found]
    return found.to_dict() | {"numbers": numbers}


def table() -> list[str]:
    gpus = gpu_magic.gpus()
    return [repr(gpus), gpus._repr_html_()]


def counters(seconds: float) -> list[Any]:
    """Return what a block of some seconds has cost on the first GPU that it has used; None is not known."""
    state = Path(os.environ["GPU_MAGIC_TEST_AMD_STATE"])
    new = state.with_name("next")
    new.write_text(state.read_text().replace("proc 1 ", f"proc {os.getpid()} "))
    new.replace(state)
    with gpu_magic.gpu_time() as measured:
        time.sleep(seconds)
    gpu = measured.usage.to_dict()["gpus"][0]
    return [gpu["name"], gpu["gpu"], gpu["energy"], measured.usage.wall, gpu["peak"], gpu["busy"]]


def limits() -> list[Any]:
    """Return how much power the first GPU may draw, and what slows it down; None is not known."""
    found = current().reader.limits(gpu_magic.gpus()[0])
    return [None if one is UNKNOWN else one for one in found]


def lost_and_back(number: int) -> list[str]:
    """Return what is wrong with a GPU before it is lost, then, a minute later, and once it is back."""
    state = Path(os.environ["GPU_MAGIC_TEST_AMD_STATE"])
    there = state.read_text()
    now = [0.0]
    reader = Amd(find_amdsmi(), now=lambda: now[0])
    found = [str(reader.inventory()[number].problem or "")]
    lines = there.splitlines(keepends=True)
    cards = [position for position, line in enumerate(lines) if line.startswith("gpu ")]
    lines[cards[number]] = lines[cards[number]].replace(" ok ", " lost ")
    state.write_text("".join(lines))
    gpu = reader.inventory()[number]
    found += [str(gpu.problem), str(gpu.name)]
    now[0] = 60.0  # all are found again
    later = reader.inventory()
    found += [str(later[number].name), str(later.driver_version)]
    state.write_text(there)
    return [*found, str(reader.inventory()[number].problem or "")]


def lost_at_first(number: int) -> list[Any]:
    """Return the name of a GPU that is lost, and once it is back."""
    state = Path(os.environ["GPU_MAGIC_TEST_AMD_STATE"])
    found = [gpu_magic.gpus().to_dict()["gpus"][number]["name"]]
    state.write_text(state.read_text().replace(" lost ", " ok "))
    return [*found, gpu_magic.gpus()[number].name]


def is_library_beside(*folders: str) -> list[bool]:
    """Return whether AMD SMI's library is found for a module in each of the folders."""
    return [_opens(_places(Path(folder))) for folder in folders]


def closed() -> str:
    """Return what AMD SMI says once our reader is closed, which has started it."""
    gpu_magic.gpus()
    current().reader.close()
    amdsmi: Any = find_amdsmi()
    try:
        amdsmi.amdsmi_get_processor_handles()
    except amdsmi.AmdSmiException as error:
        return str(error)
    return "started"


def hangs() -> list[Any]:
    """Return which GPUs hang, and that the others have their figures."""
    return [
        [str(gpu.problem or ""), None if gpu.problem else gpu.status.temperature] for gpu in gpu_magic.gpus()
    ]


def imported_by(first: str) -> dict[str, bool]:
    """Return whether amdsmi is imported after a piece of code, and whether it was found to be usable."""
    exec(first, {})
    loaded = "amdsmi" in sys.modules
    return {"imported": loaded, "usable": find_amdsmi() is not None}


def gone(vendor: str) -> list[Any]:
    """Return whose GPUs there are, whose once the driver of a vendor has refused, and what the problem is then."""
    before = [gpu.vendor for gpu in gpu_magic.gpus()]
    current().reader.close()
    state = Path(os.environ["GPU_MAGIC_TEST_AMD_STATE" if vendor == "amd" else "GPU_MAGIC_TEST_STATE"])
    state.write_text(state.read_text().replace("refuse 0", "refuse 34" if vendor == "amd" else "refuse 9"))
    gpus = gpu_magic.gpus()
    return [before, [gpu.vendor for gpu in gpus], str(gpus.problem or "")]


def hung_and_back() -> list[Any]:
    """Return what there is while NVIDIA's driver hangs, and whose GPUs there are once it answers."""
    with in_background():  # which does not wait for a driver that starts
        gpus = gpu_magic.gpus()
    found = [list(gpus), str(gpus.problem), str(gpus.others)]
    state = Path(os.environ["GPU_MAGIC_TEST_STATE"])
    state.write_text("".join(line for line in state.open() if not line.startswith("hang ")))
    return [*found, gpu_magic.gpus()[0].vendor]


def choose_one() -> list[Any]:
    """Return what is raised by a choice, and whether a variable has changed."""
    before = dict(os.environ)
    try:
        gpu_magic.choose("0")
    except gpu_magic.ChoiceError as error:
        return [str(error), dict(os.environ) == before]
    return ["", dict(os.environ) == before]


def choice() -> list[Any]:
    """Return what a choice of two GPUs sets, claims and shows, whether their energy is read, and what a command gets."""
    gpu_magic.choose("0,2")
    rows = repr(gpu_magic.gpus()).splitlines()[2:6]
    held = sorted(current().claims.held)
    task = gpu_magic.launch("printenv HIP_VISIBLE_DEVICES")
    task.wait()
    found = [
        os.environ["HIP_VISIBLE_DEVICES"],
        held,
        [row.rpartition("  ")[2] for row in rows],
        [one.energy is not UNKNOWN for one in current().reader.counters(held, None).values()],
        task.output,
    ]
    gpu_magic.choose("reset")
    return found


def test_gpus_without_a_serial_number_are_chosen_claimed_and_measured(ask: Ask) -> None:
    """As consumer cards and APUs have none. Their bus IDs tell them apart."""
    nameless = tuple(replace(card, uuid="GPU-0000000000000000", energy=5000) for card in AMD_CARDS)
    mask, claimed, users, measured, got = ask(choice, amd=Driver(nameless, version="6.12.12"))
    assert (mask, got) == ("1,2", "1,2\n")
    assert claimed == [AMD_CARDS[0].bus_id, AMD_CARDS[2].bus_id]
    assert users == ["claimed by this process", "free"] * 2
    assert measured == [True, True]


def test_all_figures_are_read(ask: Ask) -> None:
    busy = replace(AMD_CARDS[1], used=60 * GIB, util=97, processes=((os.getpid(), 59 * GIB),))
    found = ask(inventory, amd=Driver((AMD_CARDS[0], busy), version="6.12.12"))
    assert found["driver_version"] == "6.12.12"
    gpu = found["gpus"][1]
    (process,) = gpu.pop("processes")
    assert gpu == {
        "index": 1,
        "vendor": "amd",
        "gpu": 1,
        "uuid": "GPU-1c0ffee000000001",
        "name": "AMD Instinct MI300X",
        "memory_total": 192 * GIB,
        "memory_used": 60 * GIB,
        "memory_free": 132 * GIB,
        "utilization": 97,
        "temperature": 41,
        "power": 140,
        "problem": "",
        "simulated": False,
        "claims": [],
    }
    assert found["numbers"][1] == [129, 0]
    assert (process["pid"], process["memory"]) == (os.getpid(), 59 * GIB)
    # The reader asks in a process whose number this one's is not.
    unknown = None if IN_CONTAINER else False
    assert (process["is_this_process"], process["owner"] is None) == (unknown, IN_CONTAINER)


def test_what_a_block_costs(ask: Ask) -> None:
    card = replace(AMD_CARDS[1], milliwatts=300_000, energy=5000, util=70, processes=((1, 3 * GIB),))
    amd = Driver((AMD_CARDS[0], card))
    name, gpu, energy, wall, peak, busy = ask(counters, 1.0, amd=amd)
    assert (name, gpu, peak, busy) == ("cuda:0", "GPU 1", 3 * GIB, 70)  # HIP counts the other way round
    # It is read before and after the block; the counter's unit is 15.3 microjoules, and it is up to 0.1 s behind.
    assert 300 * (wall - 0.1) - 0.01 <= energy
    without = Driver((AMD_CARDS[0], replace(card, energy=None)))
    assert ask(counters, 0.3, amd=without)[2] is None


def test_what_the_library_does_not_give_is_unknown(ask: Ask) -> None:
    blank = replace(AMD_CARDS[0], used=None, util=None, temperature=None, milliwatts=None, hip=None)
    nameless = replace(AMD_CARDS[1], uuid="GPU-0000000000000000")  # it has no serial number
    amd = Driver((blank, nameless))
    found = ask(inventory, amd=amd)
    gpu, second = found["gpus"]
    figures = ("memory_used", "memory_free", "utilization", "temperature", "power")
    assert [gpu[name] for name in figures] == [None] * 5
    assert (found["numbers"][0][1], gpu["problem"], gpu["memory_total"]) == (None, "", 192 * GIB)
    assert (second["uuid"], second["name"]) == (None, "AMD Instinct MI300X")
    assert ask(limits, amd=amd) == [None, None]


def test_a_gpu_that_does_not_answer_keeps_its_name_and_comes_back(ask: Ask) -> None:
    problem = "not answering: AMD SMI reports No data was found for given input"
    name = "AMD Instinct MI300X"
    assert ask(lost_and_back, 1) == ["", problem, name, name, "6.12.12", ""]
    lost = replace(AMD, cards=(AMD_CARDS[0], replace(AMD_CARDS[1], lost=True)))
    assert ask(lost_at_first, 1, amd=lost) == [None, name]


def test_the_library_is_shut_down_with_the_reader(ask: Ask) -> None:
    assert "AMDSMI_STATUS_NOT_INIT" in ask(closed)


def test_the_temperature_is_that_of_the_hottest_spot(ask: Ask) -> None:
    amd = Driver((replace(AMD_CARDS[0], name="AMD Radeon RX 7900 XTX"),))
    assert ask(inventory, amd=amd)["gpus"][0]["temperature"] == AMD_CARDS[0].temperature


def test_the_library_is_also_looked_for_beside_the_module(ask: Ask, native_amd: Path, tmp_path: Path) -> None:
    assert ask(is_library_beside, str(tmp_path), str(native_amd), amd=None) == [False, True]


_FIGURES = ("memory_total", "memory_usage", "activity", "process_list")
_REFUSED = (
    *(f"amdsmi_get_gpu_{name}" for name in _FIGURES),
    "amdsmi_get_temp_metric",
    "amdsmi_get_power_info",
)


def test_a_gpu_all_of_whose_figures_are_refused_is_well(ask: Ask) -> None:
    """As to who may not read them (AMDSMI_STATUS_NO_PERM), and it can be chosen."""
    for code, problem in ((10, ""), (40, "not answering: AMD SMI reports No data was found for given input")):
        refuses = replace(AMD, answers=tuple((function, 2, code) for function in _REFUSED))
        gpus = ask(inventory, amd=refuses)["gpus"]
        assert [gpu["problem"] for gpu in gpus] == ["", "", problem, ""]
        assert (gpus[2]["memory_total"], gpus[2]["processes"]) == (None, None)


def test_what_comes_while_it_is_read_is_never_negative(ask: Ask) -> None:
    more = Driver((replace(AMD_CARDS[0], used=AMD_CARDS[0].total + GIB),))
    assert ask(inventory, amd=more)["gpus"][0]["memory_free"] == 0


def test_the_highest_number_and_no_watts_are_unknown() -> None:
    """`amdsmi_get_gpu_enumeration_info` passes the highest number on; power has a 0 where a model has none."""
    assert _known({"drm_render": 0xFFFFFFFF}, "drm_render") is UNKNOWN
    assert _power({"current_socket_power": 0, "average_socket_power": 105}) == 105
    assert _power({"current_socket_power": 0, "average_socket_power": "N/A"}) is UNKNOWN


def test_a_gpu_that_hangs_delays_no_other(ask: Ask) -> None:
    driver = replace(AMD, hangs=(("amdsmi_get_gpu_activity", 2, 3600.0),))
    hung = "not answering: a call to the driver timed out"
    assert ask(hangs, amd=driver) == [["", 40], ["", 41], [hung, None], ["", 43]]


def test_limits_are_in_watts_and_why_a_gpu_is_slow_is_unknown(ask: Ask) -> None:
    assert ask(limits) == [750, None]
    assert ask(limits, amd=Driver((replace(AMD_CARDS[0], milliwatts=None),))) == [None, None]
    hangs = replace(AMD, hangs=(("amdsmi_get_power_cap_info", 0, 3600.0),))
    assert ask(limits, amd=hangs) == [None, None]


def test_the_table_is_one_with_rocm_smis_numbers(ask: Ask) -> None:
    text, html = ask(table)
    rows = [line.split() for line in text.splitlines()[2:6]]
    assert [row[:4] for row in rows] == [[str(number), "AMD", "Instinct", "MI300X"] for number in range(4)]
    assert html.count("AMD Instinct MI300X") == 4
    assert "41°C" in text
    assert "41°C" in html


NVIDIA = Driver(CARDS[:2])
TO_AMD = "This machine also has 4 AMD GPUs (AMD Instinct MI300X). To use them, set GPU_MAGIC_VENDOR=amd before the kernel starts."
TO_NVIDIA = "This machine also has 2 NVIDIA GPUs (NVIDIA A100-SXM4-80GB). To use them, set GPU_MAGIC_VENDOR=nvidia before the kernel starts."


@pytest.mark.parametrize(
    ("wanted", "nvidia", "names", "notes"),
    [
        ("", NVIDIA, ["NVIDIA A100-SXM4-80GB"] * 2, [TO_AMD]),
        ("nvidia", NVIDIA, ["NVIDIA A100-SXM4-80GB"] * 2, [TO_AMD]),
        (" AMD ", NVIDIA, ["AMD Instinct MI300X"] * 4, [TO_NVIDIA]),
        ("", replace(NVIDIA, refuse=4), ["AMD Instinct MI300X"] * 4, []),  # hidden from this user
    ],
)
def test_a_process_has_the_gpus_of_one_vendor_and_a_line_names_the_others(
    ask: Ask, wanted: str, nvidia: Driver, names: list[str], notes: list[str]
) -> None:
    text, html = ask(table, nvidia=nvidia, GPU_MAGIC_VENDOR=wanted)
    lines = text.splitlines()
    assert all(name in row for row, name in zip(lines[2 : lines.index("")], names, strict=True))
    assert [line for line in lines if line.startswith("! ")] == [f"! {note}" for note in notes]
    assert html.count("This machine also has") == len(notes)


def test_a_simulated_machine_is_shown_alone(ask: Ask) -> None:
    for wanted in ("", "amd", "what?"):
        found = ask(inventory, nvidia=NVIDIA, GPU_MAGIC_SIMULATE="2xT4", GPU_MAGIC_VENDOR=wanted)
        assert [gpu["name"] for gpu in found["gpus"]] == ["Tesla T4"] * 2


@pytest.mark.parametrize(
    ("amd", "nvidia", "wanted", "problem"),
    [
        (AMD, NVIDIA, "intel", "GPU_MAGIC_VENDOR=intel is not supported. Before the kernel starts, set it to nvidia or amd, or unset it."),
        (None, NVIDIA, "amd", "AMD's GPUs can't be read: the module amdsmi or its library libamd_smi.so is missing."),
        (AMD, None, "nvidia", "NVML is missing (libnvidia-ml.so.1"),
    ],
)  # fmt: skip
def test_a_vendor_whose_gpus_can_not_be_read_is_one_line(
    ask: Ask, amd: Driver | None, nvidia: Driver | None, wanted: str, problem: str
) -> None:
    raised, is_unchanged = ask(choose_one, amd=amd, nvidia=nvidia, GPU_MAGIC_VENDOR=wanted)
    assert raised.startswith(problem)
    assert "\n" not in raised
    assert is_unchanged


def test_a_driver_that_hangs_may_have_gpus(ask: Ask) -> None:
    """So the vendor is not decided yet."""
    hangs = replace(NVIDIA, hangs=(("nvmlInitWithFlags", -1, 3600.0),))
    hung = "The NVIDIA driver does not answer: a call timed out. It may answer later."
    assert ask(hung_and_back, nvidia=hangs) == [[], hung, TO_AMD, "nvidia"]


def test_a_driver_that_refuses_is_a_sentence_and_nvidias_gpus_are_as_ever(ask: Ask) -> None:
    refuses = replace(AMD, refuse=34)
    found = ask(inventory, amd=refuses)
    assert found["gpus"] == []
    assert found["problem"].endswith("AMD SMI does not answer: Driver not loaded.")
    found = ask(inventory, amd=refuses, nvidia=Driver(CARDS))
    assert ([gpu["vendor"] for gpu in found["gpus"]], found["problem"]) == (["nvidia"] * 4, "")


def test_a_process_keeps_its_vendor_if_the_driver_is_lost(ask: Ask) -> None:
    not_loaded = "The NVIDIA driver is installed but not loaded. An administrator can load it: nvidia-smi"
    assert ask(gone, "nvidia", nvidia=NVIDIA) == [["nvidia"] * 2, [], not_loaded]
    refused = "AMD SMI does not answer: Driver not loaded."
    assert ask(gone, "amd", nvidia=NVIDIA, GPU_MAGIC_VENDOR="amd") == [["amd"] * 4, [], refused]


@pytest.mark.parametrize("code", ["import gpu_magic", "import gpu_magic.process.view"])
def test_amdsmi_is_not_imported_before_a_first_read(ask: Ask, code: str) -> None:
    assert ask(imported_by, code) == {"imported": False, "usable": True}


def test_without_the_library_amdsmi_is_neither_imported_nor_heard(
    ask: Ask, capfd: pytest.CaptureFixture[str]
) -> None:
    read = "import gpu_magic; gpu_magic.gpus()"
    assert ask(imported_by, read, amd=None, nvidia=Driver(CARDS)) == {"imported": False, "usable": False}
    assert "libamd_smi" not in "".join(capfd.readouterr())
