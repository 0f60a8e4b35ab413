"""The pretend driver libraries, asked by the real callers: pynvml, ctypes and PyTorch in other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tests.conftest import LIMIT
from tests.native import Card, Driver, Instance, build, environment

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30
SMALL = "NVIDIA A100-SXM4-40GB"
LARGE = "NVIDIA A100-SXM4-80GB"
PARTS = (
    Instance("MIG-11111111-0000-4000-8000-000000000001", f"{SMALL} MIG 1g.5gb", 5 * GIB, 1 * GIB),
    Instance("MIG-22222222-0000-4000-8000-000000000002", f"{SMALL} MIG 2g.10gb", 10 * GIB, 0),
)
# GPU 2 is the largest, so that the two orders differ; the last two UUIDs begin alike.
CARDS = (
    Card(
        "GPU-a1000000-0000-4000-8000-0123456789ab",
        SMALL,
        "00000000:07:00.0",
        40 * GIB,
        7 * GIB,
        91,
        64,
        251_000,
    ),
    Card("GPU-b2000000-0000-4000-8000-0123456789ab", SMALL, "00000000:0F:00.0", 40 * GIB, 0, 0, 31, 52_000),
    Card("GPU-c3000000-0000-4000-8000-0123456789ab", LARGE, "00000000:47:00.0", 80 * GIB, 0, 0, 30, 61_000),
    Card("GPU-c3ff0000-0000-4000-8000-0123456789ab", SMALL, "0000000A:C7:00.0", 40 * GIB, 0, 0, 33, 50_000),
)
DRIVER = Driver((replace(CARDS[0], processes=((4321, 6 * GIB), (77, None))), *CARDS[1:]))
WITH_MIG = Driver((CARDS[0], replace(CARDS[1], mig=PARTS), CARDS[2]))

Ask: TypeAlias = Callable[..., Any]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return the path of a state file that does not exist yet."""
    return tmp_path / "machine"


@pytest.fixture
def ask(native: Path, state: Path) -> Ask:
    """Return a function that runs code in a process over the libraries, and gives what it `answer`ed."""

    def run(code: str, driver: Driver = DRIVER, **variables: str) -> Any:
        driver.write(state)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(code), str(state)],
            env=clean | environment(native, state) | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


PRELUDE = """
import ctypes, json, os, sys, time

def answer(value):
    print(json.dumps(value), flush=True)

def load():
    return ctypes.CDLL("libcuda.so.1")

def count(cuda):
    number = ctypes.c_int(-1)
    return cuda.cuDeviceGetCount(ctypes.byref(number)), number.value

def uuids(cuda, function="cuDeviceGetUuid_v2"):
    found = []
    for ordinal in range(max(0, count(cuda)[1])):
        raw = (ctypes.c_ubyte * 16)()
        assert getattr(cuda, function)(raw, ordinal) == 0
        found.append(bytes(raw).hex())
    return found

def change(old, new):
    text = open(sys.argv[1]).read()
    assert old in text
    open(sys.argv[1] + ".new", "w").write(text.replace(old, new))
    os.replace(sys.argv[1] + ".new", sys.argv[1])
"""


def digits(*uuids: str) -> list[str]:
    """Return what UUIDs look like as the driver's 16 bytes, in hexadecimal."""
    return [uuid[4:].replace("-", "") for uuid in uuids]


def test_pynvml_reads_the_figures(ask: Ask) -> None:
    code = """
        import pynvml as n
        n.nvmlInit()
        gpus = []
        for index in range(n.nvmlDeviceGetCount()):
            gpu = n.nvmlDeviceGetHandleByIndex(index)
            memory, second = n.nvmlDeviceGetMemoryInfo(gpu), n.nvmlDeviceGetMemoryInfo(gpu, n.nvmlMemory_v2)
            pci = n.nvmlDeviceGetPciInfo(gpu)
            gpus.append([
                n.nvmlDeviceGetName(gpu), n.nvmlDeviceGetUUID(gpu), n.nvmlDeviceGetIndex(gpu),
                [memory.total, memory.used, memory.free], [second.total, second.used, second.free],
                n.nvmlDeviceGetUtilizationRates(gpu).gpu,
                n.nvmlDeviceGetTemperature(gpu, 0), n.nvmlDeviceGetTemperatureV(gpu, 0),
                n.nvmlDeviceGetPowerUsage(gpu), n.nvmlDeviceGetEnforcedPowerLimit(gpu),
                [pci.busId, pci.busIdLegacy, pci.domain, pci.bus, pci.device],
                [[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(gpu)],
                n.nvmlDeviceGetMigMode(gpu), n.nvmlDeviceGetMaxMigDeviceCount(gpu),
                n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(gpu))),
            ])
        versions = [n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetCudaDriverVersion(),
                    n.nvmlSystemGetCudaDriverVersion_v2()]
        answer([gpus, versions])
    """
    gpus, versions = ask(code)
    assert versions == ["580.65.06", 13000, 13000]
    assert len(gpus) == len(CARDS)
    memory = [40 * GIB, 7 * GIB, 33 * GIB]
    assert gpus[0] == [
        *(SMALL, CARDS[0].uuid, 0, memory, memory, 91, 64, 64, 251_000, 400_000),
        ["00000000:07:00.0", "0000:07:00.0", 0, 7, 0],
        [[4321, 6 * GIB], [77, None]],
        *([0, 0], 0, 0),
    ]
    assert gpus[2][0] == LARGE
    assert gpus[3][10:] == [["0000000A:C7:00.0", "000A:C7:00.0", 10, 0xC7, 0], [], [0, 0], 0, 3]


def test_unknown_figures_and_missing_functions_are_said_to_be_so(ask: Ask) -> None:
    code = """
        import pynvml as n
        n.nvmlInit()
        gpu, found = n.nvmlDeviceGetHandleByIndex(0), []
        for ask in (n.nvmlDeviceGetMemoryInfo, n.nvmlDeviceGetUtilizationRates, n.nvmlDeviceGetPowerUsage,
                    n.nvmlDeviceGetEnforcedPowerLimit, lambda gpu: n.nvmlDeviceGetTemperature(gpu, 0),
                    n.nvmlDeviceGetFanSpeed):
            try:
                ask(gpu)
            except n.NVMLError as error:
                found.append(error.value)
        answer(found)
    """
    blank = replace(CARDS[0], used=None, util=None, temperature=None, milliwatts=None)
    assert ask(code, Driver((blank,))) == [3, 3, 3, 3, 3, 13]


def test_mig_instances(ask: Ask) -> None:
    code = """
        import pynvml as n
        n.nvmlInit()
        gpu, found = n.nvmlDeviceGetHandleByIndex(1), []
        for index in range(n.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            try:
                part = n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            except n.NVMLError_NotFound:
                continue
            uuid, memory = n.nvmlDeviceGetUUID(part), n.nvmlDeviceGetMemoryInfo(part)
            assert n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByUUID(uuid)) == n.nvmlDeviceGetName(part)
            found.append([uuid, n.nvmlDeviceGetName(part), memory.total, memory.used])
        try:
            n.nvmlDeviceGetUtilizationRates(part)
        except n.NVMLError_NotSupported:
            answer([n.nvmlDeviceGetMigMode(gpu), found])
    """
    found = [[part.uuid, part.name, part.total, part.used] for part in PARTS]
    assert ask(code, WITH_MIG) == [[1, 1], found]


def test_a_gpu_is_lost_while_a_process_looks_and_comes_back(ask: Ask) -> None:
    code = """
        import pynvml as n
        n.nvmlInit()
        handles = [n.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
        found = [n.nvmlDeviceGetTemperature(handles[1], 0)]
        change("52000 ok", "52000 lost")
        for ask, argument in ((n.nvmlDeviceGetName, handles[1]), (n.nvmlDeviceGetHandleByIndex, 1)):
            try:
                found.append(repr(ask(argument)))
            except n.NVMLError_GpuIsLost as error:
                found.append(error.value)
        found += [n.nvmlDeviceGetCount(), n.nvmlDeviceGetTemperature(handles[0], 0)]
        change("52000 lost", "52000 ok")
        answer([*found, n.nvmlDeviceGetTemperature(handles[1], 0)])
    """
    assert ask(code) == [31, 15, 15, 4, 64, 31]


@pytest.mark.parametrize(("code", "error"), [(18, "LibRmVersionMismatch"), (4, "NoPermission")])
def test_nvml_refuses_to_start(ask: Ask, code: int, error: str) -> None:
    script = """
        import pynvml as n
        try:
            n.nvmlInit()
        except n.NVMLError as error:
            answer(type(error).__name__)
    """
    assert ask(script, replace(DRIVER, refuse=code)) == f"NVMLError_{error}"


def test_nvml_answers_only_between_its_start_and_its_last_shutdown(ask: Ask) -> None:
    code = """
        import pynvml as n
        found, library = [], ctypes.CDLL("libnvidia-ml.so.1")
        def note():
            found.append(library.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint())))
        note()
        n.nvmlInit(); n.nvmlInit(); note()
        n.nvmlShutdown(); note()
        n.nvmlShutdown(); note()
        answer([*found, library.nvmlShutdown()])
    """
    assert ask(code) == [1, 0, 0, 1, 1]


def test_one_call_on_one_gpu_hangs(ask: Ask) -> None:
    code = """
        import pynvml as n
        n.nvmlInit()
        gpus, seconds = [n.nvmlDeviceGetHandleByIndex(index) for index in range(2)], []
        memory, name = n.nvmlDeviceGetMemoryInfo, n.nvmlDeviceGetName
        for ask, index in ((memory, 1), (memory, 0), (name, 1)):
            begun = time.monotonic()
            ask(gpus[index])
            seconds.append(time.monotonic() - begun)
        answer(seconds)
    """
    slow, *others = ask(code, replace(DRIVER, hangs=(("nvmlDeviceGetMemoryInfo", 1, 1.5),)))
    assert slow >= 1.5
    assert max(others) < 1.0


def test_cuda_says_nothing_before_it_is_started_and_keeps_the_mask_that_it_read(ask: Ask) -> None:
    code = """
        cuda, version, active = load(), ctypes.c_int(), ctypes.c_int()
        flags, context, device = ctypes.c_uint(), ctypes.c_void_p(), ctypes.c_int()
        cuda.cuDriverGetVersion(ctypes.byref(version))
        before = [count(cuda), cuda.cuDeviceGet(ctypes.byref(device), 0), uuids(cuda), version.value]
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        started = cuda.cuInit(0)
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,2"
        change("gpu GPU-b2", "gpu GPU-ee")
        after = [cuda.cuInit(0), count(cuda), uuids(cuda)]
        def state(ordinal):
            code = cuda.cuDevicePrimaryCtxGetState(ordinal, ctypes.byref(flags), ctypes.byref(active))
            return [code, active.value]
        contexts = [state(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), state(0),
                    cuda.cuDevicePrimaryCtxRelease_v2(0), state(0), state(1)[0]]
        name, text = ctypes.create_string_buffer(64), ctypes.c_char_p()
        cuda.cuDeviceGetName(name, 64, 0)
        cuda.cuGetErrorString(3, ctypes.byref(text))
        answer([before, started, after, contexts, name.value.decode(), text.value.decode()])
    """
    before, started, after, contexts, name, text = ask(code, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert before == [[3, -1], 3, [], 13000]
    assert started == 0
    assert after == [0, [0, 1], digits(CARDS[1].uuid)]
    assert contexts == [[0, 0], 0, [0, 1], 0, [0, 0], 101]
    assert [name, text] == [SMALL, "initialization error"]


def test_cuda_cannot_be_used_in_a_child_forked_after_its_start(ask: Ask) -> None:
    code = """
        def child():
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.write(writer, json.dumps([count(cuda), cuda.cuInit(0), count(cuda)]).encode())
                os._exit(0)
            os.wait()
            return json.loads(os.read(reader, 1000))
        cuda = load()
        early = child()
        answer([early, cuda.cuInit(0), child(), count(cuda)])
    """
    early, started, late, parent = ask(code)
    assert early == [[3, -1], 0, [0, 4]]
    assert started == 0
    assert late == [[3, -1], 3, [3, -1]]
    assert parent == [0, 4]


MASKS = {
    None: "0123",
    "": "",
    "2,1": "21",
    "0,2,-1,1": "02",
    "-1": "",
    "all": "",
    "none": "",
    "0,0": "",
    "0,1,0": "",
    "1gpu2,2ampere": "12",
    " 3, 1": "31",
    "+1,-0": "10",
    "0;1": "0",
    "0 1": "0",
    '"0,1"': "",
    "0,,1": "0",
    "1,": "1",
    "0,9,1": "0",
    "99999999999999999999": "",
    "-18446744073709551615": "",
    "GPU-b2,GPU-a1000000": "10",
    CARDS[3].uuid: "3",
    "GPU-a1,GPU-c3,GPU-b2": "0",
    "GPU-c3": "",
    "GPU-c30,GPU-c3f": "23",
    "GPU-a,GPU-ee,GPU-b": "0",
    "GPU-a,GPU-a1": "",
    "GPU-a,1": "0",
    "1,GPU-a": "1",
    "gpu-a1": "",
    "MIG-1": "",
}


@pytest.mark.parametrize("mask", MASKS)
def test_cuda_reads_a_mask(ask: Ask, mask: str | None) -> None:
    code = """
        cuda = load()
        answer([cuda.cuInit(0), count(cuda), uuids(cuda)])
    """
    variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if mask is not None:
        variables["CUDA_VISIBLE_DEVICES"] = mask
    expected = digits(*(CARDS[int(index)].uuid for index in MASKS[mask]))
    if expected:
        assert ask(code, **variables) == [0, [0, len(expected)], expected]
    else:
        assert ask(code, **variables) == [100, [100, -1], []]


@pytest.mark.parametrize(
    ("driver", "order", "mask", "indices"),
    [
        (DRIVER, None, "0,1", "20"),
        (DRIVER, "FASTEST_FIRST", "3,2", "31"),
        (DRIVER, "PCI_BUS_ID", "0,1", "01"),
        (DRIVER.losing(0, 3), "PCI_BUS_ID", "0,1,2", "12"),
        (DRIVER.losing(3), "PCI_BUS_ID", "GPU-c3", "2"),
        (DRIVER.losing(1, 2, 3), "PCI_BUS_ID", "GPU-a,", "0"),
    ],
)
def test_cuda_orders_the_gpus_that_are_there(
    ask: Ask, driver: Driver, order: str | None, mask: str, indices: str
) -> None:
    variables = {"CUDA_DEVICE_ORDER": order} if order else {}
    code = "cuda = load(); cuda.cuInit(0); answer(uuids(cuda))"
    expected = digits(*(CARDS[int(index)].uuid for index in indices))
    assert ask(code, driver, CUDA_VISIBLE_DEVICES=mask, **variables) == expected


@pytest.mark.parametrize(("mask", "part"), [("MIG-2,MIG-1", 1), ("MIG-1", 0), ("GPU-b2", 0), ("0,1", 0)])
def test_cuda_gives_a_process_one_mig_instance(ask: Ask, mask: str, part: int) -> None:
    code = """
        cuda = load()
        cuda.cuInit(0)
        answer(uuids(cuda) + uuids(cuda, "cuDeviceGetUuid"))
    """
    found = ask(code, WITH_MIG, CUDA_VISIBLE_DEVICES=mask, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert found == digits(PARTS[part].uuid, CARDS[1].uuid)


def test_torch_counts_devices_through_nvml_and_reads_masks_alike(ask: Ask) -> None:
    # A parser that nobody here wrote. It leaves MIG masks to the driver.
    masks = [mask for mask in MASKS if mask is None or not mask.startswith("MIG-")]
    code = f"""
        import torch
        found = []
        for mask in json.loads({json.dumps(masks)!r}):
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
            if mask is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = mask
            found.append(torch.cuda._device_count_nvml())
        answer([found, torch.cuda._raw_device_uuid_nvml()])
    """
    counts, uuids = ask(code)
    assert dict(zip(masks, counts, strict=True)) == {mask: len(MASKS[mask]) for mask in masks}
    assert uuids == [card.uuid for card in CARDS]


def test_a_mistake_in_the_state_file_does_not_pass_for_an_answer(ask: Ask) -> None:
    code = """
        change("gpu GPU-b2", "gpo GPU-b2")
        library = ctypes.CDLL("libnvidia-ml.so.1")
        answer([library.nvmlInit_v2(), load().cuInit(0)])
    """
    assert ask(code) == [999, 999]


def test_cards_stand_in_the_order_of_their_bus_ids() -> None:
    with pytest.raises(ValueError, match="bus ids"):
        Driver((CARDS[1], CARDS[0]))


def test_without_gcc_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="gcc"):
        build(tmp_path)
