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


def test_a_block_runs_on_the_gpu_in_pytorch_and_jax(fresh: Fresh) -> None:
    """On the last GPU, chosen alone; JAX only where its CUDA plugin is installed."""
    shown = fresh("""
        import gpu_magic
        last = len(gpu_magic.gpus()) - 1
        gpu_magic.choose(last, growth=True, memory_limit="2GiB")
        import torch
        with gpu_magic.on_gpu(f"smi:{last}"):
            x = torch.ones(1000, requires_grad=True)
            (x * 2).sum().backward()
            print(x.device, x.grad.device, torch.cuda.current_device())
            seeded = torch.randperm(8, generator=torch.Generator().manual_seed(0))
        print(seeded.device, torch.ones(1).device, gpu_magic.devices_of(x))
        try:
            torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError:
            print("limited")
        def past():
            with gpu_magic.on_gpu(1):
                torch.ones(1)
        try:
            past()
        except gpu_magic.PlacementError as error:
            print(error)
        import jax
        try:
            jax.devices("gpu")
        except RuntimeError:
            print("no JAX for CUDA")
        else:
            with gpu_magic.on_gpu(0):
                print(jax.numpy.ones(1).devices().pop().platform)
    """)
    lines = shown.strip().split("\n")
    assert lines[0] == "cuda:0 cuda:0 0"
    assert lines[1].startswith("cpu cpu cuda:0 = GPU ")
    assert lines[2:] in (
        ["limited", "cuda:1 can't be used: PyTorch sees cuda:0.", "no JAX for CUDA"],
        ["limited", "cuda:1 can't be used: PyTorch sees cuda:0.", "gpu"],
    )


def test_two_gpus_are_told_apart(fresh: Fresh) -> None:
    if len(_smi("index")) < 2:
        pytest.skip("one GPU here")
    shown = fresh("""
        import gpu_magic, torch
        gpu_magic.choose("1,0")
        for place in (0, 1):
            with gpu_magic.on_gpu(place):
                print(torch.ones(1).device, torch.empty(1, device="cuda").device)
        gpu_magic.choose("0", in_process=True)
        print(torch.cuda.current_device())
        gpu_magic.choose("reset", in_process=True)
        print(torch.cuda.current_device())
    """)
    assert shown.split("\n")[:4] == ["cuda:0 cuda:0", "cuda:1 cuda:1", "1", "0"]


def test_variables_move_and_stay_tied(fresh: Fresh) -> None:
    """A model with tied weights, an LSTM and Adam's state to the GPU and back, with a step at each place."""
    shown = fresh("""
        import warnings
        import gpu_magic, torch
        from torch import nn
        warnings.simplefilter("error")  # cuDNN warns of an RNN whose weights lie apart
        torch.manual_seed(0)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.rnn = nn.Embedding(50, 16), nn.LSTM(16, 16, batch_first=True)
                self.head = nn.Linear(16, 50, bias=False)
                self.head.weight = self.embed.weight
            def forward(self, x):
                return self.head(self.rnn(self.embed(x))[0])
        net, x = Net(), torch.arange(40).view(4, 10)
        optimizer = torch.optim.Adam(net.parameters())
        whole = torch.arange(12.0).view(3, 4)
        batch = {"whole": whole, "row": whole[1]}
        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss
        loss = step(x)  # which keeps its graph
        ids = [id(p) for p in net.parameters()]
        gpu_magic.to_gpu([net, optimizer, batch])
        step(x.cuda())
        print(ids == [id(p) for p in net.parameters()], net.head.weight is net.embed.weight, net.rnn.weight_hh_l0.device)
        print({s["exp_avg"].device.type for s in optimizer.state.values()}, {s["step"].device.type for s in optimizer.state.values()})
        print(batch["row"].untyped_storage().data_ptr() == batch["whole"].untyped_storage().data_ptr(), batch["row"].tolist())
        gpu_magic.to_cpu([net, optimizer, batch])
        step(x)
        print(net.rnn.weight_hh_l0.device, net.head.weight is net.embed.weight)
    """)
    assert shown.strip().split("\n") == [
        "True True cuda:0",
        "{'cuda'} {'cpu'}",
        "True [4.0, 5.0, 6.0, 7.0]",
        "cpu True",
    ]


def test_real_out_of_memory_loses_nothing(fresh: Fresh) -> None:
    """The allocator is given a part of the GPU: the driver says that there is room, and then there is none."""
    shown = fresh("""
        import gpu_magic, torch
        torch.cuda.set_per_process_memory_fraction((256 << 20) / torch.cuda.get_device_properties(0).total_memory)
        model = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(100))  # 400 MiB
        try:
            gpu_magic.to_gpu(model)
        except gpu_magic.PlacementError as error:
            print(str(error).partition(" after")[0])
        print({p.device.type for p in model.parameters()}, torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
        kept = torch.ones(16 << 20, device="cuda")
        del kept
        freed = gpu_magic.gpu_free()
        print(freed.before["cuda:0"] - freed.after["cuda:0"] >= 64 << 20, torch.cuda.memory_reserved())
    """)
    assert shown.strip().split("\n") == ["cuda:0 ran out of memory", "{'cpu'} 0 0", "True 0"]
