"""The guard in a real kernel: before cuInit, after it, and in a forked child."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.conftest import LIMIT
from tests.kernel.conftest import PROGRAMS
from tests.machine import CARDS, Driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kernel.conftest import Kernel

CUINIT = 'import ctypes; ctypes.CDLL("libcuda.so.1").cuInit(0)'
MASK = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"


def test_a_different_choice_after_cuinit_changes_nothing_and_says_why(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0")
    kernel.run("import torch")
    kernel.run(CUINIT)  # cell 4
    reply = kernel.run("%gpus 1")
    assert reply.status == "ok"
    said = reply.text
    assert said.startswith("CudaInitializedWarning: CUDA was initialized in cell [4]")
    assert "keeps GPU 2 (cuda:0), GPU 0 (cuda:1). Nothing was changed." in said
    assert "To have exactly GPU 1: %gpus 1 --restart, or restart the kernel and run %gpus 1 before" in said
    assert "Too late" in reply.html
    assert kernel.run(MASK).stdout == "2,0\n"


def test_a_cell_that_starts_cuda_awaits_and_is_interrupted_is_named(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0")
    cell = f"{CUINIT}\nimport asyncio\ndisplay('now')\nawait asyncio.sleep(2)"  # cell 3
    reply = kernel.run_and_interrupt(cell, lambda: "now" in kernel.heard)
    assert "Error in callback" not in reply.stdout + reply.stderr
    assert "CUDA was initialized in cell [3]" in kernel.run("%gpus 1").text


def test_the_same_choice_again_is_fine(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0")
    kernel.run(CUINIT)
    for same in ("%gpus 2,0", "%gpus GPU-2a,GPU-0a", "%gpus 2,0 --strict"):
        reply = kernel.run(same)
        assert (reply.status, reply.text, reply.stderr) == ("ok", "", "")
        assert reply.stdout.startswith("cuda:0 = GPU 2")
    assert "Warning" in kernel.run("%gpus 0,2").text
    assert kernel.run(MASK).stdout == "2,0\n"


def test_auto_again_in_a_frozen_kernel_keeps_what_it_has(kernel: Kernel) -> None:
    kernel.run("%gpus auto")
    kernel.run(CUINIT)
    kernel.change_machine(Driver((replace(CARDS[0], used=60 << 30), *CARDS[1:])))
    assert kernel.run("%gpus auto").stdout.startswith("cuda:0 = GPU 0")
    assert "Warning" in kernel.run("%gpus auto:2").text


def test_a_gpu_inside_the_frozen_set_gets_the_line_to_type(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0")
    kernel.run("import torch, jax")
    kernel.run(CUINIT)
    said = kernel.run("%gpus 0").text
    assert "GPU 0 is already visible here, as cuda:1." in said
    assert "PyTorch: torch.cuda.set_device(1)" in said
    assert 'JAX: jax.config.update("jax_default_device", jax.devices("gpu")[1])' in said
    assert "TensorFlow" not in said
    assert "any framework: %%on_gpu 1 for one cell, %gpus 0 --in-process from here on\n" in said
    assert "a script on GPU 0: %gpu_launch --gpus 0 python train.py\n" in said


def test_there_is_always_a_way_on_without_a_restart(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0")
    kernel.run(CUINIT)
    assert "\n  any framework: %%on_gpu 1 for one cell\n" in kernel.run("%gpus 0").text  # none is imported
    hidden = "A script can have GPU 1 without a restart: %gpu_launch --gpus 1 python train.py\n"
    assert hidden in kernel.run("%gpus 1").text
    assert kernel.run("%gpu_launch --gpus 1 printenv CUDA_VISIBLE_DEVICES").stdout.splitlines()[-1] == "1"


@pytest.mark.parametrize(
    ("cell", "by"),
    [
        ("import json\nimport starter_pkg", "by import starter_pkg."),
        ("import starter_pkg\nimport xdrlib", "by import starter_pkg."),
        ("import starter_pkg\nx = 1", "by import starter_pkg."),
        ("from starter_pkg import wave", "by import starter_pkg."),
        ("import late_pkg", "by import late_pkg."),
        ("import late_pkg\nx = 1", "by import late_pkg, or a line after it."),
        ("import late_pkg\nimport xdrlib", "by import late_pkg, or a line after it."),
        # An import that had ended long before is not to blame for what a line after it did.
        (f"import wave\n{CUINIT}\nimport lazy_pkg; lazy_pkg.helper()", "by import wave, or a line after it."),
        (f"import lazy_pkg\n{CUINIT}\nlazy_pkg.helper()", "by import lazy_pkg, or a line after it."),
        (f"import wave\n{CUINIT}\nimport wave", "by import wave, or a line after it."),
        (f"try:\n    import not_there\nexcept ImportError:\n    pass\n{CUINIT}", "in cell [3]."),
        ("import importlib; importlib.import_module('starter_pkg')\nx = 1", "by import starter_pkg."),
        # Nor is one that a magic stands behind, or that had not yet run any code.
        (f"import tabnanny\n%run {PROGRAMS}/kernel_start_cuda.py", "by import tabnanny, or a line after it."),
        (
            f"import late_parent\n{CUINIT}\nimport late_parent.part",
            "by import late_parent, or a line after it.",
        ),
        # Frameworks that run on the CPU have not started CUDA.
        (f"import jax.numpy as jnp; x = jnp.ones(3) + 1\n{CUINIT}", "by import jax, or a line after it."),
        (CUINIT, "in cell [3]."),
    ],
)
def test_it_names_the_import_as_far_as_it_can_be_told(kernel: Kernel, cell: str, by: str) -> None:
    kernel.run("%gpus 3")
    kernel.run(cell)
    said = kernel.run("import gpu_magic; print(gpu_magic.guard())").stdout.strip().replace(";", ".")
    assert "initialized in cell [3]" in said
    assert by.rstrip(".") + "." in said + "."


def test_a_framework_is_named_that_imports_more_before_it_says_that_it_has_started(kernel: Kernel) -> None:
    """PyTorch 2.11 looks for Triton after cuInit, and sets its flag after that."""
    kernel.run("%gpus 3")
    kernel.run("import torch, lazy_pkg")
    kernel.run(f"{CUINIT}; lazy_pkg.helper(); torch.cuda.is_initialized = lambda: True")
    assert (
        "initialized in cell [4] by PyTorch;"
        in kernel.run("import gpu_magic; print(gpu_magic.guard())").stdout
    )


def test_cuda_started_before_the_extension_was_loaded(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel()
    kernel.run(CUINIT)
    kernel.run("%load_ext gpu_magic")
    assert "initialized before gpu_magic was loaded" in kernel.run("%gpus").text
    assert "GPU 0 (cuda:0), GPU 1 (cuda:1)" in kernel.run("%gpus 1").text


def test_in_the_same_cell(kernel: Kernel) -> None:
    said = kernel.run(f"%gpus 3\n{CUINIT}\n%gpus 1")
    assert "initialized in cell [2]" in said.text


@pytest.mark.parametrize("how", ["--strict", "on_frozen"])
def test_an_error_stops_run_all(kernel: Kernel, how: str) -> None:
    if how == "on_frozen":
        kernel.run("%config GpuMagics.on_frozen = 'error'")
    kernel.run(CUINIT)
    first = kernel.client.execute("%gpus 1 --strict" if how == "--strict" else "%gpus 1")
    second = kernel.client.execute("print('never')")
    replies = {}
    while len(replies) < 2:
        reply = kernel.client.get_shell_msg(timeout=LIMIT)
        replies[reply["parent_header"]["msg_id"]] = reply["content"]["status"]
    assert replies == {first: "error", second: "aborted"}


def test_on_frozen_comes_from_the_configuration_file(
    start_kernel: Callable[..., Kernel], tmp_path: object
) -> None:
    profile = tmp_path / "ipython" / "profile_default"  # type: ignore[operator]
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text("c.GpuMagics.on_frozen = 'error'\n")
    kernel = start_kernel()
    kernel.run("%load_ext gpu_magic")
    kernel.run(CUINIT)
    assert kernel.run("%gpus 1").status == "error"


@pytest.mark.parametrize("action", ["ignore", "error"])
def test_what_is_typed_is_answered_whatever_the_warning_filters_say(kernel: Kernel, action: str) -> None:
    kernel.run(CUINIT)
    kernel.run(f"import warnings; warnings.filterwarnings({action!r})")
    reply = kernel.run("%gpus 1")
    assert (reply.status, reply.text[:24]) == ("ok", "CudaInitializedWarning: ")


def test_warning_filters_are_for_the_function(kernel: Kernel) -> None:
    kernel.run(CUINIT)
    kernel.run("import warnings, gpu_magic; warnings.filterwarnings('ignore')")
    assert kernel.run("gpu_magic.choose(1);").stderr == ""


def test_from_python_it_is_a_warning_or_an_error(kernel: Kernel) -> None:
    kernel.run(CUINIT)
    kernel.run("import gpu_magic, warnings; warnings.simplefilter('always')")
    reply = kernel.run("choice = gpu_magic.choose(1); print(choice.is_applied)")
    assert "CudaInitializedWarning: CUDA was initialized in cell [2]" in reply.stderr
    assert reply.stdout == "False\n"
    reply = kernel.run("gpu_magic.choose('1', strict=True)")
    assert reply.status == "error"
    assert "CUDA was initialized in cell [2]" in reply.errors[0]


def test_a_mask_changed_too_late_is_said(kernel: Kernel) -> None:
    kernel.run("%gpus 2")
    kernel.run(CUINIT)
    kernel.run("%env CUDA_VISIBLE_DEVICES=0")
    shown = kernel.run("%gpus").text
    assert "now means other GPUs than CUDA has read: this process stays with GPU 2 (cuda:0)" in shown


def test_a_forked_child_is_told(kernel: Kernel) -> None:
    kernel.run(CUINIT)
    reply = kernel.run(
        "import os, gpu_magic\n"
        "if (pid := os.fork()) == 0:\n"
        "    out = os.open('child.txt', os.O_CREAT | os.O_WRONLY)\n"
        "    os.write(out, f'{gpu_magic.guard().state.value}|{gpu_magic.choose(\"1\").refusal}'.encode())\n"
        "    try:\n"
        "        gpu_magic.choose('1', in_process=True)\n"
        "    except gpu_magic.ChoiceError as error:\n"
        "        os.write(out, f'|{error}'.encode())\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "print(open('child.txt').read())"
    )
    assert reply.stdout.startswith("forked|CUDA was started before this process was forked off")
    _, choice, in_process = reply.stdout.split("|")
    assert "spawn" in choice
    cannot = "CUDA was started before this process was forked off, so it can't be used here at all"
    assert in_process == f"{cannot}: start this process with spawn.\n"


def test_the_watch_ends_when_frozen_and_is_not_left_behind(kernel: Kernel) -> None:
    watching = (
        "import sys; ip = get_ipython(); print(len(ip.events.callbacks['post_run_cell']), "
        "sum('gpu_magic' in type(f).__module__ for f in sys.meta_path))"
    )
    with_watch = kernel.run(watching).stdout.split()
    assert with_watch[1] == "1"
    kernel.run(CUINIT)
    frozen = kernel.run(watching).stdout.split()
    assert [int(frozen[0]) + 1, int(frozen[1]) + 1] == [int(number) for number in with_watch]


def test_a_restart_makes_it_live_again(kernel: Kernel) -> None:
    kernel.run(CUINIT)
    kernel.restart()
    kernel.run("%load_ext gpu_magic")
    assert kernel.run("%gpus 1").stdout.startswith("cuda:0 = GPU 1")


def test_reload_in_a_frozen_kernel_keeps_what_is_known(kernel: Kernel) -> None:
    kernel.run("%gpus 2")
    kernel.run(CUINIT)
    assert kernel.run("%reload_ext gpu_magic").stdout == ""
    assert "initialized in cell [3]" in kernel.run("%gpus 1").text
    assert kernel.run(MASK).stdout == "2\n"


def test_nobody_is_blamed_for_what_happened_while_nobody_watched(kernel: Kernel) -> None:
    kernel.run("%unload_ext gpu_magic")
    kernel.run(CUINIT)
    kernel.run("x = 1")
    said = kernel.run("import gpu_magic; print(gpu_magic.guard())").stdout
    assert said.startswith("CUDA initialized; this process keeps GPU 0 (cuda:0)")


def test_auto_again_after_a_reload_keeps_what_it_has(kernel: Kernel) -> None:
    kernel.run("%gpus auto")
    kernel.run(CUINIT)
    kernel.change_machine(Driver((replace(CARDS[0], used=60 << 30), *CARDS[1:])))
    kernel.run("%reload_ext gpu_magic")
    assert kernel.run("%gpus auto").stdout.startswith("cuda:0 = GPU 0")


def test_a_frozen_answer_tells_the_variables_as_they_are(kernel: Kernel) -> None:
    kernel.run("%gpus all")
    kernel.run(CUINIT)
    assert "As this process was started" not in kernel.run("%gpus reset").stdout
    reply = kernel.run(
        "import gpu_magic; c = gpu_magic.choose('0-3', by='uuid'); print(c.mask, c.is_applied)"
    )
    assert reply.stdout == "0,1,2,3 True\n"


def test_the_advice_is_what_was_typed(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="0")
    kernel.run("%load_ext gpu_magic")
    kernel.run(CUINIT)
    said = kernel.run("%gpus 1 --force").text
    assert "run %gpus 1 --force before" in said
    assert "A script can have GPU 1 without a restart: %gpu_launch --gpus 1 --force python train.py\n" in said


def test_nothing_is_claimed_of_a_mask_where_nvml_does_not_answer(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(Driver(CARDS, refuse=18), CUDA_VISIBLE_DEVICES="1")
    kernel.run("%load_ext gpu_magic")
    kernel.run(CUINIT)
    shown = kernel.run("%gpus").text
    assert "is not a GPU of this machine" not in shown
    assert "now means other GPUs" not in shown


def test_a_refusal_in_a_loop_is_said_each_time(kernel: Kernel) -> None:
    kernel.run(CUINIT)
    reply = kernel.run("import gpu_magic\nfor _ in range(3):\n    gpu_magic.choose(1)")
    assert reply.stderr.count("CudaInitializedWarning") >= 3


def test_the_import_that_finds_cuda_started_goes_on_to_the_next_finder(kernel: Kernel) -> None:
    """A finder that takes itself away in the middle of an import hides the one behind it from Python."""
    kernel.run("import sys\nfinders = [f for f in sys.meta_path if 'gpu_magic' in type(f).__module__]")
    kernel.run(
        "class Asked:\n    names = []\n"
        "    def find_spec(self, name, path=None, target=None): self.names.append(name)\n"
        "sys.meta_path.insert(1, Asked())"
    )
    assert kernel.run(f"{CUINIT}\nimport sndhdr\nprint('sndhdr' in Asked.names)").stdout == "True\n"


def test_reset_of_what_was_never_changed_is_fine(start_kernel: Callable[..., Kernel]) -> None:
    unlike = (CARDS[0], replace(CARDS[1], name="Tesla T4", total=16 << 30), *CARDS[2:])
    kernel = start_kernel(Driver(unlike))
    kernel.run("%load_ext gpu_magic")
    kernel.run(CUINIT)
    assert kernel.run("%gpus reset").text == ""


def test_the_guard_asks_no_gpu_where_it_needs_none(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(GPU_MAGIC_SIMULATE="bogus")
    assert kernel.run("import gpu_magic; print(gpu_magic.guard().state.value)").stdout == "absent\n"


def test_the_advice_names_the_gpu_that_was_asked_for_first(kernel: Kernel) -> None:
    kernel.run("%gpus 1,3")
    kernel.run(CUINIT)
    kernel.run("import torch")
    said = kernel.run("%gpus 3,1").text
    assert "GPU 3 and GPU 1 are already visible here, as cuda:1 and cuda:0. To work on GPU 3 without" in said
    assert "PyTorch: torch.cuda.set_device(1)" in said
    assert "To have exactly GPU 3 and GPU 1: %gpus 3,1 --restart" in said


def test_a_variable_that_was_changed_after_cuda_had_read_it_is_put_back(kernel: Kernel) -> None:
    kernel.run("%gpus 1,3")
    kernel.run(CUINIT)
    kernel.run("import os; os.environ['CUDA_VISIBLE_DEVICES'] = '0'")
    said = kernel.run("%gpus 1,3").stdout
    assert said.startswith("cuda:0 = GPU 1")
    assert "CUDA_VISIBLE_DEVICES was '0'; it is '1,3' again, as CUDA has it." in said
    assert kernel.run(MASK).stdout == "1,3\n"


def test_a_dry_run_puts_nothing_back(kernel: Kernel) -> None:
    kernel.run("%gpus 1,3")
    kernel.run(CUINIT)
    kernel.run("import os; os.environ['CUDA_VISIBLE_DEVICES'] = '0'")
    said = kernel.run("%gpus 1,3 --dry-run").stdout
    assert "CUDA_VISIBLE_DEVICES is '0'; it would be '1,3' again, as CUDA has it." in said
    assert kernel.run(MASK).stdout == "0\n"


def test_a_driver_that_was_started_while_all_gpus_were_hidden_keeps_none(kernel: Kernel) -> None:
    kernel.run("%gpus none")
    kernel.run(CUINIT)
    assert "this process keeps no GPU" in kernel.run("%gpus 0").text


@pytest.mark.parametrize(("line", "sees"), [("auto", "cuda:0 = GPU 1"), ("all", "cuda:1 = GPU 3")])
def test_in_process_decides_among_what_the_process_has(kernel: Kernel, line: str, sees: str) -> None:
    kernel.run("%gpus 1,3")
    kernel.run(CUINIT)
    assert sees in kernel.run(f"%gpus {line} --in-process").stdout


def test_none_in_process_says_what_runs_on_the_cpu(kernel: Kernel) -> None:
    kernel.run(CUINIT)
    reply = kernel.run("%gpus none --in-process")
    assert "%%on_gpu cpu runs a cell on the CPU" in reply.stderr


def test_where_cuda_has_started_without_nvml_the_table_names_the_variable_that_mends_it(
    start_kernel: Callable[..., Kernel], native: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "compute_only"
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(native / "libcuda.so.1")
    kernel = start_kernel(LD_LIBRARY_PATH=str(folder))
    kernel.run("%load_ext gpu_magic")
    kernel.run("import ctypes; _ = ctypes.CDLL('libcuda.so.1').cuInit(0)")
    shown = kernel.run("%gpus").text
    assert "initialized in cell [2]" in shown
    assert "No NVIDIA driver" not in shown
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in shown


def test_in_process_without_a_framework_changes_nothing_and_says_so(kernel: Kernel) -> None:
    kernel.run(CUINIT)
    said = "Nothing was changed: no framework is imported; import it first, and run this again.\n"
    assert kernel.run("%gpus 0 --in-process").stdout.endswith(f")\n{said}")


def test_a_choice_that_differs_in_its_order_alone_is_told_so(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0")
    kernel.run(CUINIT)
    said = "The order alone differs: GPU 0 and GPU 2 are already visible here, as cuda:1 and cuda:0."
    assert said in kernel.run("%gpus 0,2").text
    assert "The order" not in kernel.run("%gpus 0").text
