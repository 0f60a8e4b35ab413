"""The guard in a real kernel: before cuInit, after it, and in a forked child."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.conftest import LIMIT
from tests.machine import CARDS, Driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kernel.conftest import Kernel

CUINIT = 'import ctypes; ctypes.CDLL("libcuda.so.1").cuInit(0)'
MASK = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"


def test_a_different_choice_after_cuinit_changes_nothing_and_says_why(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0")
    kernel.run("pass")
    kernel.run(CUINIT)  # cell 4
    reply = kernel.run("%gpus 1")
    assert reply.status == "ok"
    said = reply.text
    assert said.startswith("Too late: cell [4] started CUDA.")
    assert "keeps GPU 2 (cuda:0), GPU 0 (cuda:1)." in said
    assert "To use GPU 1: %gpus 1 --restart\n" in said
    assert "Too late" in reply.html
    assert kernel.run(MASK).stdout == "2,0\n"
    assert kernel.run("import gpu_magic\nfor _ in range(3): gpu_magic.choose(1)").stderr.count("Warning") >= 3
    kernel.restart()
    kernel.load()
    assert kernel.run("%gpus 1").said.startswith("cuda:0 = GPU 1")


def test_the_import_that_has_started_it_is_named_in_the_same_cell(kernel: Kernel) -> None:
    said = kernel.run("%gpus 3\nimport starter_pkg\n%gpus 1").text
    assert "cell [2] started CUDA (import starter_pkg)" in said
    assert "Nothing was changed: no framework is imported" in kernel.run("%gpus 3 --in-process").said


def test_a_cell_that_starts_cuda_awaits_and_is_interrupted_is_named(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0")
    cell = (
        f"{CUINIT}\nimport asyncio\ndisplay('now')\nfor _ in range(600): await asyncio.sleep(0.05)"  # cell 3
    )
    reply = kernel.run_and_interrupt(cell, lambda: "now" in kernel.heard)
    assert "Error in callback" not in reply.stdout + reply.stderr
    assert "cell [3] started CUDA" in kernel.run("%gpus 1").text


def test_an_error_stops_run_all(kernel: Kernel) -> None:
    kernel.run(CUINIT)
    for line in ("%gpus 1 --strict", "%config GpuMagics.on_frozen = 'error'\n%gpus 1"):
        sent = kernel.client.execute(line), kernel.client.execute("print('never')")
        replies = {}
        while len(replies) < 2:
            reply = kernel.client.get_shell_msg(timeout=LIMIT)
            replies[reply["parent_header"]["msg_id"]] = reply["content"]["status"]
        assert replies == dict(zip(sent, ("error", "aborted"), strict=True))


def test_a_gpu_inside_the_frozen_set_gets_the_line_to_type(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(imported=("torch",)).load()
    kernel.run("%gpus 2,0")
    kernel.run("import torch, jax")
    kernel.run(CUINIT)
    said = kernel.run("%gpus 0").text
    assert "GPU 0 is visible as cuda:1." in said
    assert "PyTorch: torch.cuda.set_device(1)" in said
    assert 'JAX: jax.config.update("jax_default_device", jax.devices("gpu")[1])' in said
    assert "TensorFlow" not in said
    assert "one cell: %%on_gpu 1\n  from here on: %gpus 0 --in-process\n" in said
    assert "GPU 0 and GPU 2 are visible as cuda:1 and cuda:0. To use GPU 0 without" in (
        kernel.run("%gpus 0,2").text
    )


def test_a_framework_is_named_that_imports_more_before_it_says_that_it_has_started(
    start_kernel: Callable[..., Kernel],
) -> None:
    """PyTorch 2.11 looks for Triton after cuInit, and sets its flag after that."""
    kernel = start_kernel(imported=("torch",)).load()
    kernel.run("%gpus 3")
    kernel.run("import torch, lazy_pkg")
    kernel.run(f"{CUINIT}; lazy_pkg.helper(); torch.cuda.is_initialized = lambda: True")
    assert "started in cell [4] (PyTorch)." in kernel.run("import gpu_magic; print(gpu_magic.guard())").stdout


def test_cuda_started_before_the_extension_was_loaded(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel()
    kernel.run(CUINIT)
    kernel.load()
    assert "started before gpu_magic was loaded" in kernel.run("%gpus").text
    assert "GPU 0 (cuda:0), GPU 1 (cuda:1)" in kernel.run("%gpus 1").text


def test_nothing_is_claimed_of_a_mask_where_nvml_does_not_answer(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(Driver(CARDS, refuse=18), CUDA_VISIBLE_DEVICES="1")
    kernel.load()
    kernel.run(CUINIT)
    shown = kernel.run("%gpus").text
    assert "is not a GPU of this machine" not in shown
    assert "now means other GPUs" not in shown


def test_where_cuda_has_started_without_nvml_the_table_names_the_doctor(
    start_kernel: Callable[..., Kernel], native: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "compute_only"
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(native / "libcuda.so.1")
    kernel = start_kernel(LD_LIBRARY_PATH=str(folder))
    kernel.load()
    kernel.run("import ctypes; _ = ctypes.CDLL('libcuda.so.1').cuInit(0)")
    shown = kernel.run("%gpus").text
    assert "started in cell [2]" in shown
    assert "No NVIDIA driver" not in shown
    assert "%gpu_doctor shows why" in shown


def test_reset_of_what_was_never_changed_is_fine_where_gpus_differ(
    start_kernel: Callable[..., Kernel],
) -> None:
    kernel = start_kernel(
        Driver((CARDS[0], replace(CARDS[1], name="Tesla T4", total=16 << 30), *CARDS[2:]))
    ).load()
    kernel.run(CUINIT)
    assert "Too late" not in kernel.run("%gpus reset").said


def test_a_fork_prints_what_it_cannot_display(kernel: Kernel) -> None:
    block = "with gpu_magic.on_gpu(99, or_cpu=True): print(flush=True)"
    fork = f"import os, gpu_magic\nif not (child := os.fork()):\n  {block}\n  os._exit(0)\nos.waitpid(child, 0)[1]"
    reply = kernel.run(fork)
    assert reply.stdout.startswith("Running on the CPU: cuda:99 cannot be used")
    assert (reply.text, reply.stderr) == ("0", "")
