"""What can fail: each fault, how it is made, and which of gpu_magic's faces refuse a cell meanwhile."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from tests.machine import CARDS, GIB, Driver
from tests.native import SOURCES

__all__ = ["FACES", "FAULTS", "HEALTHY", "Fault", "Variant", "functions"]

HEALTHY = Driver(CARDS)
_ALL = frozenset(range(4))
FACES = ("table", "choose", "panel", "run", "move", "launch", "cluster", "wait", "usage", "guard")
# Engines get their GPUs by the code of `%gpu_launch` and `%gpus`, and each start of them takes seconds.
_NO_CLUSTER = tuple(face for face in FACES if face != "cluster")
# For a fault of each of many functions: the others ask NVML by the calls of these.
_QUICK = ("table", "choose", "usage", "guard")
_CHOICES = frozenset({"choose", "panel", "launch", "wait", "guard"})
_NAMED = frozenset({"choose", "wait"})  # of a GPU that does not answer


class Variant(NamedTuple):
    """One way in which a fault shows itself."""

    driver: Driver = HEALTHY
    # Run in the kernel to have the fault: the stand-in for the system is told by variables.
    code: str = ""
    name: str = ""
    unfit: frozenset[int] = frozenset()  # the indices of the GPUs that `auto` must not pick


class Fault(NamedTuple):
    """Something that fails; each of its variants is tried, in one kernel."""

    name: str
    variants: tuple[Variant, ...] = (Variant(),)
    refuses: frozenset[str] = frozenset()  # the faces of which a cell ends with one line that names the error
    faces: tuple[str, ...] = FACES  # those that it is tried with
    has_driver: bool = True
    chosen_before: bool = False  # GPUs are chosen before it happens


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
    # Four GPUs, and a driver that answers all questions.
    Fault("nothing"),
    # There is no `libnvidia-ml.so.1` and no `libcuda.so.1`.
    Fault("no-driver", refuses=_CHOICES, faces=_NO_CLUSTER, has_driver=False),
    # `nvmlInit` answers DRIVER_NOT_LOADED.
    Fault(
        "not-loaded",
        variants=(Variant(replace(HEALTHY, refuse=9), unfit=_ALL),),
        refuses=_CHOICES,
        faces=_NO_CLUSTER,
    ),
    # `nvmlInit` answers LIB_RM_VERSION_MISMATCH.
    Fault(
        "mismatch",
        variants=(Variant(replace(HEALTHY, refuse=18), unfit=_ALL),),
        refuses=_CHOICES | {"cluster"},
    ),
    # `nvmlInit` answers NO_PERMISSION.
    Fault(
        "permission",
        variants=(Variant(replace(HEALTHY, refuse=4), unfit=_ALL),),
        refuses=_CHOICES,
        faces=_NO_CLUSTER,
    ),
    # GPU 1 has fallen off the bus: NVML answers GPU_IS_LOST to every question about it, and CUDA leaves it out.
    Fault("lost-before", variants=(Variant(HEALTHY.losing(1), unfit=frozenset({1})),), refuses=_NAMED),
    # GPU 1 is lost at a cell's first call into NVML, at the 4th, and so on up to the 40th.
    Fault(
        "lost-during",
        variants=tuple(
            Variant(replace(HEALTHY, loses=(1, calls)), name=f"at call {calls}") for calls in range(1, 41, 3)
        ),
        refuses=frozenset({"choose"}),
        faces=_QUICK,
    ),
    # GPUs 1 and 3 are chosen, and then GPU 1 is lost.
    Fault(
        "lost-after",
        variants=(Variant(HEALTHY.losing(1), unfit=frozenset({1})),),
        refuses=_NAMED,
        chosen_before=True,
    ),
    # Each function of NVML in turn, for all GPUs and for the machine.
    Fault("not-supported", variants=_each(3), refuses=frozenset({"choose"}), faces=_QUICK),
    # Each function of NVML in turn answers error 999.
    Fault("unknown-error", variants=_each(999), refuses=frozenset({"choose"}), faces=_QUICK),
    # Each function of NVML in turn.
    Fault("is-lost", variants=_each(15), refuses=frozenset({"choose", "guard"}), faces=_QUICK),
    # Each function of NVML in turn does not come back, for all GPUs and for the machine.
    Fault(
        "hangs",
        variants=tuple(
            Variant(replace(HEALTHY, hangs=((function, -1, 600.0),)), name=function)
            for function in functions()
        ),
        refuses=frozenset({"choose", "guard"}),
        faces=_QUICK,
    ),
    # `nvmlDeviceGetMemoryInfo_v2` does not come back for GPU 1.
    Fault(
        "one-hangs",
        variants=(
            Variant(
                replace(HEALTHY, hangs=(("nvmlDeviceGetMemoryInfo_v2", 1, 600.0),)), unfit=frozenset({1})
            ),
        ),
        refuses=_NAMED,
        faces=_NO_CLUSTER,
    ),
    # The newest versions of functions answer FUNCTION_NOT_FOUND, as with the driver R470; it runs CUDA 11.4.
    Fault(
        "old-driver",
        variants=(
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
        faces=_NO_CLUSTER,
    ),
    # The GPU's name has bytes that are no UTF-8, or control characters and markup; that of a driver, too.
    Fault(
        "hostile-names",
        variants=(
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
        faces=_NO_CLUSTER,
    ),
    # The driver lists processes by numbers that do not exist here, or are another process's.
    Fault(
        "other-namespace",
        variants=(
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
        faces=_NO_CLUSTER,
    ),
    # Nothing below /proc can be opened but what is the kernel's own; then not that either.
    Fault(
        "proc",
        variants=(
            Variant(
                code="import os, glob; os.environ['GPU_MAGIC_TEST_HIDDEN'] = ':'.join(sorted(set(glob.glob('/proc/*')) "
                "- {'/proc/self', '/proc/thread-self', f'/proc/{os.getpid()}'}))",
                name="of others",
            ),
            Variant(code="import os; os.environ['GPU_MAGIC_TEST_HIDDEN'] = '/proc'", name="all"),
        ),
        faces=_NO_CLUSTER,
    ),
    # The driver counts none.
    Fault(
        "no-gpu",
        variants=(Variant(replace(HEALTHY, cards=()), unfit=_ALL),),
        refuses=_CHOICES,
        faces=_NO_CLUSTER,
    ),
    # The driver counts 128.
    Fault(
        "many-gpus",
        variants=(
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
        faces=_NO_CLUSTER,
    ),
    # Home, the folder of temporary files and that of claims are full: ENOSPC.
    Fault(
        "disk-full",
        variants=(Variant(code="import os; os.environ['GPU_MAGIC_TEST_FULL'] = _places"),),
        refuses=frozenset({"launch", "cluster"}),
    ),
    # The same folders refuse every change: EROFS.
    Fault(
        "read-only",
        variants=(Variant(code="import os; os.environ['GPU_MAGIC_TEST_READ_ONLY'] = _places"),),
        refuses=frozenset({"launch", "cluster"}),
    ),
    # By an hour, by ten years, and to before 1970.
    Fault(
        "clock",
        variants=tuple(
            Variant(
                code=f"import os; os.environ['GPU_MAGIC_TEST_CLOCK'] = '-{seconds}'", name=f"by {seconds} s"
            )
            for seconds in (3600, 10 * 365 * 86400, 2_000_000_000)
        ),
        faces=_NO_CLUSTER,
        chosen_before=True,
    ),
)
