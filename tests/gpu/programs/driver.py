"""The driver: its answers before and after CUDA starts, and with an empty CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os

from tests.gpu.claim import Seen, claim
from tests.gpu.programs.common import Shell, alone, counted, used, wide
from tests.gpu.programs.cuda import Cuda, answer_now, digits

WHERE = "process/drivers.py"


@claim(
    "`cuDeviceGetCount` returns 3 (`CUDA_ERROR_NOT_INITIALIZED`) before `cuInit`, and 0 after `cuInit`.",
    WHERE,
    "a driver",
)
def before_and_after() -> Seen:
    alone()
    cuda = Cuda()
    answers = cuda.count_answer(), cuda.init(), cuda.count_answer()
    return Seen(answers == (3, 0, 0), "cuDeviceGetCount {}, cuInit {}, cuDeviceGetCount {}".format(*answers))


@claim(
    "If `CUDA_VISIBLE_DEVICES` is empty, `cuInit` returns 100 (`CUDA_ERROR_NO_DEVICE`).", WHERE, "a driver"
)
def empty_mask() -> Seen:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    cuda = Cuda()
    answers = cuda.init(), cuda.count_answer()
    return Seen(answers[0] == 100, "cuInit {}, cuDeviceGetCount {}".format(*answers))


@claim(
    "After a `cuInit` that found no GPU, `cuDeviceGetCount` shows whether it is too late for another choice. "
    "The value 3 means that the next `cuInit` reads `CUDA_VISIBLE_DEVICES` again. The value 100 means that the "
    "next `cuInit` does not.",
    WHERE,
    "a driver",
)
def empty_mask_then_another() -> Seen:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    cuda = Cuda()
    cuda.init()
    answer = cuda.count_answer()
    alone()
    again = cuda.init()
    count = max(0, cuda.count())
    what = f"cuDeviceGetCount {answer}; with another CUDA_VISIBLE_DEVICES cuInit {again}, {counted(count)}"
    return Seen((answer == 3 and count == 1) or (answer == 100 and count == 0), what)


@claim(
    "`cuDriverGetVersion` works before `cuInit`, so the function does not show whether CUDA has started.",
    WHERE,
    "a driver",
)
def version_is_no_test() -> Seen:
    code = Cuda().version_answer()
    return Seen(code == 0, f"cuDriverGetVersion {code}")


@claim("Reading all GPUs through NVML does not start CUDA.", "devices/nvml.py", "a driver")
def nvml_starts_nothing() -> Seen:
    import gpu_magic

    cuda = Cuda()
    table = repr(gpu_magic.gpus())
    answer = cuda.count_answer()
    return Seen(bool(table) and answer == 3, f"cuDeviceGetCount {answer} after a table of all GPUs")


@claim(
    "`%load_ext gpu_magic`, the table and a choice do not start CUDA, although NVML itself loads the driver's "
    "library.",
    "gpus/magic.py",
    "a driver",
)
def we_start_nothing() -> Seen:
    shell = Shell()
    shell.must("%gpus", f"%gpus {used()[0]}", "import gpu_magic; gpu_magic.guard()")
    answer = answer_now()
    return Seen(answer in ("not loaded", "not started"), f"the library is {answer}")


@claim(
    "`cuInit` reads `CUDA_VISIBLE_DEVICES`. A later change of the variable has no effect.", WHERE, "a driver"
)
def late_mask() -> Seen:
    alone()
    cuda = Cuda()
    cuda.init()
    before = cuda.uuids()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    cuda.init()
    after = cuda.uuids()
    return Seen(len(before) == 1 and after == before, f"{counted(len(before))} before, {len(after)} after")


@claim(
    "The driver reads the value that Python's `os.environ` has before `cuInit`, even if the driver's library "
    "is already loaded.",
    "process/environment.py",
    "a driver",
)
def mask_after_load() -> Seen:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    cuda = Cuda()
    uuid = alone()
    code = cuda.init()
    return Seen(code == 0 and cuda.uuids() == [digits(uuid)], f"cuInit {code}, {counted(cuda.count())}")


@claim("CUDA gives each GPU and each MIG instance the same UUID as NVML.", WHERE, "a driver")
def same_uuids() -> Seen:
    import gpu_magic

    wide()
    ours = {digits(device.uuid) for device in gpu_magic.gpus().devices}
    cuda = Cuda()
    cuda.init()
    theirs = set(cuda.uuids())
    what = f"{len(theirs & ours)} of CUDA's {len(theirs)} are NVML's"
    return Seen(bool(theirs) and theirs <= ours, what)


@claim(
    "Once any code has started CUDA, the guard reports that CUDA has started and with which GPU.",
    "process/guard.py",
    "a driver",
)
def guard_sees_it() -> Seen:
    import gpu_magic

    uuid = alone()
    before = gpu_magic.guard().state.value
    Cuda().init()
    guard = gpu_magic.guard()
    what = f"{before}, then {guard.state.value} with {counted(len(guard.uuids))}"
    is_so = before in ("absent", "live") and guard.state.value == "frozen" and guard.uuids == (uuid,)
    return Seen(is_so, what)


@claim("After `%gpus N`, the driver sees one GPU, with the UUID of GPU N.", "gpus/apply.py", "a driver")
def choice() -> Seen:
    uuid = used()[0]
    shell = Shell()
    shell.must(f"%gpus {uuid}")
    cuda = Cuda()
    code = cuda.init()
    found = cuda.uuids()
    return Seen(found == [digits(uuid)], f"cuInit {code}, {counted(len(found))}")


@claim("After `%gpus none`, the driver sees no GPU.", "gpus/apply.py", "a driver")
def choice_of_none() -> Seen:
    shell = Shell()
    shell.must("%gpus none")
    cuda = Cuda()
    code = cuda.init()
    return Seen(code == 100 and not cuda.uuids(), f"cuInit {code}, {counted(max(0, cuda.count()))}")
