"""The driver: what it answers before CUDA is initialized, and after, and under an empty mask."""

from __future__ import annotations

import os

from tests.gpu.claim import Seen, claim
from tests.gpu.programs.common import Shell, alone, counted, used, wide
from tests.gpu.programs.cuda import Cuda, answer_now, digits

WHERE = "process/drivers.py"


@claim("`cuDeviceGetCount` answers 3 (not initialized) before `cuInit`, and 0 after it.", WHERE, "a driver")
def before_and_after() -> Seen:
    alone()
    cuda = Cuda()
    answers = cuda.count_answer(), cuda.init(), cuda.count_answer()
    return Seen(answers == (3, 0, 0), "cuDeviceGetCount {}, cuInit {}, cuDeviceGetCount {}".format(*answers))


@claim("Under an empty `CUDA_VISIBLE_DEVICES`, `cuInit` answers 100 (no device).", WHERE, "a driver")
def empty_mask() -> Seen:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    cuda = Cuda()
    answers = cuda.init(), cuda.count_answer()
    return Seen(answers[0] == 100, "cuInit {}, cuDeviceGetCount {}".format(*answers))


@claim(
    "After a `cuInit` that found no GPU, `cuDeviceGetCount` tells whether it is too late for another choice: it "
    "answers 3 where the next `cuInit` reads `CUDA_VISIBLE_DEVICES` again, and 100 where it does not.",
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
    what = f"cuDeviceGetCount {answer}; with another mask cuInit {again}, {counted(count)}"
    return Seen((answer == 3 and count == 1) or (answer == 100 and count == 0), what)


@claim(
    "`cuDriverGetVersion` answers before `cuInit`, so it is no test of whether CUDA is initialized.",
    WHERE,
    "a driver",
)
def version_is_no_test() -> Seen:
    code = Cuda().version_answer()
    return Seen(code == 0, f"it answers {code}")


@claim("Reading all GPUs through NVML does not initialize CUDA.", "devices/nvml.py", "a driver")
def nvml_starts_nothing() -> Seen:
    import gpu_magic

    cuda = Cuda()
    table = repr(gpu_magic.gpus())
    answer = cuda.count_answer()
    return Seen(bool(table) and answer == 3, f"cuDeviceGetCount {answer} after a table of all GPUs")


@claim(
    "`%load_ext gpu_magic`, the table and a choice do not start CUDA, though NVML itself loads the driver's library.",
    "gpus/magic.py",
    "a driver",
)
def we_start_nothing() -> Seen:
    shell = Shell()
    shell.must("%gpus", f"%gpus {used()[0]}", "import gpu_magic; gpu_magic.guard()")
    answer = answer_now()
    return Seen(answer in ("not loaded", "not started"), f"the library is {answer}")


@claim("`CUDA_VISIBLE_DEVICES` is read in `cuInit`: what is set later changes nothing.", WHERE, "a driver")
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
    "What is set in Python's `os.environ` before `cuInit` is what the driver reads, also once its library is "
    "loaded.",
    "process/environment.py",
    "a driver",
)
def mask_after_load() -> Seen:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    cuda = Cuda()
    uuid = alone()
    code = cuda.init()
    return Seen(code == 0 and cuda.uuids() == [digits(uuid)], f"cuInit {code}, {counted(cuda.count())}")


@claim("CUDA gives each GPU, or MIG instance, the UUID that NVML gives it.", WHERE, "a driver")
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
    "Once CUDA is initialized, whoever has done that, the guard says so, and with which GPU.",
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


@claim("`%gpus N` makes the driver see that one GPU, by its UUID.", "gpus/apply.py", "a driver")
def choice() -> Seen:
    uuid = used()[0]
    shell = Shell()
    shell.must(f"%gpus {uuid}")
    cuda = Cuda()
    code = cuda.init()
    found = cuda.uuids()
    return Seen(found == [digits(uuid)], f"cuInit {code}, {counted(len(found))}")


@claim("`%gpus none` leaves the driver no GPU.", "gpus/apply.py", "a driver")
def choice_of_none() -> Seen:
    shell = Shell()
    shell.must("%gpus none")
    cuda = Cuda()
    code = cuda.init()
    return Seen(code == 100 and not cuda.uuids(), f"cuInit {code}, {counted(max(0, cuda.count()))}")
