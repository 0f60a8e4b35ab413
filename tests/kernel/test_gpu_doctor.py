"""`%gpu_doctor` in a real kernel: why torch.cuda.is_available() is False, and that what it says mends it."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from tests.kernel.test_panel import Page
from tests.machine import CARDS, GIB, MIG, Driver
from tests.processes import sees_processes, using

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

CUINIT = 'import ctypes; ctypes.CDLL("libcuda.so.1").cuInit(0)'
MASK = "CUDA_VISIBLE_DEVICES"
# PyTorch's own answer, by the driver's library: what it would see once CUDA is started.
SEEN = (
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0); n = ctypes.c_int(); "
    "cuda.cuDeviceGetCount(ctypes.byref(n)); print(n.value)"
)


def findings(kernel: Kernel, about: str) -> list[dict[str, Any]]:
    """Return what is found about something."""
    found = json.loads(kernel.run("%gpu_doctor --json").stdout)["findings"]
    return [one for one in found if one["about"] == about]


def mend(kernel: Kernel, about: str) -> str:
    """Do what the only finding about something says, and check that it is gone; return what was done."""
    (found,) = findings(kernel, about)
    assert found["severity"] == "wrong"
    assert kernel.run(found["mend"]).status == "ok"
    assert findings(kernel, about) == []
    return str(found["mend"])


# Builds


def test_a_cpu_only_build_is_the_first_thing_that_is_said(kernel: Kernel) -> None:
    """The real PyTorch of the tests, which is one."""
    torch = version("torch")
    reply = kernel.run("%gpu_doctor")
    lines = reply.text.splitlines()
    assert lines[2].startswith(f"Wrong: PyTorch {torch} is a CPU-only build.")
    assert lines[3].endswith("Install this build, and restart the kernel:")
    assert lines[4].strip().startswith(f"%pip install torch=={torch.partition('+')[0]}+cu")
    assert "<pre" in reply.html


def test_looking_changes_nothing(kernel: Kernel) -> None:
    look = "import sys, os; before = set(sys.modules), dict(os.environ)"
    kernel.run(look)
    kernel.run("%gpu_doctor")
    said = kernel.run(
        "print([m for m in ('torch', 'tensorflow', 'jax', 'keras', 'cupy') if m in sys.modules], "
        "dict(os.environ) == before[1])\n"
        "import gpu_magic; print(gpu_magic.guard().state)"
    ).stdout
    assert said == "[] True\nState.ABSENT\n"


# CUDA_VISIBLE_DEVICES


def test_quotes_are_taken_away(kernel: Kernel) -> None:
    kernel.run(f'%env {MASK}="2,0"')
    assert mend(kernel, MASK) == "%gpus 2,0"
    assert kernel.run(SEEN).stdout == "2\n"


def test_a_cell_that_has_hidden_all_gpus(kernel: Kernel) -> None:
    kernel.run(f"import os; os.environ['{MASK}'] = ''")
    assert mend(kernel, MASK) == "%gpus reset"
    assert kernel.run(SEEN).stdout == "4\n"


@pytest.mark.parametrize("value", ["", "-1"])
def test_a_kernel_that_was_started_with_none(start_kernel: Callable[..., Kernel], value: str) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES=value)
    kernel.run("%load_ext gpu_magic")
    assert mend(kernel, MASK) == "%gpus all --force"
    assert kernel.run(SEEN).stdout == "4\n"


def test_quotes_that_a_kernel_was_started_with(start_kernel: Callable[..., Kernel]) -> None:
    """As `export CUDA_VISIBLE_DEVICES=\\"2,0\\"` and env files of containers leave them."""
    kernel = start_kernel(CUDA_VISIBLE_DEVICES='"2,0"')
    kernel.run("%load_ext gpu_magic")
    (found,) = findings(kernel, MASK)
    assert (found["severity"], found["mend"]) == ("wrong", "%gpus 2,0 --force")
    assert kernel.run(found["mend"]).status == "ok"
    assert kernel.run(SEEN).stdout == "2\n"


def test_where_force_is_forbidden_it_is_not_recommended(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="", GPU_MAGIC_ALLOW_FORCE="0")
    kernel.run("%load_ext gpu_magic")
    (found,) = findings(kernel, MASK)
    assert (found["severity"], found["mend"]) == ("wrong", "")
    assert "an administrator has forbidden" in found["meaning"]


def test_a_job_that_has_asked_for_none(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="", SLURM_JOB_ID="4711")
    kernel.run("%load_ext gpu_magic")
    (found,) = findings(kernel, MASK)
    assert found["meaning"] == "Slurm job 4711 was given none. A job asks for one by:"
    assert found["mend"] == "#SBATCH --gres=gpu:1"


def test_none_that_was_chosen_is_no_fault(kernel: Kernel) -> None:
    kernel.run("%gpus none")
    (found,) = findings(kernel, MASK)
    assert found["severity"] == "worth knowing"
    kernel.run(found["mend"])
    assert findings(kernel, MASK) == []


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("0,0", "%gpus 0"),
        ("0,9", "%gpus 0"),
        ("1;2", "%gpus 1,2"),
        ("gpu-2a", "%gpus auto"),
        ("9", "%gpus auto"),
    ],
)
def test_a_mask_that_is_misspelled(kernel: Kernel, value: str, line: str) -> None:
    kernel.run(f"import os; os.environ['{MASK}'] = {value!r}")
    assert mend(kernel, MASK) == line


def test_numbers_whose_order_is_not_known_are_worth_knowing(start_kernel: Callable[..., Kernel]) -> None:
    unlike = (replace(CARDS[0], name="NVIDIA T4", total=16 * GIB), *CARDS[1:])
    kernel = start_kernel(Driver(unlike))
    kernel.run("%load_ext gpu_magic")
    kernel.run(f"import os; os.environ['{MASK}'] = '1,2'")
    (found,) = findings(kernel, MASK)
    assert (found["severity"], found["mend"]) == ("worth knowing", "%gpus 1,2")
    kernel.run(found["mend"])
    assert findings(kernel, MASK) == []


# CUDA


def test_cuda_that_was_started_before_the_choice(kernel: Kernel) -> None:
    kernel.run(f"import os; os.environ['{MASK}'] = '1'")
    kernel.run(CUINIT)
    kernel.run(f"import os; os.environ['{MASK}'] = '2,3'")
    (found,) = findings(kernel, MASK)
    assert found["severity"] == "wrong"
    assert "now means other GPUs than CUDA has read: this process stays with GPU 1" in found["what"]
    assert found["mend"] == "%gpus 2,3 --restart"
    assert "CUDA                  initialized in cell [3]" in kernel.run("%gpu_doctor").text


def test_cuda_that_was_started_while_all_were_hidden(kernel: Kernel) -> None:
    kernel.run(f"import os; os.environ['{MASK}'] = ''")
    kernel.run(CUINIT)
    kernel.run(f"import os; os.environ['{MASK}'] = '2,3'")
    (found,) = findings(kernel, "CUDA")
    assert found["what"] == "CUDA was initialized in cell [3] while no GPU was visible to it, and keeps that."
    assert found["mend"] == "%gpus 2,3 --restart"
    assert findings(kernel, MASK) == []


def test_a_choice_that_cuda_has_read_is_fine(kernel: Kernel) -> None:
    kernel.run("%gpus 2,0")
    kernel.run(CUINIT)
    assert findings(kernel, MASK) == findings(kernel, "CUDA") == []


def test_a_forked_child(kernel: Kernel) -> None:
    kernel.run(CUINIT)
    said = kernel.run(
        "import os, gpu_magic\n"
        "if (pid := os.fork()) == 0:\n"
        "    out = os.open('child.txt', os.O_CREAT | os.O_WRONLY)\n"
        "    os.write(out, repr(gpu_magic.doctor()).encode())\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "print(open('child.txt').read())"
    ).stdout
    assert (
        "Wrong: CUDA was started before this process was forked off, so it can't be used here at all." in said
    )
    assert '      multiprocessing.set_start_method("spawn", force=True)\n' in said


@pytest.mark.parametrize(
    ("error", "line"), [(803, "sudo reboot"), (802, "sudo systemctl restart nvidia-fabricmanager"), (46, "")]
)
def test_a_driver_that_cuda_can_t_use(start_kernel: Callable[..., Kernel], error: int, line: str) -> None:
    kernel = start_kernel(PRETEND_CUDA_ERROR=str(error))
    kernel.run("%load_ext gpu_magic")
    kernel.run(CUINIT)
    (found,) = findings(kernel, "CUDA")
    assert f"(CUDA error {error})." in found["what"]
    assert found["mend"] == line


# GPUs


def test_a_lost_gpu_is_left_out_by_what_is_said(kernel: Kernel) -> None:
    kernel.change_machine(Driver(CARDS).losing(1))
    (found,) = findings(kernel, "GPUs")
    assert found["what"] == "GPU 1 is not answering: the driver says this GPU is lost."
    assert found["mend"] == "%gpus 0,2,3"
    assert kernel.run(found["mend"]).status == "ok"
    seen = kernel.run(f"import os; print(os.environ['{MASK}'])").stdout.strip()
    assert seen == ",".join(
        CARDS[number].uuid for number in (0, 2, 3)
    )  # numbers mean others while one is lost


def test_a_driver_that_was_updated_is_said(kernel: Kernel) -> None:
    kernel.change_machine(Driver(CARDS, refuse=18))
    (found,) = findings(kernel, "driver")
    assert found["severity"] == "wrong"
    # In a container it is its host that can do something.
    assert found["mend"] in ("sudo reboot", "docker restart …", "podman restart …", "kubectl delete pod …")


def test_a_gpu_that_hangs_does_not_keep_it_waiting(kernel: Kernel) -> None:
    kernel.change_machine(Driver(CARDS, hangs=(("nvmlDeviceGetMemoryInfo_v2", 2, 3600.0),)))
    (found,) = findings(kernel, "GPUs")
    assert found["what"].startswith("GPU 2 is not answering: a call into the driver did not come back")


def test_several_mig_instances_of_which_cuda_takes_one(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(Driver((replace(CARDS[0], mig=MIG), *CARDS[1:]), version="535.104.05", cuda=12020))
    kernel.run("%load_ext gpu_magic")
    kernel.run(f"import os; os.environ['{MASK}'] = '{MIG[0].uuid},{MIG[1].uuid}'")
    (found,) = findings(kernel, MASK)
    assert found["severity"] == "worth knowing"


@sees_processes
def test_what_another_kernel_has_left(kernel: Kernel, start_kernel: Callable[..., Kernel]) -> None:
    other = start_kernel(JPY_SESSION_NAME="/home/maria/work/train.ipynb")
    kernel.change_machine(using(other.pid))
    (found,) = findings(kernel, "own processes")
    assert "The kernel of /home/maria/work/train.ipynb" in found["what"]
    assert found["mend"] == f"%gpus --end {other.pid}"
    report = kernel.run("%gpu_doctor --report").stdout
    assert "Another process of this user has 2.0 GiB on GPU 1" in report
    assert "train.ipynb" not in report


# The panel's page


def test_a_panel_that_no_page_has_answered(kernel: Kernel) -> None:
    page = Page(kernel)
    (found,) = findings(kernel, "panel")
    assert (found["severity"], found["what"]) == (
        "worth knowing",
        "A panel was shown, and no page has answered it.",
    )
    page.do(type="set_visibility", view="v", visibility="watched")
    assert page.hear() != {}
    assert findings(kernel, "panel") == []
    assert "and pages answer" in kernel.run("%gpu_doctor").text


# What is typed


def test_the_report_is_plain_text(kernel: Kernel) -> None:
    reply = kernel.run("%gpu_doctor --report")
    assert reply.html == reply.text == ""
    assert reply.stdout.startswith("gpu_magic 0.1.0, Python 3.")
    assert "\ndriver                580.65.06, CUDA up to 13.0: fine\n" in reply.stdout


def test_json_is_null_where_nothing_is_known(kernel: Kernel) -> None:
    kernel.change_machine(Driver((replace(CARDS[0], speed=None), *CARDS[1:])))
    found = json.loads(kernel.run("%gpu_doctor --json").stdout)
    assert found["facts"]["machine"]["gpus"][0]["speed"] is None
    assert found["facts"]["machine"]["gpus"][1]["speed"]["capability"] == [8, 0]
    assert found["facts"]["kernel"]["guard"]["state"] == "absent"
    assert "private" not in found["facts"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("torch", "%gpu_doctor takes no torch; its options are --report and --json."),
        ("--report --json", "--report and --json don't go together."),
        ("--repotr", "There is no --repotr; did you mean --report? %gpu_doctor? explains them."),
    ],
)
def test_bad_input_is_one_line(kernel: Kernel, line: str, says: str) -> None:
    reply = kernel.run(f"%gpu_doctor {line}")
    assert reply.status == "error"
    assert says in (reply.errors or [reply.stderr])[0]


def test_from_python_it_is_a_record_that_shows_itself(kernel: Kernel) -> None:
    reply = kernel.run("import gpu_magic; found = gpu_magic.doctor(); found")
    assert "CPU-only build" in reply.text
    assert "CPU-only build" in reply.html
    assert kernel.run("print(found.findings[0].severity, len(found.facts.machine))").stdout == "wrong 4\n"
    assert "FrozenInstanceError" in kernel.run("found.findings = ()").traceback


def test_what_comes_from_outside_is_escaped(kernel: Kernel) -> None:
    kernel.run(f"import os; os.environ['{MASK}'] = '<img src=x>\\x1b[31m'")
    reply = kernel.run("%gpu_doctor")
    assert "<img" not in reply.html
    assert "\x1b" not in reply.text
