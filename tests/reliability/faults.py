"""All faults that are tried."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.machine import CARDS, GIB
from tests.native import SOURCES
from tests.reliability.fault import HEALTHY, Fault, Variant

__all__ = ["FAULTS", "functions"]

_ALL = frozenset(range(4))

# Where the engines of a cluster are not started: each row would take as long as all others.
_ENGINES = (
    "engines are given their GPUs by the code that `%gpu_launch` and `%gpus` use, and each start takes seconds. They "
    "are started under the other faults."
)
_NO_CLUSTER = {"cluster": _ENGINES}
_ONE_FUNCTION = (
    "they ask NVML by the calls that the table and a choice make. These rows have a fault for each of many calls or "
    "functions; under other faults the features are tried."
)
_QUICK = dict.fromkeys(("panel", "run", "move", "launch", "cluster", "wait"), _ONE_FUNCTION)


def functions() -> tuple[str, ...]:
    """Return the functions of NVML that the pretend library has: those that gpu_magic, pynvml or PyTorch call."""
    source = (SOURCES / "nvml.c").read_text(encoding="utf-8")
    found = re.findall(r"^(?:int |ONE_FIGURE\()(nvml\w+)", source, re.MULTILINE)
    others = {"nvmlInit", "nvmlInit_v2", "nvmlSystemGetCudaDriverVersion"}  # other names of those beside them
    return tuple(sorted(set(found) - others))


def _each(code: int) -> tuple[Variant, ...]:
    return tuple(
        Variant(replace(HEALTHY, answers=((function, -1, code),)), name=function) for function in functions()
    )


FAULTS = (
    Fault("nothing", "nothing fails", "Four GPUs, and a driver that answers all questions."),
    Fault(
        "no-driver",
        "no driver",
        "There is no `libnvidia-ml.so.1` and no `libcuda.so.1`.",
        has_driver=False,
        omitted=_NO_CLUSTER,
    ),
    Fault(
        "not-loaded",
        "a driver that is not loaded",
        "`nvmlInit` answers DRIVER_NOT_LOADED.",
        (Variant(replace(HEALTHY, refuse=9), unfit=_ALL),),
        omitted=_NO_CLUSTER,
    ),
    Fault(
        "mismatch",
        "driver/library version mismatch",
        "`nvmlInit` answers LIB_RM_VERSION_MISMATCH.",
        (Variant(replace(HEALTHY, refuse=18), unfit=_ALL),),
    ),
    Fault(
        "permission",
        "no permission",
        "`nvmlInit` answers NO_PERMISSION.",
        (Variant(replace(HEALTHY, refuse=4), unfit=_ALL),),
        omitted=_NO_CLUSTER,
    ),
    Fault(
        "lost-before",
        "a GPU is lost before",
        "GPU 1 has fallen off the bus: NVML answers GPU_IS_LOST to every question about it, and CUDA leaves it out.",
        (Variant(HEALTHY.losing(1), unfit=frozenset({1})),),
    ),
    Fault(
        "lost-during",
        "a GPU is lost meanwhile",
        "GPU 1 is lost at a cell's first call into NVML, at the 4th, and so on up to the 40th.",
        tuple(
            Variant(replace(HEALTHY, loses=(1, calls)), name=f"at call {calls}") for calls in range(1, 41, 3)
        ),
        omitted=_QUICK,
    ),
    Fault(
        "lost-after",
        "a GPU is lost after it was chosen",
        "GPUs 1 and 3 are chosen, and then GPU 1 is lost.",
        (Variant(HEALTHY.losing(1), unfit=frozenset({1})),),
        chosen_before=True,
    ),
    Fault(
        "not-supported",
        "each function answers NOT_SUPPORTED",
        "Each function of NVML in turn, for all GPUs and for the machine.",
        _each(3),
        omitted=_QUICK,
    ),
    Fault(
        "unknown-error",
        "each function answers UNKNOWN",
        "Each function of NVML in turn answers error 999.",
        _each(999),
        omitted=_QUICK,
    ),
    Fault(
        "is-lost",
        "each function answers GPU_IS_LOST",
        "Each function of NVML in turn.",
        _each(15),
        omitted=_QUICK,
    ),
    Fault(
        "hangs",
        "each function hangs",
        "Each function of NVML in turn does not come back, for all GPUs and for the machine.",
        tuple(
            Variant(replace(HEALTHY, hangs=((function, -1, 600.0),)), name=function)
            for function in functions()
        ),
        omitted=_QUICK,
    ),
    Fault(
        "one-hangs",
        "one GPU hangs",
        "`nvmlDeviceGetMemoryInfo_v2` does not come back for GPU 1.",
        (Variant(replace(HEALTHY, hangs=(("nvmlDeviceGetMemoryInfo_v2", 1, 600.0),)), unfit=frozenset({1})),),
        omitted=_NO_CLUSTER,
    ),
    Fault(
        "old-driver",
        "an old driver",
        "The newest versions of functions answer FUNCTION_NOT_FOUND, as with the driver R470; it runs CUDA 11.4.",
        (
            Variant(
                replace(
                    HEALTHY,
                    version="470.256.02",
                    cuda=11040,
                    answers=tuple(
                        (function, -1, 13)
                        for function in (
                            "nvmlDeviceGetMemoryInfo_v2",
                            "nvmlDeviceGetTemperatureV",
                            "nvmlDeviceGetProcessUtilization",
                            "nvmlDeviceGetTotalEnergyConsumption",
                            "nvmlDeviceGetComputeInstanceId",
                            "nvmlDeviceGetGpuInstanceId",
                            "nvmlDeviceGetArchitecture",
                        )
                    ),
                )
            ),
        ),
        omitted=_NO_CLUSTER,
    ),
    Fault(
        "hostile-names",
        "names that are no text",
        "The GPU's name has bytes that are no UTF-8, or control characters and markup; that of a driver, too.",
        (
            Variant(
                replace(HEALTHY, cards=(replace(CARDS[0], name="\udcff\udcfe A100"), *CARDS[1:])),
                name="bytes",
            ),
            Variant(
                replace(
                    HEALTHY,
                    version="\x1b[31m580",
                    cards=(replace(CARDS[0], name="\x1b[31m<b>A100</b>\u202e"), *CARDS[1:]),
                ),
                name="markup",
            ),
        ),
        omitted=_NO_CLUSTER,
    ),
    Fault(
        "other-namespace",
        "PIDs of another namespace",
        "The driver lists processes by numbers that do not exist here, or are another process's.",
        (
            Variant(
                replace(
                    HEALTHY,
                    cards=(
                        replace(
                            CARDS[0],
                            used=9 * GIB,
                            processes=((4_000_000, 4 * GIB), (1, 4 * GIB), (2**32 - 1, None)),
                        ),
                        *CARDS[1:],
                    ),
                ),
                unfit=frozenset({0}),
            ),
        ),
        omitted=_NO_CLUSTER,
    ),
    Fault(
        "proc",
        "/proc that can't be read",
        "Nothing below /proc can be opened but what is the kernel's own; then not that either.",
        (
            Variant(
                code="import os, glob; os.environ['GPU_MAGIC_TEST_HIDDEN'] = ':'.join(sorted(set(glob.glob('/proc/*')) "
                "- {'/proc/self', '/proc/thread-self', f'/proc/{os.getpid()}'}))",
                name="of others",
            ),
            Variant(code="import os; os.environ['GPU_MAGIC_TEST_HIDDEN'] = '/proc'", name="all"),
        ),
        omitted=_NO_CLUSTER,
    ),
    Fault(
        "no-gpu",
        "no GPU",
        "The driver counts none.",
        (Variant(replace(HEALTHY, cards=()), unfit=_ALL),),
        omitted=_NO_CLUSTER,
    ),
    Fault(
        "many-gpus",
        "128 GPUs",
        "The driver counts 128.",
        (
            Variant(
                replace(
                    HEALTHY,
                    cards=tuple(
                        replace(
                            CARDS[0],
                            uuid=f"GPU-{number:08x}-0000-4000-8000-0123456789ab",
                            bus_id=f"{number:08X}:07:00.0",
                        )
                        for number in range(128)
                    ),
                )
            ),
        ),
        omitted=_NO_CLUSTER,
    ),
    Fault(
        "disk-full",
        "disk full",
        "Home, the folder of temporary files and that of claims are full: ENOSPC.",
        (Variant(code="import os; os.environ['GPU_MAGIC_TEST_FULL'] = _places"),),
    ),
    Fault(
        "read-only",
        "read-only home and temp",
        "The same folders refuse every change: EROFS.",
        (Variant(code="import os; os.environ['GPU_MAGIC_TEST_READ_ONLY'] = _places"),),
    ),
    Fault(
        "clock",
        "the clock goes back",
        "By an hour, by ten years, and to before 1970.",
        tuple(
            Variant(
                code=f"import os; os.environ['GPU_MAGIC_TEST_CLOCK'] = '-{seconds}'", name=f"by {seconds} s"
            )
            for seconds in (3600, 10 * 365 * 86400, 2_000_000_000)
        ),
        chosen_before=True,
        omitted=_NO_CLUSTER,
    ),
)
