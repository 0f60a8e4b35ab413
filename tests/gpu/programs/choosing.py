"""A choice and PyTorch: the GPUs that PyTorch sees, and the guard's report once it is too late."""

from __future__ import annotations

import os
from typing import Any

from tests.gpu.child import run
from tests.gpu.claim import Seen, claim
from tests.gpu.programs.common import Shell, both, counted, processes_on, used
from tests.gpu.programs.cuda import Cuda

WHERE = "gpus/apply.py"


@claim(
    "After `%gpus N`, PyTorch sees one GPU, with the UUID of GPU N.", WHERE, "PyTorch for CUDA", "a driver"
)
def one_gpu() -> Seen:
    uuid = used()[0]
    shell = Shell()
    shell.must(f"%gpus {uuid}", "import torch", "kept = torch.zeros(1).cuda()")
    torch = shell["torch"]
    count, found = torch.cuda.device_count(), str(torch.cuda.get_device_properties(0).uuid)
    is_so = count == 1 and uuid.endswith(found)
    return Seen(is_so, f"{counted(count)}, {'that one' if uuid.endswith(found) else 'another one'}")


@claim("After `%gpus none`, PyTorch sees no GPU.", WHERE, "PyTorch for CUDA", "a driver")
def no_gpu() -> Seen:
    shell = Shell()
    shell.must("%gpus none", "import torch")
    torch = shell["torch"]
    found = torch.cuda.is_available(), torch.cuda.device_count()
    return Seen(found == (False, 0), "is_available() {}, device_count() {}".format(*found))


@claim(
    "After `torch.zeros(1).cuda()` in a cell, the guard reports that PyTorch has started CUDA, in which cell, "
    "and with which GPU.",
    "process/watch.py",
    "PyTorch for CUDA",
    "a driver",
)
def guard_after_pytorch() -> Seen:
    uuid = used()[0]
    shell = Shell()
    shell.must(f"%gpus {uuid}", "import torch, gpu_magic")
    number = shell.ip.execution_count
    shell.must("kept = torch.zeros(1).cuda()")
    guard = shell.must("gpu_magic.guard()").result
    what = f"{guard.state.value} {guard.since} by {guard.by} with {counted(len(guard.uuids))}"
    is_so = (guard.state.value, guard.since, guard.by) == ("frozen", f"in cell [{number}]", "PyTorch")
    return Seen(is_so and guard.uuids == (uuid,), what)


@claim(
    "After CUDA has started, gpu_magic refuses a choice and leaves the environment unchanged.",
    WHERE,
    "a driver",
)
def too_late() -> Seen:
    shell = Shell()
    start = "from tests.gpu.programs.cuda import Cuda; cuda = Cuda(); cuda.init()"
    shell.must(f"%gpus {used()[0]}", start)
    before = os.environ["CUDA_VISIBLE_DEVICES"]
    done = shell.run("%gpus none")
    same = os.environ["CUDA_VISIBLE_DEVICES"] == before
    lines = [line for line in done.printed.splitlines() if line.strip()]
    what = f"the environment is {'unchanged' if same else 'changed'}; the message: {lines[0] if lines else 'none'}"
    return Seen(same and any("cell [3]" in line for line in lines), what)


@claim(
    "The guard checks after every cell whether CUDA has started. The check does not start CUDA. Twenty cells "
    "after `import torch`, the choice can still change.",
    "process/watch.py",
    "PyTorch for CUDA",
    "a driver",
)
def many_cells() -> Seen:
    shell = Shell()
    shell.must(f"%gpus {used()[0]}", "import torch, gpu_magic", *["torch.cuda.is_available()"] * 20)
    guard = shell.must("gpu_magic.guard()").result
    return Seen(guard.can_change, f"the guard reports {guard.state.value}")


@claim(
    "After `%gpus A,B`, PyTorch's `cuda:0` is GPU A and `cuda:1` is GPU B.",
    WHERE,
    "PyTorch for CUDA",
    "two GPUs",
)
def two_gpus() -> Seen:
    wanted = used()[:2][::-1]
    shell = Shell()
    shell.must(f"%gpus {','.join(wanted)}", "import torch")
    torch = shell["torch"]
    found = [
        str(torch.cuda.get_device_properties(number).uuid) for number in range(torch.cuda.device_count())
    ]
    is_so = len(found) == 2 and all(uuid.endswith(one) for uuid, one in zip(wanted, found, strict=True))
    return Seen(is_so, f"{counted(len(found))}, {'' if is_so else 'not '}in that order")


@claim(
    "After CUDA has started, `choose(..., in_process=True)` makes another visible GPU PyTorch's current "
    "device.",
    WHERE,
    "PyTorch for CUDA",
    "two GPUs",
)
def in_process() -> Seen:
    import gpu_magic

    first, second = both()
    import torch

    torch.zeros(1).cuda()
    gpu_magic.choose(second, in_process=True)
    chosen = torch.cuda.current_device()
    gpu_magic.choose("reset", in_process=True)
    reset = torch.cuda.current_device()
    del first
    return Seen((chosen, reset) == (1, 0), f"the current device is {chosen}, and {reset} after a reset")


@claim(
    "PyTorch enforces `memory_limit`: a request for more memory raises an out-of-memory error.",
    "frameworks/settings.py",
    "PyTorch for CUDA",
    "a driver",
)
def memory_limit() -> Seen:
    import gpu_magic

    gpu_magic.choose(used()[0], memory_limit="1GiB")
    import torch

    below = torch.empty(512 << 20, dtype=torch.uint8, device="cuda").nbytes
    try:
        torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return Seen(below == 512 << 20, "PyTorch gave 512 MiB and refused 2 GiB")
    return Seen(False, "PyTorch gave 2 GiB with a limit of 1 GiB")


@claim(
    "`memory_limit` leaves PyTorch's current device as it was, and opens no context on a GPU that is not used: with and "
    "without the limit, CUDA and NVML report the same before and after the first tensor.",
    "frameworks/pytorch.py",
    "PyTorch for CUDA",
    "a driver",
)
def limit_opens_nothing() -> Seen:
    found = [run("programs.choosing.state_with", (limit,), ",".join(used())) for limit in (None, "1GiB")]
    failed = next((one["failed"] for one in found if "failed" in one), "")
    return Seen(not failed and found[0] == found[1], failed or f"without {found[0]}; with {found[1]}")


def state_with(limit: str | None) -> dict[str, Any]:
    """Return the current device, the open contexts, and the GPUs on which NVML lists this process."""
    import gpu_magic

    uuids = used()
    gpu_magic.choose(",".join(uuids), memory_limit=limit)
    import torch

    torch.cuda.init()
    found = {}
    for moment in ("started", "with a tensor"):
        if moment == "with a tensor":
            kept = torch.zeros(3, device="cuda")
        listed = [
            number
            for number, uuid in enumerate(uuids)
            if os.getpid() in [one.pid for one in processes_on(uuid)]
        ]
        found[moment] = [torch.cuda.current_device(), Cuda().contexts(), listed]
    del kept
    return found


@claim(
    "In a Jupyter kernel, CUDA also sees only the chosen GPU. gpu_magic refuses a later choice and gives the "
    "number of the cell that started CUDA.",
    WHERE,
    "a driver",
    "ipykernel",
)
def in_a_kernel() -> Seen:
    from jupyter_client.manager import start_new_kernel

    printed: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        shown = content.get("data", {}).get("text/plain", "")
        printed.append(content.get("text") or content.get("evalue") or shown)

    manager, client = start_new_kernel(kernel_name="python3")
    try:
        for cell in (
            "%load_ext gpu_magic",
            f"%gpus {used()[0]}",
            "from tests.gpu.programs.cuda import Cuda; cuda = Cuda(); cuda.init(); print('count', cuda.count())",
            "%gpus none",
        ):
            client.execute_interactive(cell, output_hook=hear, timeout=60)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    text = "".join(printed)
    is_so = "count 1" in text and "cell [3]" in text
    return Seen(is_so, "1 GPU, and refused because of cell [3]" if is_so else " ".join(text.split())[-200:])
