"""The main path in a real kernel: show, choose, and a framework that sees exactly those."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.conftest import LIMIT
from tests.machine import CARDS, GIB, IN_CONTAINER, Driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
TORCH_COUNTS = "import torch; print(torch.cuda._device_count_nvml(), torch.cuda._parse_visible_devices())"


@pytest.mark.parametrize(
    ("typed", "sees", "mask"),
    [
        ("%gpus 1,3", [1, 3], "[1, 3]"),
        ("%gpus 2,0", [2, 0], "[2, 0]"),
        ("%gpus 0-2", [0, 1, 2], "[0, 1, 2]"),
        ("%config GpuMagics.by = 'uuid'\n%gpus GPU-3a", [3], f"['{CARDS[3].uuid}']"),
        ("n = 2\n%gpus {n},1", [2, 1], "[2, 1]"),
        ("%gpus none", [], "[]"),
        ("import gpu_magic; gpu_magic.choose([3, 1])", [3, 1], "[3, 1]"),
    ],
)
def test_cuda_and_pytorch_see_exactly_what_was_chosen(
    kernel: Kernel, typed: str, sees: list[int], mask: str
) -> None:
    reply = kernel.run(typed)
    assert reply.status == "ok"
    for place, number in enumerate(sees):
        assert (
            f"cuda:{place} = GPU {number} (NVIDIA A100-SXM4-80GB, 79 GiB free)" in reply.stdout + reply.text
        )
    assert kernel.run(TORCH_COUNTS).stdout.strip() == f"{len(sees)} {mask}"
    assert kernel.run(CUDA_SEES).stdout.split() == [CARDS[number].uuid for number in sees]


def test_the_table_in_a_notebook_has_text_and_html_and_this_kernel_s_own_process(
    start_kernel: Callable[..., Kernel],
) -> None:
    kernel = start_kernel(fresh=True)  # what it is called is how it was started
    kernel.run("%load_ext gpu_magic")
    pid = int(kernel.run("import os; print(os.getpid())").stdout)
    used = replace(CARDS[1], used=12 * GIB, processes=((pid, 11 * GIB), (1, GIB)))
    kernel.change_machine(Driver((CARDS[0], used, *CARDS[2:])))
    reply = kernel.run("%gpus")
    assert reply.status == "ok"
    assert ("this kernel: ipykernel, 11.0 GiB" in reply.text) is not IN_CONTAINER
    for line in ("Started with  CUDA_VISIBLE_DEVICES not set: all GPUs", "cuda:3", "driver 580.65.06"):
        assert line in reply.text
    for words in ("cuda:3", "driver 580.65.06", "not started: the choice can still change"):
        assert words in reply.html


def test_someone_else_on_a_chosen_gpu_is_named(kernel: Kernel) -> None:
    used = replace(CARDS[2], used=50 * GIB, processes=((1, 49 * GIB),))
    kernel.change_machine(Driver((*CARDS[:2], used, CARDS[3])))
    reply = kernel.run("%gpus 2,3")
    assert "GPU 2 is in use by" in reply.stdout
    assert "49.0 GiB" in reply.stdout
    assert "GPU 3 is in use" not in reply.stdout


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
    assert "CUDA_VISIBLE_DEVICES is '3,1,0' again" in kernel.run("%unload_ext gpu_magic").stdout
    assert kernel.run(variables).stdout == before


def test_the_inherited_mask_is_the_one_of_the_launch(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="1,2")
    kernel.run("%env CUDA_VISIBLE_DEVICES=0,3")
    kernel.run("%load_ext gpu_magic")
    shown = kernel.run("%gpus").text
    assert "Started with  CUDA_VISIBLE_DEVICES=1,2" in shown
    assert "Now           CUDA_VISIBLE_DEVICES=0,3" in shown
    refused = kernel.run("%gpus 3")
    assert refused.status == "error"
    assert "outside what this process was given" in refused.stderr
    assert kernel.run("%gpus 3 --force").status == "ok"


def test_a_mask_with_quotes_is_explained(kernel: Kernel) -> None:
    kernel.run('%env CUDA_VISIBLE_DEVICES="0,1"')
    assert "The quotes in" in kernel.run("%gpus").text


def test_a_gpu_lost_mid_way(kernel: Kernel) -> None:
    assert "GPU 2" in kernel.run("%gpus 2").stdout
    kernel.change_machine(Driver(CARDS).losing(2))
    assert "not answering: the driver says this GPU is lost" in kernel.run("%gpus").text
    assert "can't be chosen" in kernel.run("%gpus 2").stderr
    assert CARDS[3].uuid in kernel.run("%gpus 3\nimport os; print(os.environ['CUDA_VISIBLE_DEVICES'])").stdout
    kernel.change_machine(Driver(CARDS))
    assert "lost" not in kernel.run("%gpus").text


def test_a_call_that_hangs_leaves_the_kernel_usable(kernel: Kernel) -> None:
    kernel.change_machine(Driver(CARDS, hangs=(("nvmlDeviceGetUtilizationRates", 1, float(LIMIT)),)))
    reply = kernel.run("import time; t = time.monotonic()\n%gpus\nprint(time.monotonic() - t)")
    assert "did not come back in time" in reply.text
    assert float(reply.stdout) < LIMIT / 2
    assert "cuda:0 = GPU 0" in kernel.run("%gpus 0").stdout
    assert kernel.run("print(6 * 7)").stdout == "42\n"


@pytest.mark.parametrize(
    ("driver", "says"),
    [
        (Driver(CARDS, refuse=18), "driver/library version mismatch"),
        (Driver(CARDS, refuse=4), "refuses this user"),
        (Driver(()), "has no GPU"),
    ],
)
def test_a_driver_that_has_nothing_to_give(
    start_kernel: Callable[..., Kernel], driver: Driver, says: str
) -> None:
    kernel = start_kernel(driver)
    kernel.run("%load_ext gpu_magic")
    shown = kernel.run("%gpus")
    assert (shown.status, says in shown.text, says in shown.html) == ("ok", True, True)
    refused = kernel.run("%gpus 0")
    assert says in refused.stderr
    assert refused.status == "error"
    assert kernel.run("%gpus none").status == "ok"


def test_load_unload_reload_any_number_of_times(kernel: Kernel) -> None:
    for _ in range(3):
        for line in (
            "%reload_ext gpu_magic",
            "%unload_ext gpu_magic",
            "%load_ext gpu_magic",
            "%load_ext gpu_magic",
        ):
            reply = kernel.run(line)
            assert (reply.status, reply.stderr) == ("ok", "")
    count = "print(sum(type(c).__name__ == 'GpuMagics' for c in get_ipython().configurables))"
    assert kernel.run(count).stdout == "1\n"
    assert kernel.run("%gpus 1").status == "ok"
    kernel.run("%unload_ext gpu_magic")
    assert "not found" in kernel.run("%gpus").stderr


def test_the_extension_loads_from_ipython_s_configuration(
    start_kernel: Callable[..., Kernel], tmp_path: object
) -> None:
    profile = tmp_path / "ipython" / "profile_default"  # type: ignore[operator]
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text("c.InteractiveShellApp.extensions = ['gpu_magic']\n")
    assert "cuda:0 = GPU 1" in start_kernel().run("%gpus 1").stdout


def test_it_imports_nothing_heavy_before_it_is_asked(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(fresh=True)
    kernel.run("import sys; before = set(sys.modules)")
    kernel.run("%load_ext gpu_magic")
    heavy = "{'pynvml', 'ipywidgets', 'anywidget', 'torch', 'tensorflow', 'jax', 'keras', 'cupy'}"
    assert kernel.run(f"print(sorted((set(sys.modules) - before) & {heavy}))").stdout == "[]\n"
    assert kernel.run("print('libnvidia-ml' in open('/proc/self/maps').read())").stdout == "False\n"


def test_a_process_with_html_for_a_name_stays_text(kernel: Kernel) -> None:
    name = "<img src=x onerror=alert(1)>"
    process = subprocess.Popen([name, "60"], executable="/bin/sleep")
    try:
        used = replace(CARDS[1], used=9 * GIB, processes=((process.pid, 8 * GIB),))
        kernel.change_machine(Driver((CARDS[0], used, *CARDS[2:])))
        shown = kernel.run("%gpus")
    finally:
        process.kill()
        process.wait()
    assert "<img" not in shown.html
    assert "8.0 GiB" in shown.html
    if not IN_CONTAINER:
        assert name in shown.text
        assert "&lt;img src=x onerror=alert(1)&gt;" in shown.html


def test_the_allotment_is_shown_and_leaving_it_is_said(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="1,2")
    kernel.run("%load_ext gpu_magic")
    kernel.run("%gpus 1")
    rows = kernel.run("%gpus").text.split("\n")[2:6]
    assert ["not given" in row for row in rows] == [True, False, False, True]
    assert "not visible" in rows[2]
    assert "GPU 0 is outside what this process was given." in kernel.run("%gpus 0 --force").stdout


@pytest.mark.parametrize("title", ["worker --rank=3 " * 60, "kernel"])
def test_a_program_that_wrote_its_title_over_the_environment(
    start_kernel: Callable[..., Kernel], title: str
) -> None:
    """What setproctitle does: the variables are copied, and the memory behind /proc/self/environ is reused."""
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="2,3", fresh=True)
    kernel.run(
        "import ctypes, os\n"
        "os.environ.update(dict(os.environ))\n"
        "stat = open('/proc/self/stat').read().rpartition(')')[2].split()\n"
        "start, end = int(stat[47]), int(stat[48])\n"
        f"title = {title.encode()!r}\n"
        "ctypes.memmove(start, title + bytes(1), min(len(title) + 1, end - start))"
    )
    kernel.run("%load_ext gpu_magic")
    assert "Started with  CUDA_VISIBLE_DEVICES=2,3" in kernel.run("%gpus").text
    assert "outside" in kernel.run("%gpus 0").stderr


STARTUP = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '2'"


def test_what_a_startup_file_has_set_is_what_the_kernel_was_given(
    start_kernel: Callable[..., Kernel], tmp_path: Path
) -> None:
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "gpus.py").write_text(STARTUP)
    kernel = start_kernel()
    kernel.run("%load_ext gpu_magic")
    assert "GPU 0 is outside what this process was given" in kernel.run("%gpus 0").stderr
    kernel.run("%gpus 0 --force")
    assert "CUDA_VISIBLE_DEVICES=2" in kernel.run("%gpus reset").stdout


def test_what_a_cell_has_set_is_the_user_s_own(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel()
    kernel.run(STARTUP)
    kernel.run("%load_ext gpu_magic")
    assert kernel.run("%gpus 0").stdout.startswith("cuda:0 = GPU 0")
    assert "CUDA_VISIBLE_DEVICES not set" in kernel.run("%gpus reset").stdout


def test_unloading_puts_back_what_somebody_else_has_set_last(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel()
    kernel.run("import os")
    kernel.run("%load_ext gpu_magic")
    kernel.run("%gpus 2")
    kernel.run("os.environ['CUDA_VISIBLE_DEVICES'] = '3'")
    kernel.run("%gpus 1")
    assert "CUDA_VISIBLE_DEVICES is '3' again" in kernel.run("%unload_ext gpu_magic").stdout


def test_slurm_says_which_gpus_the_numbers_mean_where_they_differ(
    start_kernel: Callable[..., Kernel],
) -> None:
    unlike = Driver((*CARDS[:3], replace(CARDS[3], name="Tesla T4", total=16 * GIB)))
    kernel = start_kernel(unlike, CUDA_VISIBLE_DEVICES="1,3", SLURM_JOB_GPUS="1,3")
    kernel.run("%load_ext gpu_magic")
    assert kernel.run("%gpus 3").stdout.startswith("cuda:0 = GPU 3")
    assert "GPU 0 is outside what Slurm allotted to this process (GPUs 1, 3)" in kernel.run("%gpus 0").stderr
