"""The main path in a real kernel: show, choose, and a framework that sees exactly those."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.machine import CARDS, GIB, IN_CONTAINER, Driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Fresh
    from tests.kernel.conftest import Kernel

# What CUDA itself makes of the choice: the driver's own list, by UUID.
CUDA_SEES = """
import ctypes, uuid
cuda, count, raw = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
cuda.cuInit(0)
cuda.cuDeviceGetCount(ctypes.byref(count))
for ordinal in range(count.value):
    cuda.cuDeviceGetUuid_v2(ctypes.byref(raw), ordinal)
    print(f"GPU-{uuid.UUID(bytes=bytes(raw))}")
"""
# The same in another process, as CUDA starts once.
SEEN = f"""
import subprocess, sys, torch
print([subprocess.check_output([sys.executable, "-ISc", {CUDA_SEES!r}], text=True).split(),
    torch.cuda._device_count_nvml(), torch.cuda._parse_visible_devices()])
"""


def test_cuda_and_pytorch_see_exactly_what_was_chosen(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(imported=("torch",)).load()
    for typed, sees, mask in (
        ("%gpus 1,3", [1, 3], [1, 3]),
        ("%gpus 2,0", [2, 0], [2, 0]),
        ("%gpus 0-2", [0, 1, 2], [0, 1, 2]),
        ("n = 2\n%gpus {n},1", [2, 1], [2, 1]),
        ("import gpu_magic; gpu_magic.choose([3, 1])", [3, 1], [3, 1]),
        ("%config GpuMagics.by = 'uuid'\n%gpus GPU-3a", [3], [CARDS[3].uuid]),
        ("%gpus none", [], []),
    ):
        reply = kernel.run(typed)
        for place, number in enumerate(sees):
            assert f"cuda:{place} = GPU {number} (NVIDIA A100-SXM4-80GB, 79 GiB free)" in (
                reply.stdout + reply.text
            )
        found = ast.literal_eval(kernel.run(SEEN).stdout)
        assert found == [[CARDS[number].uuid for number in sees], len(sees), mask], typed


def test_what_is_loaded_and_the_table_in_a_notebook(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(fresh=True)  # what it is called is how it was started
    kernel.run("import os, sys; before = set(sys.modules)")
    kernel.run("%load_ext gpu_magic")
    heavy = "{'pynvml', 'ipywidgets', 'anywidget', 'torch', 'tensorflow', 'jax', 'keras', 'cupy'}"
    assert kernel.run(f"print(sorted((set(sys.modules) - before) & {heavy}))").stdout == "[]\n"
    assert kernel.run("print('libnvidia-ml' in open('/proc/self/maps').read())").stdout == "False\n"
    used = replace(CARDS[1], used=12 * GIB, processes=((kernel.pid, 11 * GIB), (1, GIB)))
    kernel.change_machine(Driver((CARDS[0], used, *CARDS[2:])))
    reply = kernel.run("%gpus")
    is_named = re.search(r"this kernel: ipykernel in \S+, 11\.0 GiB", reply.text) is not None  # in its folder
    assert is_named is not IN_CONTAINER
    assert "Started with  CUDA_VISIBLE_DEVICES not set: all GPUs" in reply.text
    assert "not started: the choice can still change" in reply.html
    for words in ("cuda:3", "driver 580.65.06"):
        assert words in reply.text
        assert words in reply.html


def test_reset_and_unload_put_back_what_was_there(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="3,1,0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    variables = "import os; print({n: v for n, v in os.environ.items() if n[:5] in ('CUDA_', 'PYTOR')})"
    before = kernel.run(variables).stdout
    kernel.run("%load_ext gpu_magic")
    assert "PYTORCH_NVML_BASED_CUDA_CHECK': '1'" in kernel.run(variables).stdout
    kernel.run("%gpus 1 --order fastest")
    assert kernel.run("%gpus reset").status == "ok"
    assert kernel.run(variables).stdout.replace(", 'PYTORCH_NVML_BASED_CUDA_CHECK': '1'", "") == before
    kernel.run("%gpus 1")
    assert "CUDA_VISIBLE_DEVICES is '3,1,0' again" in kernel.run("%unload_ext gpu_magic").said
    assert kernel.run(variables).stdout == before


def test_the_inherited_mask_is_the_one_of_the_launch(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="1,2")
    kernel.run("%env CUDA_VISIBLE_DEVICES=0,3")
    kernel.run("%load_ext gpu_magic")
    shown = kernel.run("%gpus").text
    assert "Started with  CUDA_VISIBLE_DEVICES=1,2" in shown
    assert "Now           CUDA_VISIBLE_DEVICES=0,3" in shown
    assert "not given to this process" in kernel.run("%gpus 3").refusal
    kernel.run("%gpus 1")
    rows = kernel.run("%gpus").text.split("\n")[2:6]
    assert ["not given" in row for row in rows] == [True, False, False, True]
    assert "not visible" in rows[2]
    assert "GPU 0 is not among the GPUs that this process was given." in kernel.run("%gpus 0 --force").said


@pytest.mark.parametrize("title", ["worker --rank=3 " * 60, "kernel"])
def test_a_program_that_wrote_its_title_over_the_environment(fresh: Fresh, title: str) -> None:
    """What setproctitle does: the variables are copied, and the memory behind /proc/self/environ is reused."""
    code = f"""
    import ctypes, os
    os.environ.update(dict(os.environ))
    stat = open('/proc/self/stat').read().rpartition(')')[2].split()
    start, end = int(stat[47]), int(stat[48])
    title = {title.encode()!r}
    ctypes.memmove(start, title + bytes(1), min(len(title) + 1, end - start))
    from gpu_magic.process.environment import launch_environment
    print(launch_environment().get("CUDA_VISIBLE_DEVICES"))
    """
    assert fresh(code, CUDA_VISIBLE_DEVICES="2,3") == "2,3\n"


STARTUP = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '2'"


def test_what_a_startup_file_has_set_is_what_the_kernel_was_given(
    start_kernel: Callable[..., Kernel], tmp_path: Path
) -> None:
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "gpus.py").write_text(STARTUP)
    kernel = start_kernel()
    kernel.run("%load_ext gpu_magic")
    assert "GPU 0 was not given to this process" in kernel.run("%gpus 0").refusal
    kernel.run("%gpus 0 --force")
    assert "CUDA_VISIBLE_DEVICES=2" in kernel.run("%gpus reset").said


def test_what_a_cell_has_set_is_the_user_s_own(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel()
    kernel.run(STARTUP)
    kernel.run("%load_ext gpu_magic")
    assert kernel.run("%gpus 0").said.startswith("cuda:0 = GPU 0")
    assert "CUDA_VISIBLE_DEVICES not set" in kernel.run("%gpus reset").said
    kernel.run("%gpus 2")
    kernel.run("os.environ['CUDA_VISIBLE_DEVICES'] = '3'")
    kernel.run("%gpus 1")
    assert "CUDA_VISIBLE_DEVICES is '3' again" in kernel.run("%unload_ext gpu_magic").said
