"""Frameworks that fail when they are asked, as half-installed ones do: a choice works, or changes nothing."""

from __future__ import annotations

import os
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

from gpu_magic import choose
from gpu_magic.process.session import current
from tests.programs.choosing import start_cuda, variables
from tests.programs.errors import choice_error
from tests.programs.runner import gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner


def fail(*_: object, **__: object) -> Any:
    raise RuntimeError("NVML mismatch")


def torch_that_fails(**works: object) -> Any:
    """Import a PyTorch in which little works."""
    torch: Any = types.ModuleType("torch")
    torch.__version__, torch.cuda = "2.13", types.ModuleType("torch.cuda")
    torch.Tensor = torch.device = torch.nn = torch.optim = object
    torch.accelerator = types.SimpleNamespace(current_accelerator=works.get("accelerator", fail))
    torch.version = types.SimpleNamespace(cuda="13.0", hip=None)
    torch.cuda.is_initialized = lambda: False
    torch.cuda._lazy_call = works.get("lazy_call", fail)
    sys.modules.update({"torch": torch, "torch.cuda": torch.cuda})
    return torch


def asked():
    torch_that_fails()
    choice = choose("1")
    return [choice.is_applied, choice.warnings, os.environ["CUDA_VISIBLE_DEVICES"]]


def test_a_framework_that_fails_when_it_is_asked_is_named(on_four_gpus: Runner) -> None:
    said = "Whether PyTorch has looked for GPUs is unknown (RuntimeError('NVML mismatch')). If so, restart."
    assert on_four_gpus(asked) == [True, [said], "1"]


@gives([True, []], on="on_four_gpus")
def test_a_module_that_fails_when_it_is_looked_at_is_no_framework():
    class Lazy(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            return fail()

    sys.modules["tensorflow"] = Lazy("tensorflow")
    choice = choose("1")
    return [choice.is_applied, choice.warnings]


def limited():
    """Return what is said and left of a limit that fails, of the next choice, and of a limit that works."""
    torch = torch_that_fails(accelerator=lambda: None)
    choose("0")
    held, before = current().claims.held, dict(os.environ)
    error = choice_error(choose, "1", memory_limit="8GiB")
    found = {"error": error, "changed": [current().claims.held != held, os.environ != before]}
    found["memory"] = [current().memory_options, variables()]
    found["next"] = [choose("1").mask, variables()]
    torch.cuda._lazy_call = lambda call: None
    choose("1", memory_limit="8GiB")
    torch.cuda._lazy_call = fail
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found["undone"] = [choose("0").mask, variables(), [str(one.message) for one in caught]]
    return found


def test_a_limit_that_fails_changes_nothing(on_four_gpus: Runner) -> None:
    assert on_four_gpus(limited) == {
        "error": "PyTorch failed at --memory-limit 8GiB: RuntimeError('NVML mismatch'). Nothing was changed.",
        "changed": [False, False],
        "memory": ["", {}],
        "next": ["1", {}],
        "undone": [
            "0",
            {},
            ["PyTorch failed to undo --memory-limit 8GiB: RuntimeError('NVML mismatch')"],
        ],
    }


def narrowed():
    torch_that_fails().accelerator.device_index = fail
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 2, getDevice=lambda: 0)
    device = types.SimpleNamespace(use=list)
    cuda = types.SimpleNamespace(runtime=runtime, Device=lambda _: device)
    sys.modules["cupy"] = types.SimpleNamespace(cuda=cuda, ndarray=type)
    choose("0,1")
    start_cuda()
    return choose("1", in_process=True).results


def test_a_framework_that_fails_keeps_no_other_from_using_fewer_gpus(on_four_gpus: Runner) -> None:
    assert on_four_gpus(narrowed) == [
        "PyTorch failed, so nothing changed: RuntimeError('NVML mismatch').",
        "CuPy: its current device is cuda:1. Others can still be named.",
    ]
