"""Kernels that start with GPUs, by the kernelspecs that `gpu-magic kernel install` adds."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from traitlets.config import Config

from gpu_magic.devices.processes import read_process
from gpu_magic.kernelspec.kernelspecs import install
from tests.conftest import LIMIT, ROOT
from tests.kernel.conftest import Kernel
from tests.machine import CARDS, GIB, Card, Driver, clean_environment, environment
from tests.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Kernels = Callable[..., Kernel]

MASK = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), end='')"
BUSY = Driver((CARDS[0], replace(CARDS[1], used=60 * GIB, util=97), *CARDS[2:]))


def test_the_first_cell_has_a_gpu_that_no_other_kernel_has(start_kernel: Kernels) -> None:
    first, second = (
        start_kernel(gpus="auto"),
        start_kernel(gpus="auto:2", JPY_SESSION_NAME="/home/maria/b.ipynb"),
    )
    assert [first.run(MASK).stdout, second.run(MASK).stdout] == ["0", "1,2"]
    table = first.run("%gpus").text
    assert "CUDA_VISIBLE_DEVICES=0 (CUDA_DEVICE_ORDER=PCI_BUS_ID), chosen when the kernel started" in table
    assert table.count("claimed by you: b.ipynb, since") == 2
    assert read_process(second.pid).name == "ipykernel"
    assert "No GPU is free" not in first.run("%gpus 3").said
    assert first.run(MASK).stdout == "3"


def test_ranks_that_it_starts_share_its_gpus(start_kernel: Kernels, tmp_path: Path) -> None:
    rank = "import gpu_magic, sys; print(gpu_magic.choose('auto').mask, flush=True); sys.stdin.read()"
    (tmp_path / "rank.py").write_text(rank)
    start = (
        "import subprocess, sys\n"
        "ask = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
        "ranks = [subprocess.Popen([sys.executable, 'rank.py'], **ask) for _ in range(2)]\n"
        "print(*sorted(rank.stdout.readline().strip() for rank in ranks), end='')\n"
        "for rank in ranks: rank.communicate()"
    )
    assert start_kernel(gpus="2,0").run(start).stdout == "0 2"


def test_it_is_a_kernel_as_any_other(start_kernel: Kernels, tmp_path: Path) -> None:
    startup = tmp_path / "ipython/profile_default/startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("import os; at_startup = os.environ['CUDA_VISIBLE_DEVICES']")
    (tmp_path / "random.py").write_text("raise SystemExit('the user's')")
    (tmp_path / "ours.py").write_text("value = 5")
    ours = start_kernel(gpus="2")
    (tmp_path / "random.py").unlink()  # which it has not imported to start, as ipykernel 6.17 would have
    plain = start_kernel(fresh=True)
    assert ours.run("print(at_startup, end='')").stdout == "2"
    assert ours.run("import ours; print(ours.value, end='')").stdout == "5"
    told = []
    for kernel in (ours, plain):
        content = kernel.client.kernel_info(reply=True, timeout=LIMIT)["content"]
        content.pop("banner")  # it ends with a tip
        line = kernel.run(
            "import os, sys, __main__\n"
            "places = [place for place in sys.path if place != os.getcwd()]  # 6.17 has '' and this\n"
            "print(__main__, sys.argv[1:][:1], places, sys.flags)"
        ).stdout
        told.append((content, line))
        kernel.client.control_channel.send(
            kernel.client.session.msg("debug_request", {"type": "request", "seq": 1, "command": "debugInfo"})
        )
        assert kernel.client.get_control_msg(timeout=LIMIT)["content"]["success"]
    assert told[0] == told[1]
    assert ours.run_and_interrupt(
        "print('on', flush=True)\nimport time; time.sleep(600)", lambda: ours.heard == "on\n"
    ).errors
    assert ours.run("%gpu_ps").status == "ok"


def test_a_restart_keeps_its_gpus_or_says_which_it_has_instead(start_kernel: Kernels, tmp_path: Path) -> None:
    first, second = start_kernel(gpus="auto"), start_kernel(gpus="auto")
    assert [first.run(MASK).stdout, second.run(MASK).stdout] == ["0", "1"]
    assert len(list((tmp_path / "runtime/gpu_magic_started").iterdir())) == 2
    first.end()  # GPU 0 is free again
    second.restart()
    assert second.run(MASK).stdout == "1"
    assert len(list((tmp_path / "runtime/gpu_magic_started").iterdir())) == 1  # the other has ended
    second.change_machine(BUSY)
    second.restart()
    assert second.run(MASK).said == "Before its restart this kernel had GPU 1 (in use). Now it has GPU 0.\n0"
    assert second.run(MASK).stdout == "0"


def test_a_choice_that_was_saved_for_a_restart_goes_before_the_kernelspec(start_kernel: Kernels) -> None:
    kernel = start_kernel(gpus="auto")
    kernel.run("import ctypes; _ = ctypes.CDLL('libcuda.so.1').cuInit(0)")
    reply = kernel.run("import gpu_magic; gpu_magic.choose('3,2', restart=True)")
    assert reply.errors == ["Restarting the kernel. It starts with GPU 3 and GPU 2."]
    until(lambda: not kernel.is_alive())
    kernel.restart()
    reply = kernel.run(MASK)
    assert reply.said.startswith("Applied the choice from before the restart:\ncuda:0 = GPU 3 ")
    assert reply.stdout.endswith("3,2")


def test_a_driver_that_hangs_keeps_no_kernel_from_starting(start_kernel: Kernels) -> None:
    kernel = start_kernel(Driver(CARDS, hangs=(("nvmlInitWithFlags", -1, float(LIMIT)),)), gpus="auto")
    reply = kernel.run(MASK)
    assert reply.said.startswith("This kernel started without a GPU. ")
    assert "not answer" in reply.said
    assert reply.said.endswith("\n")  # and nothing behind it: no GPU


def masks_of(gpus: tuple[Card, ...], count: int, folder: Path, native: Path, sockets: str) -> list[str]:
    """Start kernels at once, all with "a free GPU"; return what the first cell of each prints."""
    Driver(gpus).write(folder / "machine")
    name = install("auto", prefix=str(folder)).name
    variables = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
    managers = [KernelManager(kernel_name=name, transport="ipc") for _ in range(count)]
    for number, manager in enumerate(managers):
        manager.kernel_spec_manager.kernel_dirs = [str(folder / "share/jupyter/kernels")]
        manager.ip = f"{sockets}/{folder.name}-{number}"
        manager.start_kernel(env=clean_environment() | environment(native, folder / "machine") | variables)
    kernels = [Kernel(manager, folder / "machine") for manager in managers]
    masks = [kernel.run(MASK).said for kernel in kernels]
    for kernel in kernels:
        kernel.end()
    return masks


def judge(masks: list[str], gpus: int) -> None:
    assert sorted(mask for mask in masks if mask.isdigit()) == list(map(str, range(gpus)))
    others = [mask for mask in masks if not mask.isdigit()]
    assert len(others) == len(masks) - gpus
    for mask in others:
        assert mask.startswith("This kernel started without a GPU. Not free: GPU 0")
        assert mask.endswith("To wait: %gpus auto --wait 30m\n")


def test_of_kernels_that_start_at_once_no_two_have_the_same_gpu(
    tmp_path: Path, native: Path, sockets: str
) -> None:
    judge(masks_of(CARDS, 7, tmp_path, native, sockets), len(CARDS))


@pytest.mark.nightly  # the same with more
def test_fifty_kernels_at_once_share_eight_gpus(tmp_path: Path, native: Path, sockets: str) -> None:
    cards = tuple(
        replace(
            CARDS[0],
            uuid=f"GPU-{number}a000000-0000-4000-8000-0123456789ab",
            bus_id=f"00000000:{7 + 8 * number:02X}:00.0",
        )
        for number in range(8)
    )
    judge(masks_of(cards, 50, tmp_path, native, sockets), 8)


def test_nbclient_has_them_by_the_kernel_s_name(
    native: Path, sockets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
    name = install("auto:2", prefix=str(tmp_path)).name
    state = tmp_path / "machine"
    BUSY.write(state)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(MASK)])
    config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/started"}})
    client = NotebookClient(notebook, kernel_name=name, timeout=LIMIT, config=config)
    variables = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython")}
    client.execute(env=clean_environment() | environment(native, state) | variables)
    assert notebook.cells[0].outputs[0]["text"] == "0,2"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") is None
