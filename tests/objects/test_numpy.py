"""NumPy arrays, without a framework. `make matrix` also runs this with NumPy 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpu_magic import devices_of

if TYPE_CHECKING:
    from tests.conftest import Fresh


def test_views_count_once() -> None:
    array = np.ones(1000)
    assert devices_of(array, array[3:], [array[::2]]) == {"cpu": 8000}


def test_numpy_1_has_the_bounds_of_an_array_at_the_top(fresh: Fresh) -> None:
    code = """
import numpy as np
from gpu_magic import devices_of
if hasattr(np.lib, "array_utils"):
    np.byte_bounds = np.lib.array_utils.byte_bounds
    del np.lib.array_utils
print(dict(devices_of(np.ones(1000))))
"""
    assert fresh(code) == "{'cpu': 8000}\n"
