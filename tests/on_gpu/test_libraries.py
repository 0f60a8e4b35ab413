"""What other code does with devices in a block: it is told when it uses another GPU than the block's."""

from __future__ import annotations

import contextlib
import io
import warnings

from gpu_magic import on_gpu
from gpu_magic.errors import PlacementWarning
from tests.programs.cells import shell_with_magics
from tests.programs.runner import ELSEWHERE, gives

if ELSEWHERE:
    import torch

LIBRARY = """
kept = []
def picks(number):
    torch.accelerator.set_device_index(number)
def puts(number):
    kept.append(torch.zeros(99, device=torch.device("pretend", number)))
def frees(number):
    torch.zeros(99, device=torch.device("pretend", number))
def uses_a_block(number):
    with on_gpu(number):
        kept.append(torch.zeros(99))
"""


def told(library, name, number):
    """Return whether a block on cuda:1 tells that other code put data elsewhere, and made a device current."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with on_gpu(1):
            library[name](number)
    texts = [str(one.message) for one in caught if issubclass(one.category, PlacementWarning)]
    return [f"pretend:{number}" in "".join(texts), "current" in "".join(texts)]


@gives(
    {
        "picks": [True, True],
        "puts": [True, False],
        "frees": [True, False],  # though nothing is left there
        "uses_a_block": [False, False],  # which is meant
        "before": [False, False],
        "here": [[False, False], [False, False]],
        "current": 0,
    }
)
def test_other_gpus_that_a_block_s_code_uses_are_told():
    library = {"torch": torch, "on_gpu": on_gpu}
    exec(LIBRARY, library)
    found = {name: told(library, name, 2) for name in ("picks", "puts", "frees", "uses_a_block")}
    library["puts"](3)  # before the block, which uses none of it
    found["before"] = told({"nothing": len}, "nothing", "3")
    found["here"] = [told(library, name, 1) for name in ("picks", "puts")]
    return found | {"current": torch.accelerator.current_device_index()}


@gives([True, False, True, True])
def test_a_device_that_the_code_itself_names_is_no_news():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with on_gpu(1):
            first = torch.zeros(9, device="pretend:3")
        named = [str(first.device) == "pretend:3", bool(caught)]
        with on_gpu("cpu"):
            second = torch.zeros(9, device=torch.device("pretend", 2))
        return [*named, second.device.index == 2, "%gpus none" in str(caught[-1].message)]


@gives(["Code here", "Set to cuda:1", True, "Ran on cuda:1"])
def test_a_cell_says_it_in_a_line_also_if_it_fails():
    shell = shell_with_magics()
    shell.user_ns["torch"] = torch
    shell.run_cell("def pick(): torch.accelerator.set_device_index(0)")

    def printed(cell):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            shell.run_cell(cell)
        return out.getvalue()

    first, second, *_ = printed("%%on_gpu 1 -v\npick()").splitlines()
    has_failed = "Code here" in printed("%%on_gpu 1\npick()\n1/0")
    return [first[:9], second[:13], has_failed, printed("%%on_gpu 1 -v\nx = torch.zeros(1)")[:13]]
