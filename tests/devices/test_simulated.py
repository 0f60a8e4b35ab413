"""The simulated machine, as its users see it, and the one in C: what gpu_magic calls is there, and is the same."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pynvml
import pytest
from IPython.core.completer import provisionalcompleter

import gpu_magic
from gpu_magic.devices.simulated.library import ANSWERS, SimulatedLibrary
from gpu_magic.process.drivers import State
from gpu_magic.testing import Machine, SimulationError, simulate, start_cuda
from tests.conftest import ROOT
from tests.machine import CARDS, GIB
from tests.native import SOURCES, Card, Driver, Instance, environment
from tests.programs.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.devices.nvml import Nvml
    from gpu_magic.devices.simulated.machine import SimulatedGpu
    from tests.conftest import Fresh, Typed


def test_figures_follow_the_seed_and_the_clock_within_what_a_gpu_can_show() -> None:
    def figures(seed: int, second: float) -> list[tuple[int, int, int, str]]:
        with simulate("8xL4", seed=seed, clock=second) as machine:
            machine.populate()
            for gpu in machine.gpus:
                assert 0 <= gpu.utilization <= 100
                assert 0 < gpu.power <= gpu.model.watts * 1000
                assert 20 <= gpu.temperature <= 90
                assert 0 <= gpu.memory_used <= gpu.model.memory
            return [(gpu.utilization, gpu.power, gpu.temperature, gpu.uuid) for gpu in machine.gpus]

    assert figures(1, 0.0) == figures(1, 0.0)
    assert figures(1, 0.0) != figures(1, 30.0)
    assert figures(1, 0.0) != figures(2, 0.0)
    for second in range(100):
        figures(1, second / 3)


def test_it_lies_beneath_pynvml_for_as_long_as_the_block() -> None:
    before = pynvml.nvmlLib
    with simulate("8xA100-80GB", clock=0) as machine:
        with pytest.raises(pynvml.NVMLError_Uninitialized):  # as the real one
            pynvml.nvmlDeviceGetCount()
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 8
        machine.populate()  # one of the people is the user, in another notebook
        assert [one.name for one in gpu_magic.my_processes()] == ["evaluate.ipynb"]
    assert pynvml.nvmlLib is before
    with pytest.raises(SimulationError, match="simulate"):
        start_cuda()


def test_it_counts_who_has_started_it_and_refuses_as_nvml_does() -> None:
    with simulate("1xA100-80GB(3g.40gb)") as machine:
        machine.refusal = pynvml.NVML_ERROR_NO_PERMISSION
        with pytest.raises(pynvml.NVMLError_NoPermission):
            pynvml.nvmlInit()
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetCount()
        machine.refusal = 0
        pynvml.nvmlInit()
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetHandleByIndex(1)
        instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(pynvml.nvmlDeviceGetHandleByIndex(0), 0)
        with pytest.raises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetMigDeviceHandleByIndex(instance, 0)
        pynvml.nvmlShutdown()
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetCount()


def test_a_machine_is_one_that_can_be() -> None:
    moments = [0.0]
    machine = Machine("256xT4", clock=lambda: moments[-1])
    found = [re.fullmatch("0000000[0-4]:([0-9A-F]{2}):00.0", gpu.bus_id) for gpu in machine.gpus]
    assert all(found)
    assert len({gpu.bus_id for gpu in machine.gpus}) == len(machine.gpus)
    gpu = machine.gpus[0]
    gpu.run("train.py", "tom", 100 * GIB, work=50)
    assert gpu.memory_used + gpu.reserved == gpu.memory
    moments.append(10.0)
    assert gpu.energy == 10 * gpu.power
    powers = set()
    for moment in (11.0, 11.3, 11.6):
        moments.append(moment)
        powers.add(gpu.power)
    assert len(powers) == 3  # it changes within a second
    machine.populate()
    processes = [process for one in machine.gpus for process in one.processes]
    assert sum(process.is_same_user for process in processes) == 1  # of many kernels
    other = gpu.run("ipykernel", "tom", GIB, notebook="private.ipynb")
    assert machine.look_up([other.pid])[other.pid].notebook == ""
    (split,) = Machine("1xA100-80GB(3g.40gb)").gpus
    before = split.memory_used
    split.mig[0].processes.append(other)
    assert split.memory_used == before + GIB


def test_a_call_can_hang_about_every_gpu() -> None:
    machine = Machine("4xT4")
    event = machine.hang("nvmlDeviceGetName")
    waits = threading.Thread(target=machine.wait_if_hanging, args=("nvmlDeviceGetName", 3), daemon=True)
    waits.start()
    waits.join(0.1)
    assert waits.is_alive()
    event.set()
    waits.join()


def test_a_block_is_above_the_variable_and_own_work_has_its_gpu_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine("8xA100-80GB")
    machine.populate()
    used = next(gpu.index for gpu in machine.gpus if gpu.processes)
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", f"8xA100-80GB own={used}:2GiB:30")
    with simulate("1xT4") as machine:
        machine.gpus[0].run("train.py", "tom", GIB, work=50)
        assert [gpu.name for gpu in gpu_magic.gpus()] == ["Tesla T4"]
        with pytest.raises(pynvml.NVMLError_NotFound):  # no work is from later on
            pynvml.nvmlDeviceGetProcessUtilization(pynvml.nvmlDeviceGetHandleByIndex(0), 1 << 62)
    processes = gpu_magic.gpus()[used].status.processes
    assert isinstance(processes, tuple)
    assert [process.pid for process in processes] == [os.getpid()]
    monkeypatch.delenv("GPU_MAGIC_SIMULATE")
    gpu_magic.gpus()


def test_this_process_can_be_at_work_on_it(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "2xT4 clock=0 seed=3 own=1:12GiB:60")
    gpu = nvml.inventory()[1]
    assert gpu.status.processes is not gpu_magic.UNKNOWN
    assert [(process.pid, process.memory) for process in gpu.status.processes] == [(os.getpid(), 12 << 30)]
    for wrong in ("own=1:12GB:60", "own=1", "own=2:12GiB:60", "own=1:12GiB:101", "seed=x"):
        monkeypatch.setenv("GPU_MAGIC_SIMULATE", f"2xT4 {wrong}")
        with pytest.raises(SimulationError, match=f"{wrong.partition('=')[0]}="):
            nvml.inventory()
    monkeypatch.delenv("GPU_MAGIC_SIMULATE")
    nvml.inventory()


def test_a_simulation_begins_and_ends_with_its_variable(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pynvml.nvmlLib
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "2xT4")
    assert "SIMULATED" in typed("%gpus").text
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "2xT5")
    for _ in range(2):
        (said,) = typed("%gpus").text.splitlines()
        assert said.startswith("UsageError: GPU_MAGIC_SIMULATE: '2xT5' is not a machine to simulate. Write")
    for off in ("", "  ", "off", "0"):
        monkeypatch.setenv("GPU_MAGIC_SIMULATE", off)
        assert "UsageError" not in typed("%gpus").text
        assert "SIMULATED" not in typed("%gpus").text
    assert pynvml.nvmlLib is before
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "2xT4")
    assert "SIMULATED" in typed("%gpus").text
    typed("%unload_ext gpu_magic")
    assert pynvml.nvmlLib is before


def test_tab_offers_no_gpu_of_a_machine_that_is_not_understood(
    typed: Typed, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed("1")
    monkeypatch.setenv("GPU_MAGIC_SIMULATE", "8xB12")
    with provisionalcompleter():
        assert not [one.text for one in shell.Completer.completions("%gpus ", 6) if "GPU-" in one.text]
    assert "Traceback" not in capsys.readouterr().err


def test_what_is_chosen_in_a_block_ends_with_it_and_the_real_mask_does_not_leak_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with simulate("4xT4"):
        assert gpu_magic.choose("3").mask == os.environ["CUDA_VISIBLE_DEVICES"] == "3"
        gpu_magic.choose("2,0")
        start_cuda()
        assert gpu_magic.guard().uuids == tuple(gpu.uuid for gpu in gpu_magic.choose("2,0").devices)
        keeps = r"keeps GPU 2 \(cuda:0\), GPU 0 \(cuda:1\)"
        with pytest.warns(gpu_magic.CudaInitializedWarning, match=keeps):
            gpu_magic.choose(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
    assert gpu_magic.guard().state is State.ABSENT
    outside = pytest.raises(gpu_magic.ChoiceError, match="not given to this process")
    with simulate("4xT4", mask="1,2"), outside:
        gpu_magic.choose("3")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"


def test_odd_arguments_to_choose() -> None:
    with simulate("4xT4"):
        gpus = gpu_magic.gpus()
        given: dict[str, Any] = {"2": gpus[2], "2,0": [gpus[2], gpus[0]], "1": np.int64(1), "0,1": range(2)}
        for mask, wanted in given.items():
            assert gpu_magic.choose(wanted).mask == mask
        odds: list[Any] = [[], "", None, 1.5, b"1", [None], object(), True, {1, 0}]
        for odd in odds:
            with pytest.raises(gpu_magic.ChoiceError):
                gpu_magic.choose(odd)
        options: list[dict[str, Any]] = [{"by": "UUID"}, {"order": "FASTEST_FIRST"}]
        for option, neither in zip(options, ("'index' nor 'uuid'", "'pci' nor 'fastest'"), strict=True):
            with pytest.raises(gpu_magic.ChoiceError, match=f"neither {neither}"):
                gpu_magic.choose(1, **option)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_gpustat_runs_on_it_and_does_not_upset_our_reader(fresh: Fresh) -> None:
    """Importing gpustat replaces functions of pynvml for the whole process."""
    fresh("""
        import gpustat
        from gpu_magic.devices.nvml import Nvml
        from gpu_magic.testing import simulate

        with simulate("2xRTX-4090+1xT4", clock=lambda: 0.0) as machine:
            machine.gpus[0].run("train.py", "maria", 20 << 30)
            theirs = [gpu.memory_used << 20 for gpu in gpustat.new_query()]
            ours = [gpu.status.memory_used for gpu in Nvml().inventory()]
            assert ours == theirs == [gpu.memory_used for gpu in machine.gpus], (ours, theirs)
    """)


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        *(
            (one, "with a model of A100-40GB")
            for one in ("8xB12", "8x", "100", "300xA100", "RTX 2080", "t4(1g.5gb)")
        ),
        ("", "with a model of"),
        ("1xT4(1g.5gb)", "MIG parts"),
        ("999xT4", "more than"),
        ("99999999999xT4", "with a model of"),
        ("1xA100-80GB(1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb)", "at most 7"),
        ("1xA100-80GB(1g)", "MIG parts"),
    ],
)
def test_a_profile_that_names_no_machine_is_refused(profile: str, says: str) -> None:
    with pytest.raises(SimulationError, match=says), simulate(profile):
        pass


def test_a_simulated_choice_does_not_ask_whether_the_real_cuda_was_started(
    fresh: Fresh, native: Path, tmp_path: Path
) -> None:
    Driver(CARDS).write(tmp_path / "machine")
    code = """
import ctypes, gpu_magic
from gpu_magic.testing import simulate
ctypes.CDLL("libcuda.so.1").cuInit(0)
assert gpu_magic.choose(1).refusal
with simulate("2xT4"):
    print(gpu_magic.choose(1, strict=True).mask)
print(gpu_magic.guard().state.value)
"""
    assert fresh(code, **environment(native, tmp_path / "machine")).split() == ["1", "frozen"]


def test_auto_picks_the_only_gpu_where_nvml_has_no_figures_of_memory() -> None:
    """As on GB10 and Jetson, whose memory is the machine's."""
    with simulate("1xT4") as machine:
        machine.gpus[0].fail("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_NOT_SUPPORTED)
        choice = gpu_magic.choose("auto")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
        assert "GPU 0 does not report memory in use, so whether it is free is unknown." in repr(choice)


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
    missing = {name for name in needed - ANSWERS.keys() if not hasattr(SimulatedLibrary, f"_{name}")}
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


def answers() -> dict[str, Any]:
    """Return all that the driver answers to what gpu_magic calls: of the machine, its GPUs, MIG instances and pairs."""
    pynvml.nvmlInit()
    found = {
        "count": pynvml.nvmlDeviceGetCount(),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "cuda": pynvml.nvmlSystemGetCudaDriverVersion(),
    }
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    for index, gpu in enumerate(gpus):
        found |= {f"GPU {index}, {name}": answer for name, answer in _answers_of(gpu).items()}
        most = found[f"GPU {index}, instances"] = pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
        for position in range(most + 1):
            instance = _answer(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, position)
            if isinstance(instance, str):
                found[f"GPU {index}, no instance {position}"] = instance
            else:
                of_it = _answers_of(instance).items()
                found |= {f"GPU {index}, instance {position}, {name}": answer for name, answer in of_it}
    pynvml.nvmlShutdown()
    return found


def _answers_of(device: Any) -> dict[str, Any]:
    calls: dict[str, tuple[Any, ...]] = {
        "nvmlDeviceGetMemoryInfo": (),
        "nvmlDeviceGetTemperature": (pynvml.NVML_TEMPERATURE_GPU,),
        "nvmlDeviceGetTemperatureV": (pynvml.NVML_TEMPERATURE_GPU,),
        "nvmlDeviceGetMaxClockInfo": (pynvml.NVML_CLOCK_SM,),
        "nvmlDeviceGetProcessUtilization": (0,),
    }
    figures = (
        "Name UUID PciInfo MigMode MinorNumber ComputeMode CudaComputeCapability NumGpuCores "
        "GpuInstanceId ComputeInstanceId UtilizationRates PowerUsage EnforcedPowerLimit "
        "CurrentClocksEventReasons CurrentClocksThrottleReasons ComputeRunningProcesses_v2 ComputeRunningProcesses_v3"
    )
    calls |= {f"nvmlDeviceGet{name}": () for name in figures.split()}
    answers = {name: _answer(getattr(pynvml, name), device, *arguments) for name, arguments in calls.items()}
    answers["memory, version 2"] = _answer(pynvml.nvmlDeviceGetMemoryInfo, device, pynvml.nvmlMemory_v2)
    # What is counted goes on while it is read: whether it is, is what can be compared.
    energy = _answer(pynvml.nvmlDeviceGetTotalEnergyConsumption, device)
    return answers | {"energy": energy if isinstance(energy, str) else "counted"}


def _answer(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call returns, as JSON; where it raises, the error's name."""
    try:
        answer = call(*arguments)
    except pynvml.NVMLError as error:
        return type(error).__name__
    return _plain(answer)


def _plain(answer: Any) -> Any:
    if isinstance(answer, list | tuple):
        return list(map(_plain, answer))
    if isinstance(answer, pynvml.c_nvmlDevice_t) or not hasattr(answer, "_fields_"):
        fields = getattr(answer, "__dict__", None)  # pynvml's own object, in place of a structure
        return answer if not fields else _plain_fields({**fields})
    return _plain_fields({name: getattr(answer, name) for name, *_ in answer._fields_})


def _plain_fields(fields: dict[str, Any]) -> dict[str, Any]:
    # Numbers that nobody asks, and moments.
    left_out = ("pciDeviceId", "pciSubSystemId", "timeStamp", "memory")
    return {name: _plain(value) for name, value in fields.items() if name not in left_out}


def test_one_machine_is_the_same_in_both(native: Path, tmp_path: Path) -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)+3xA100-40GB", clock=0) as machine:
        machine.gpus[1].run("train.py", "maria", 3 * GIB, work=40)
        machine.gpus[1].run("eval.py", "tom", None)
        machine.gpus[2].compute_mode, machine.gpus[2].slowdowns = "Prohibited", 4
        machine.gpus[3].minor = 7
        in_python = json.loads(json.dumps(answers()))
        in_c(machine).write(tmp_path / "machine")
    assert Runner(environment(native, tmp_path / "machine"))(answers) == in_python
    assert in_python["GPU 1, memory, version 2"]["reserved"] > 0


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
