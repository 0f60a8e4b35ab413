"""What `%to_gpu`, `%gpu_free` and `%where` say in a real kernel of a variable that holds too much to be looked at whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kernel.conftest import Kernel

NOT_WHOLE = "Not looked at in full, as that would take too long: much."


@pytest.fixture
def kernel(pretend_kernel: Kernel) -> Kernel:
    """Return a kernel with a model beside more objects than are looked at."""
    pretend_kernel.run(
        "import torch\n"
        "class Record: pass\n"
        "much = [Record() for _ in range(60_000)]\n"
        "model = torch.nn.Linear(2, 2)"
    )
    return pretend_kernel


def test_a_move_says_which_variable_it_has_not_looked_at_whole(kernel: Kernel) -> None:
    assert kernel.run("%to_gpu model").stdout.splitlines() == [
        "model  Linear: 2 arrays  24 bytes  cpu → pretend:0",
        "24 bytes moved to pretend:0.",
        NOT_WHOLE,
    ]
    assert kernel.run("%gpu_free").stdout.splitlines()[-2:] == ["Still held by model (24 bytes).", NOT_WHOLE]
    assert kernel.run("%where").stdout.splitlines()[-1] == NOT_WHOLE
    assert kernel.run("%where much").stdout == "much  no arrays\n"
