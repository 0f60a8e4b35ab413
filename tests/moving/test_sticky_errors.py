"""After an error of CUDA's that each later call raises again: what was done is said, and nothing is half done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.testing import simulate
from tests.eight_gpus import COUNT, Array, EightGpus, registered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ERROR = "CUDA error: an illegal memory access was encountered"


@pytest.fixture
def framework(tmp_path: Path) -> Iterator[EightGpus]:
    """Return a framework whose calls into CUDA all fail."""
    with simulate(f"{COUNT}xA100-80GB", clock=lambda: 0.0), registered(tmp_path) as framework:
        framework.sticky = f"{ERROR}\nCompile with TORCH_USE_CUDA_DSA"
        yield framework


def test_gpu_free_says_what_could_not_be_given_back(framework: EightGpus) -> None:
    framework.reserved = 1 << 20
    freed = gpu_magic.gpu_free()
    assert freed.notes == (f"EightGpus can't empty its cache: RuntimeError: {ERROR}.",)
    assert repr(freed).endswith(freed.notes[0])


@pytest.mark.usefixtures("framework")
def test_a_move_that_fails_is_undone_and_says_why_it_failed() -> None:
    held = [Array(1)]
    with pytest.raises(
        gpu_magic.PlacementError, match=f"failed, and all is as it was: RuntimeError: {ERROR}"
    ):
        gpu_magic.to_gpu(held, 2)
    assert held[0].ordinal == 1
