"""AMD's GPUs in a real kernel: show, choose, the panel, and the guard, above the real amdsmi."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT
from tests.kernel.test_panel import Page
from tests.machine import AMD_CARDS, CARDS, GIB, Driver, amd_environment, environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kernel.conftest import Kernel

    StartAmd = Callable[..., Kernel]

START_HIP = "import ctypes; _ = ctypes.CDLL('libhsa-runtime64.so.1').hsa_init()"
TORCH_COUNTS = "from tests.programs import amd_torch; print(amd_torch.count(), end='')"
VARIABLES = (
    "import os; print(*(f'{name}={os.environ.get(name)}' for name in "
    "('CUDA_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES', 'ROCR_VISIBLE_DEVICES')), end='')"
)
SAVE = (
    "from gpu_magic.gpus.apply import apply\nfrom gpu_magic.process.session import current\n"
    "from gpu_magic.restart.saved import save\n"
    "late = apply(current(), '3,1').too_late; save(late.request, late.devices, late.options.to_save)"
)
UNSET = "CUDA_VISIBLE_DEVICES=None HIP_VISIBLE_DEVICES=None ROCR_VISIBLE_DEVICES=None"


@pytest.fixture
def start_amd(
    start_kernel: Callable[..., Kernel], native: Path, native_amd: Path, tmp_path: Path
) -> StartAmd:
    """Return a way to start a kernel on a machine with AMD's GPUs, and with `mixed` two of NVIDIA's as well."""

    def start(
        amd: Driver | None = None, *, mixed: bool = False, imported: tuple[str, ...] = (), **variables: str
    ) -> Kernel:
        (amd or Driver(AMD_CARDS, version="6.12.12")).write(tmp_path / "amd")
        nvidia = environment(native, tmp_path / "machine") if mixed else {}
        found = {"PYTHONPATH": str(ROOT)} | amd_environment(native_amd, tmp_path / "amd", nvidia) | variables
        return start_kernel(Driver(CARDS[:2]), imported, **found).load()

    return start


def test_the_table_says_rocm_and_has_rocm_smis_numbers(start_amd: StartAmd) -> None:
    used = replace(AMD_CARDS[1], used=60 * GIB, util=97, processes=((os.getpid(), 59 * GIB),))
    kernel = start_amd(Driver((AMD_CARDS[0], used), version="6.12.12"), HIP_VISIBLE_DEVICES="0")
    shown = kernel.run("%gpus")
    for words in (
        "driver 6.12.12",
        "Started with",
        "HIP_VISIBLE_DEVICES=0",
        "ROCm",
        "not started",
        "59.0 GiB",
    ):
        assert words in shown.text
        assert words in shown.html
    assert "CUDA" not in shown.text
    rows = {line.split()[0]: line for line in shown.text.splitlines() if "MI300X" in line}
    assert "not given" in rows["0"]
    assert "cuda:0" in rows["1"]  # HIP's 0


def test_a_choice_is_what_pytorch_counts(start_amd: StartAmd) -> None:
    kernel = start_amd(imported=("torch",))
    for typed, hip, labels in (
        ("%gpus 1", "0", ["GPU 1"]),
        ("%gpus 3,0", "3,1", ["GPU 3", "GPU 0"]),
        ("import gpu_magic; gpu_magic.choose(gpu_magic.gpus()[1])", "0", ["GPU 1"]),
        ("%config GpuMagics.by = 'uuid'\n%gpus GPU-2c0f", AMD_CARDS[2].uuid, ["GPU 2"]),
    ):
        reply = kernel.run(typed)
        for place, label in enumerate(labels):
            assert f"cuda:{place} = {label} (AMD Instinct MI300X, 192 GiB free)" in reply.stdout + reply.text
        variables = UNSET.replace("HIP_VISIBLE_DEVICES=None", f"HIP_VISIBLE_DEVICES={hip}")
        assert kernel.run(VARIABLES).stdout == variables
        assert kernel.run(TORCH_COUNTS).stdout == str(len(labels))
    assert "No GPU is visible to ROCm. Frameworks run on the CPU." in kernel.run("%gpus none").said
    assert kernel.run(TORCH_COUNTS).stdout == "0"


def test_reset_and_unload_put_back_what_was_there(start_amd: StartAmd) -> None:
    kernel = start_amd(ROCR_VISIBLE_DEVICES="0,1,2")
    kernel.run("%gpus 1")
    assert "HIP_VISIBLE_DEVICES=0 ROCR_VISIBLE_DEVICES=0,1,2" in kernel.run(VARIABLES).stdout
    assert "GPU 3 was not given to this process" in kernel.run("%gpus 3").refusal
    kernel.run("%gpus 3 --force")
    assert "HIP_VISIBLE_DEVICES=3 ROCR_VISIBLE_DEVICES=None" in kernel.run(VARIABLES).stdout
    kernel.run("%gpus reset")
    given = UNSET.replace("ROCR_VISIBLE_DEVICES=None", "ROCR_VISIBLE_DEVICES=0,1,2")
    assert kernel.run(VARIABLES).stdout == given
    kernel.run("%gpus 3 --force")
    assert "HIP_VISIBLE_DEVICES is unset again" in kernel.run("%unload_ext gpu_magic").said
    assert kernel.run(VARIABLES).stdout == given


def test_it_is_too_late_once_hip_was_started(start_amd: StartAmd) -> None:
    kernel = start_amd()
    kernel.run("%gpus 1,2")
    assert "ROCm not started" in kernel.run("import gpu_magic; gpu_magic.guard()").text
    kernel.run(START_HIP)
    said = kernel.run("%gpus 3").text
    assert "Too late: cell [4] started ROCm. This kernel keeps GPU 1 (cuda:0), GPU 2 (cuda:1)" in said
    assert "To use GPU 3: %gpus 3 --restart" in said
    assert "CUDA was" not in said
    assert "HIP_VISIBLE_DEVICES=0,2" in kernel.run(VARIABLES).stdout
    assert "cuda:0 = GPU 1" in kernel.run("%gpus 1,2").said  # it has these
    assert "Your choice" not in kernel.run("%unload_ext gpu_magic").said
    assert "HIP_VISIBLE_DEVICES=0,2" in kernel.run(VARIABLES).stdout


def test_what_comes_after_hip_has_started(start_amd: StartAmd) -> None:
    kernel = start_amd()
    kernel.run("%gpus 1")
    fork = "import os, gpu_magic\nif os.fork() == 0:\n    print(gpu_magic.guard(), flush=True)\n    os._exit(0)\n_ = os.wait()"
    assert "ROCm started before this process was forked" in kernel.run(f"{START_HIP}\n{fork}").stdout
    kernel.run("os.environ['HIP_VISIBLE_DEVICES'] = '3'")
    shown = kernel.run("%gpus").text
    assert "was changed after ROCm started. This kernel keeps GPU 1" in shown
    assert "HIP_VISIBLE_DEVICES was '3'. It is '0' again, as when ROCm started." in kernel.run("%gpus 1").said
    kernel.run(SAVE)
    kernel.restart()
    said = kernel.run("%load_ext gpu_magic").said
    assert said.startswith("Applied the choice from before the restart:\ncuda:0 = GPU 3 (")
    assert "HIP_VISIBLE_DEVICES=3,0" in kernel.run(VARIABLES).stdout


def test_nvidias_gpus_of_a_machine_with_both(start_amd: StartAmd) -> None:
    """HIP sees no GPU meanwhile: it reads CUDA_VISIBLE_DEVICES, too."""
    kernel = start_amd(mixed=True)
    page = Page(kernel)
    page.look()
    state = page.state()
    assert [row["key"] for row in state["rows"]] == ["0", "1"]
    note = "This machine also has 4 AMD GPUs (AMD Instinct MI300X). To use them, set GPU_MAGIC_VENDOR=amd"
    for shown in (state["header"]["notes"][0], kernel.run("%gpus").text, kernel.run("%gpu_doctor").text):
        assert shown.count(note) == 1
    assert "GPU_MAGIC_VENDOR=amd" in kernel.run("%gpus amd:1").refusal
    assert kernel.run(VARIABLES).stdout == UNSET
    assert "cuda:0 = GPU 1 (NVIDIA A100-SXM4-80GB" in kernel.run("%gpus 1").said
    assert "CUDA_VISIBLE_DEVICES=1 HIP_VISIBLE_DEVICES=-1" in kernel.run(VARIABLES).stdout
    kernel.run("%gpus reset")
    assert kernel.run(VARIABLES).stdout == UNSET
    kernel.run(START_HIP)  # by a framework for ROCm
    said = kernel.run("%gpus 1").text
    assert "started ROCm. This kernel keeps its GPUs, which are unknown." in said
    assert "To use GPU 1: %gpus 1 --restart" in said


def test_amds_gpus_of_a_machine_with_both(start_amd: StartAmd) -> None:
    kernel = start_amd(mixed=True, GPU_MAGIC_VENDOR="amd")
    assert "cuda:0 = GPU 3 (AMD Instinct MI300X" in kernel.run("%gpus 3,1").said
    assert "CUDA_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES=3,0" in kernel.run(VARIABLES).stdout
    assert "This machine also has 2 NVIDIA GPUs" in kernel.run("%gpus").text
    assert "No GPU is visible to ROCm" in kernel.run("%gpus none").said
    assert "CUDA_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES=-1" in kernel.run(VARIABLES).stdout
    kernel.run("%gpus reset")
    assert kernel.run(VARIABLES).stdout == UNSET
    page = Page(kernel)
    page.look()
    page.choose("3,1")
    assert page.hear_said()["text"].startswith("cuda:0 = GPU 3 (AMD")
    child = "import gpu_magic\ntask = gpu_magic.launch('gpu-magic --json')\ntask.wait()\nprint(task.output)"
    assert kernel.run(child).stdout.count('"vendor": "amd"') == 4


def test_a_command_gets_the_gpu_that_is_named(start_amd: StartAmd) -> None:
    kernel = start_amd()
    reply = kernel.run(
        "%gpu_launch --gpus 3,1 --each python -c \"import os; print('sees', os.environ['HIP_VISIBLE_DEVICES'])\""
    )
    said = reply.stdout + reply.text + reply.updated
    assert "sees 3" in said
    assert "sees 0" in said


@pytest.mark.nightly  # as NVIDIA's, in test_cluster.py; tests/cluster/test_hosts_amd.py divides them
def test_engines_have_amds_gpus_in_the_chosen_order(start_amd: StartAmd) -> None:
    kernel = start_amd(mixed=True, GPU_MAGIC_VENDOR="amd")
    kernel.run("%gpus 3,1")
    kind = "(AMD Instinct MI300X)"
    started = kernel.run("%gpu_cluster").said
    assert started == f"2 engines: 0 = GPU 3 {kind}, 1 = GPU 1 {kind}\n"
    reply = kernel.run(f"%%px\n{VARIABLES.replace(', end=', ', flush=True, end=')}")
    for number, gpu, hip in ((0, 3, 3), (1, 1, 0)):
        shown = f"[stdout:{number} = GPU {gpu} {kind}] CUDA_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES={hip} "
        assert shown in reply.shown
    kernel.run("import gpu_magic, os")
    cell = "*gpu_magic.map(lambda _: os.environ['GPU_MAGIC_INDEX'], [0], gpus={!r})"
    assert kernel.run(f"print({cell.format('1')})").stdout == "1\n"
    assert kernel.run(f"print({cell.format('2')})").errors == [
        "No engine has GPU 2. They have GPU 3 and GPU 1."
    ]
