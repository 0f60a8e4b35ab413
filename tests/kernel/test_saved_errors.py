"""What `%gpu_free` and `%where` say in a real kernel of an error that was saved in a variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kernel.conftest import Kernel


@pytest.fixture
def kernel(pretend_kernel: Kernel) -> Kernel:
    """Return a kernel with an error in a variable that holds memory, beside a variable that is not its own."""
    pretend_kernel.run(
        "import torch\n"
        "kept = torch.ones(1 << 18, device='pretend:1')\n"
        "def f():\n"
        "    big = torch.ones(1 << 22, device='pretend:2')\n"
        "    1 / 0"
    )
    pretend_kernel.run("try:\n    f()\nexcept ZeroDivisionError as e:\n    err = e")
    return pretend_kernel


def test_where_says_what_a_saved_error_holds(kernel: Kernel) -> None:
    assert kernel.run("%where").stdout.splitlines() == [
        "kept  pretend:1: 1.0 MiB",
        "err   pretend:2: 16 MiB",
    ]


def test_gpu_free_names_a_saved_error(kernel: Kernel) -> None:
    said = kernel.run("%gpu_free").stdout.splitlines()
    assert said[-1] == "Still held by err (16 MiB), kept (1.0 MiB)."


def test_the_last_error_is_not_dropped_in_vain(kernel: Kernel) -> None:
    kernel.run("raise err")
    said = kernel.run("%gpu_free --dry-run").stdout.splitlines()
    assert said == [
        "No output and no traceback holds GPU memory.",
        "Still held by err (16 MiB), kept (1.0 MiB).",
    ]
