"""On a real NVIDIA GPU: figures as nvidia-smi's, a choice that PyTorch sees, and the driver's own answers."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Fresh


def _missing() -> str:
    """Say why these tests can't run here; empty where they can."""
    try:
        subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no NVIDIA GPU here: nvidia-smi: {type(error).__name__}"
    return ""


MISSING = _missing()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


def _smi(fields: str) -> list[list[str]]:
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
        check=True,
        capture_output=True,
        text=True,
    )
    return [line.split(", ") for line in done.stdout.strip().split("\n")]


def test_the_figures_are_nvidia_smi_s(fresh: Fresh) -> None:
    shown = fresh("""
        import gpu_magic
        for gpu in gpu_magic.gpus():
            memory = gpu.memory_total >> 20, gpu.status.memory_used >> 20
            print(gpu.index, gpu.uuid, gpu.name, *memory, sep=", ")
    """)
    ours = [line.split(", ") for line in shown.strip().split("\n")]
    theirs = _smi("index,uuid,name,memory.total,memory.used")
    assert [one[:4] for one in ours] == [one[:4] for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert abs(int(one[4]) - int(other[4])) <= 512  # somebody else may start in between


def test_pytorch_sees_the_choice_and_the_guard_sees_pytorch(fresh: Fresh) -> None:
    shown = fresh("""
        import os, warnings
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        import gpu_magic
        last = len(gpu_magic.gpus()) - 1
        print(gpu_magic.choose(last).devices[0].uuid)
        import torch
        print(torch.cuda.is_available(), gpu_magic.guard().can_change)
        torch.zeros(1).cuda()
        guard = gpu_magic.guard()
        print(guard.state.value, guard.by, guard.uuids[0])
        print(torch.cuda.device_count(), f"GPU-{torch.cuda.get_device_properties(0).uuid}")
        gpu_magic.choose(last, strict=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gpu_magic.choose("none")
        print(len(caught), os.environ["CUDA_VISIBLE_DEVICES"] == str(last))
    """)
    lines = shown.strip().split("\n")
    uuid = lines[0]
    assert lines[1:] == ["True True", f"frozen PyTorch {uuid}", f"1 {uuid}", "1 True"]


def test_a_forked_child_is_told(fresh: Fresh) -> None:
    shown = fresh("""
        import os, gpu_magic, torch
        torch.zeros(1).cuda()
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, gpu_magic.guard().state.value.encode())
            os._exit(0)
        os.wait()
        print(os.read(reader, 100).decode())
    """)
    assert shown.strip() == "forked"


def test_an_empty_mask_leaves_nothing(fresh: Fresh) -> None:
    shown = fresh("""
        import gpu_magic
        gpu_magic.choose("none")
        import torch
        print(torch.cuda.is_available(), torch.cuda.device_count())
    """)
    assert shown.strip() == "False 0"
