"""What pages get of a machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from gpu_magic.panel.machine import find_variables, serialize
from gpu_magic.process.session import current
from gpu_magic.process.view import take_snapshot
from gpu_magic.testing import simulate


def look() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return serialize(take_snapshot(current()))


def test_instances_stand_behind_their_gpu() -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)+1xA100-80GB"):
        header, rows = look()
    assert [row["key"][:4] for row in rows] == ["0", "MIG-", "MIG-", "1"]
    assert [row["parent"] for row in rows] == ["", "0", "0", ""]
    assert header["least_busy"] == "1"  # what is split can't be picked while a whole one can


def test_of_instances_the_least_busy_one_alone_can_be_picked() -> None:
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)"):
        assert look()[0]["least_busy"].count("MIG-") == 1


def test_what_lies_in_the_cpu_s_memory_is_on_no_gpu() -> None:
    names = {"tensor": torch.zeros(1000), "array": np.zeros(1000)}
    with simulate("2xA100-80GB"):
        found = find_variables(SimpleNamespace(user_ns=names, user_ns_hidden={}))
    assert found == {"": {"largest": [], "more": 0, "unfinished": False}}
