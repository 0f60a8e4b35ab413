"""Which variables the panel shows below a GPU's row."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from gpu_magic.testing import simulate
from gpu_magic.widget.variables import find_variables


def test_what_lies_in_the_cpu_s_memory_is_on_no_gpu() -> None:
    names = {"tensor": torch.zeros(1000), "array": np.zeros(1000)}
    with simulate("2xA100-80GB"):
        found = find_variables(SimpleNamespace(user_ns=names, user_ns_hidden={}))
    assert found == {"": {"largest": [], "more": 0, "unfinished": False}}
