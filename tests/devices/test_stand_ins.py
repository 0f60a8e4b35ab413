"""The two stand-ins for NVML, in Python and in C: what gpu_magic calls is there, and one machine is one in both."""

from __future__ import annotations

import ast
import inspect
import json
import re
from typing import TYPE_CHECKING

import pynvml

from gpu_magic.devices.simulated.library import OF_WHOLE_GPUS, SimulatedLibrary
from gpu_magic.devices.unknown import UNKNOWN
from gpu_magic.testing import Machine, simulate
from tests.conftest import ROOT
from tests.machine import CARDS, GIB
from tests.native import SOURCES, Card, Driver, Instance, environment
from tests.programs import native_drivers
from tests.programs.runner import Runner

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_magic.devices.nvml import Nvml
    from gpu_magic.devices.simulated.machine import SimulatedGpu
    from tests.conftest import Fresh


def symbols(function: str) -> set[str]:
    """Return the functions of the library that one of pynvml's calls, and those that it calls in turn."""
    source = inspect.getsource(getattr(pynvml, function))
    found = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', source))
    for other in set(re.findall(r"\b(nvml[A-Z]\w+)\(", source)) - {function}:
        found |= symbols(other)
    return found


def called() -> set[str]:
    """Return the functions of NVML's library that gpu_magic calls."""
    found = set()
    for file in (ROOT / "gpu_magic/devices").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(ast.Name("pynvml"), name) | ast.Constant(str(name)):
                    is_call = name.startswith("nvml") and inspect.isfunction(getattr(pynvml, name, None))
                    found |= symbols(name) if is_call else set()
    return found


def test_the_stand_ins_have_what_is_called() -> None:
    source = (SOURCES / "nvml.c").read_text(encoding="utf-8")
    in_c = set(re.findall(r"^(?:int |ONE_FIGURE\()(nvml\w+)", source, re.MULTILINE))
    needed = called()
    assert {"nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetProcessUtilization"} <= needed
    assert needed - in_c == set()
    missing = {name for name in needed - OF_WHOLE_GPUS.keys() if not hasattr(SimulatedLibrary, f"_{name}")}
    assert missing == set()


def in_c(machine: Machine) -> Driver:
    """Return a simulated machine as it is now, for the pretend library."""

    def card(gpu: SimulatedGpu) -> Card:
        processes = tuple((one.pid, one.memory, one.work) for one in gpu.processes)
        return Card(
            gpu.uuid,
            gpu.model.name,
            gpu.bus_id,
            total=gpu.model.memory,
            used=gpu.memory_used,
            util=gpu.utilization,
            temperature=gpu.temperature,
            milliwatts=gpu.power,
            processes=processes,
            mig=tuple(Instance(one.uuid, one.name, one.memory, one.memory_used) for one in gpu.mig),
            mode=getattr(pynvml, f"NVML_COMPUTEMODE_{gpu.compute_mode.upper()}"),
            minor=gpu.minor,
            energy=gpu.energy,
            reserved=gpu.reserved,
            speed=(*gpu.model.capability, gpu.model.cores, gpu.model.clock),
            reasons=gpu.slowdowns,
        )

    return Driver(tuple(map(card, machine.gpus)), machine.driver, machine.cuda)


def test_one_machine_is_the_same_in_both(native: Path, tmp_path: Path) -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)+3xA100-40GB", clock=0) as machine:
        machine.gpus[1].run("train.py", "maria", 3 * GIB, work=40)
        machine.gpus[1].run("eval.py", "tom", None)
        machine.gpus[2].compute_mode, machine.gpus[2].slowdowns = "Prohibited", 4
        machine.gpus[3].minor = 7
        in_python = json.loads(json.dumps(native_drivers.answers()))
        in_c(machine).write(tmp_path / "machine")
    assert Runner(environment(native, tmp_path / "machine")).fresh("native_drivers.answers") == in_python
    assert in_python["GPU 1, memory, version 2"]["reserved"] > 0


def test_what_the_driver_reserves_is_neither_used_nor_free(nvml: Nvml) -> None:
    with simulate("1xA100-80GB(3g.40gb)+1xA100-80GB") as machine:
        split, whole = nvml.inventory()
        assert whole.memory_total == machine.gpus[1].model.memory
        assert whole.status.memory_used == machine.gpus[1].memory_used
        assert (
            whole.memory_total - whole.status.memory_used - whole.status.memory_free
            == machine.gpus[1].reserved
        )
        (part,) = split.mig
        assert part.memory_total - part.status.memory_used - part.status.memory_free == 0


def test_counters_stand_still_between_two_steps(nvml: Nvml) -> None:
    now = [5.0]
    with simulate("1xA100-80GB", clock=lambda: now[0]) as machine:
        machine.gpus[0].run("train.py", "maria", GIB, work=50)
        uuid, seen = machine.gpus[0].uuid, []
        nvml.inventory()
        for now[0] in (5.0, 5.04, 5.09, 5.1, 5.19, 5.2):
            counters = nvml.counters([uuid], None)[uuid]
            seen.append((counters.energy, nvml.utilization()[uuid]))
        assert seen[0][0] is not UNKNOWN
        assert seen[0] == seen[1] == seen[2]
        assert seen[3] == seen[4]
        assert seen[0][0] < seen[3][0] < seen[5][0]  # type: ignore[operator]


def test_the_pretend_library_counts_in_steps(fresh: Fresh, native: Path, tmp_path: Path) -> None:
    # 52 W are 5.2 J in a step of 0.1 s.
    busy = Card(**{name: getattr(CARDS[0], name) for name in ("uuid", "name", "bus_id", "total", "used")},
                util=40, temperature=30, milliwatts=52_000, energy=1000, processes=((1, GIB, 40),))  # fmt: skip
    Driver((busy,)).write(tmp_path / "machine")
    code = """
        import pynvml, time
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        for _ in range(5):
            (work,) = pynvml.nvmlDeviceGetProcessUtilization(gpu, 0)
            print((pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - 1000) % 5200, work.timeStamp % 100_000)
            time.sleep(0.013)
    """
    assert fresh(code, **environment(native, tmp_path / "machine")) == "0 0\n" * 5
