"""`%gpu_doctor` in a real kernel: the real PyTorch's build, another kernel's processes, and the panel's page."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tests.kernel.test_panel import Page
from tests.machine import CARDS, Driver
from tests.processes import sees_processes, using

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

MASK = "CUDA_VISIBLE_DEVICES"
# The driver's answer: what PyTorch would see once CUDA is started.
SEEN = (
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0); n = ctypes.c_int(); "
    "cuda.cuDeviceGetCount(ctypes.byref(n)); print(n.value)"
)


def findings(kernel: Kernel, about: str) -> list[dict[str, Any]]:
    """Return what is found about something."""
    found = json.loads(kernel.run("%gpu_doctor --json").stdout)["findings"]
    return [one for one in found if one["about"] == about]


def test_a_cpu_only_build_is_the_first_thing_that_is_said(kernel: Kernel) -> None:
    """The real PyTorch of the tests, which is one."""
    reply = kernel.run("%gpu_doctor")
    lines = reply.text.splitlines()
    assert lines[2] == f"Wrong: PyTorch {version('torch')} is a CPU-only build."
    assert lines[3].endswith("Install this build, and restart the kernel:")
    assert lines[5].strip().startswith("%pip install torch")
    assert "<pre" in reply.html


def test_a_variable_that_a_cell_has_set_is_mended(kernel: Kernel) -> None:
    for value in ('"2,0"', ""):
        kernel.run(f"import os; os.environ['{MASK}'] = {value!r}")
        (found,) = findings(kernel, MASK)
        assert kernel.run(found["mend"]).status == "ok"
        assert findings(kernel, MASK) == []
    assert kernel.run(SEEN).stdout == "4\n"


def test_a_gpu_that_hangs_does_not_keep_it_waiting(kernel: Kernel) -> None:
    kernel.change_machine(Driver(CARDS, hangs=(("nvmlDeviceGetMemoryInfo_v2", 2, 3600.0),)))
    (found,) = findings(kernel, "GPUs")
    assert found["what"].startswith("GPU 2 is not answering: a call into the driver did not come back")


@sees_processes
def test_what_another_kernel_has_left(kernel: Kernel, start_kernel: Callable[..., Kernel]) -> None:
    other = start_kernel(JPY_SESSION_NAME="/home/maria/work/train.ipynb")
    kernel.change_machine(using(other.pid))
    (found,) = findings(kernel, "own processes")
    assert "The kernel of /home/maria/work/train.ipynb" in found["what"]
    assert found["mend"] == f"%gpu_ps end {other.pid}"
    report = kernel.run("%gpu_doctor --report").stdout
    assert "Another process of this user has 2.0 GiB on GPU 1" in report
    assert "train.ipynb" not in report


def test_a_panel_that_no_page_has_answered(kernel: Kernel) -> None:
    page = Page(kernel)
    (found,) = findings(kernel, "panel")
    assert found["what"] == "A panel was shown, and no page has answered it."
    page.do(type="set_visibility", view="v", visibility="watched")
    assert page.hear() != {}
    assert findings(kernel, "panel") == []
