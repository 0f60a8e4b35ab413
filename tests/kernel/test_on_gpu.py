"""`%%on_gpu`, `%where` and the options of `%gpus` that frameworks are told, in a real kernel on four A100s.

PyTorch's devices are the pretend accelerator's: a cell that runs, runs there.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

TORCH = version("torch")


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> Kernel:
    kernel = start_kernel(**pretend)
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    return kernel


@pytest.fixture
def bare(start_kernel: Callable[..., Kernel], pretend: dict[str, str]) -> Kernel:
    """Return a kernel whose PyTorch has no accelerator: the build without CUDA."""
    kernel = start_kernel(**pretend, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert kernel.run("%load_ext gpu_magic").status == "ok"
    return kernel


@pytest.mark.parametrize("target", ["smi:3", "GPU-3a", "1", "gpu:1", "{place}"])
def test_the_physical_gpu_behind_it_is_named(kernel: Kernel, target: str) -> None:
    kernel.run("%gpus 2,3")
    kernel.run("import torch; place = 1")
    reply = kernel.run(f"%%on_gpu {target} -v\ntorch.ones(1).device")
    assert reply.text == "device(type='pretend', index=1)"
    assert reply.stdout == "Ran on cuda:1 = GPU 3 (NVIDIA A100-SXM4-80GB): PyTorch on pretend:1.\n"


def test_a_gpu_that_is_not_there_is_one_line_and_the_body_has_not_run(bare: Kernel) -> None:
    bare.run("%gpus 2,3")
    cases = {
        "%%on_gpu 2": "cuda:2 can't be used: this process sees cuda:0 = GPU 2, cuda:1 = GPU 3. ",
        "%%on_gpu smi:0": "GPU 0 is not among the GPUs of this process (cuda:0 = GPU 2, cuda:1 = GPU 3); "
        "%gpus 0 chooses it, before CUDA is started. ",
        "%%on_gpu smi:9": "There is no GPU 9: this machine has GPUs 0 to 3. ",
        "%%on_gpu GPU-ffff": "No GPU here has a UUID that begins with GPU-ffff; press Tab to see what there is. ",
        "%%on_gpu xpu:0": "xpu:0 can't be used: no framework that is imported has such a device. ",
    }
    for line, said in cases.items():
        reply = bare.run(f"{line}\nprint('ran')")
        assert (reply.status, reply.stdout) == ("error", "")
        assert reply.stderr == f"UsageError: {said}The cell has not run; --or-cpu runs it on the CPU.\n"
    bare.run("import torch")
    reply = bare.run("%%on_gpu 0\nprint('ran')\ntorch.ones(1)")
    assert (reply.status, reply.stdout) == ("error", "")
    assert f"PyTorch {TORCH} is built without CUDA. The cell has not run; --or-cpu" in reply.stderr
    reply = bare.run("%%on_gpu 0 --or-cpu\ntorch.ones(1).device")
    assert reply.text == "device(type='cpu')"
    assert reply.stdout == (
        f"Running on the CPU, as cuda:0 can't be used: PyTorch {TORCH} is built without CUDA.\n"
    )


def test_a_cell_stops_behind_the_import_of_what_can_not_run_there(bare: Kernel) -> None:
    reply = bare.run("%%on_gpu 0\nx = 1\nimport torch\nx = torch.ones(1)")
    assert reply.status == "error"
    assert reply.stderr == (
        f"UsageError: cuda:0 can't be used: PyTorch {TORCH} is built without CUDA. "
        "The cell was stopped there.\n"
    )
    assert bare.run("print(x, torch.ones(1).device)").stdout == "1 cpu\n"
    reply = bare.run("%%on_gpu 0\nprint('not again')\ntorch")
    assert (reply.status, reply.stdout) == ("error", "")


def test_or_cpu_places_what_the_cell_imports_on_the_cpu(bare: Kernel) -> None:
    reply = bare.run("%%on_gpu 0 --or-cpu\nimport torch\ntorch.ones(1).device")
    assert (reply.status, reply.text) == ("ok", "device(type='cpu')")
    assert reply.stdout == f"PyTorch runs on the CPU: PyTorch {TORCH} is built without CUDA.\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%%on_gpu", "No device is named; expected 0, cuda:0"),
        ("%%on_gpu foo", "'foo' is not a device; expected 0"),
        (
            "%%on_gpu 0,1",
            "[0, 1]), or processes with a GPU each: %gpu_launch torchrun runs a script in them, %gpu_cluster with ",
        ),
        ("%%on_gpu 0 --orcpu", "There is no --orcpu; did you mean --or-cpu? %%on_gpu? explains them."),
        ("%%on_gpu --or-cpu", "--or-cpu goes with a device; try %%on_gpu 0 --or-cpu"),
        ("%%on_gpu 0 --only jaxx", "--only jaxx: no framework has that name"),
        ("%%on_gpu cpu --only pytorhc", "with commas between. Did you mean torch?"),
        ("%%on_gpu [cpu, 0]", "A cell runs on one device: try cpu or 0."),
        ("%%on_gpu all but 3", "'all but 3' is not one device; try 0."),
        ("%%on_gpu 0 --only", "--only"),
        ("%gpus 1 --memory-limit lots", "--memory-limit lots is not a size; try --memory-limit 8GB"),
        (
            "%gpus 1 --in-process",
            "CUDA has not been initialized here: try %gpus 1, which is for every framework.",
        ),
        ("%gpus --growth", "--growth goes with GPUs; try %gpus 1,3 --growth"),
        ("%where nothing", "nothing is not a variable here. %where alone lists all."),
        ("%where 1 +", "+ is not an expression; several are separated by spaces or commas. %where alone"),
        ("%%on_gpu cpu,0", "A cell runs on one device: try cpu or 0."),
        ("%%on_gpu auto", "'auto' chooses GPUs: try %gpus auto, and then 0 here"),
        ("%%on_gpu {nothing[0]}", "'{nothing[0]}' is not a variable"),
        ("%%on_gpu {None}", "The value in braces is None, and names nothing."),
        ("%%on_gpu {[]}", "The value in braces is empty, and names nothing."),
        (
            "%%on_gpu 0,1 --mirror",
            "cuda:0 and cuda:1 can't be used: --mirror is for code that uses TensorFlow (or Keras on it), and this does "
            "not, so name one device without it. The cell has not run; --or-cpu",
        ),
        ("%%on_gpu cpu --mirror", "--mirror has nothing to mirror over on cpu alone: omit it."),
        ("%%on_gpu none", "'none' is not a device; try cpu, which runs it without a GPU."),
    ],
)
def test_bad_input_is_one_line_and_nothing_runs(kernel: Kernel, line: str, said: str) -> None:
    reply = kernel.run(f"{line}\nprint('ran')" if line.startswith("%%") else line)
    assert (reply.status, reply.stdout) == ("error", "")
    assert said in reply.stderr
    assert reply.stderr.count("\n") == 1


def test_in_process_in_a_frozen_kernel(kernel: Kernel) -> None:
    kernel.run("%gpus 1,2,3")
    kernel.run("import torch")
    kernel.run('import ctypes; ctypes.CDLL("libcuda.so.1").cuInit(0)')
    assert (
        "any framework: %%on_gpu 1 for one cell, %gpus 2 --in-process from here on"
        in kernel.run("%gpus 2").text
    )
    assert kernel.run("%gpus 2 --in-process").stdout == (
        "cuda:1 = GPU 2 (NVIDIA A100-SXM4-80GB, 79 GiB free)\n"
        "PyTorch: its current device is pretend:1; the others can still be named.\n"
    )
    where = "torch.accelerator.current_device_index()"
    assert kernel.run(where).text == "1"
    assert kernel.run(f"%%on_gpu 2\n{where}").text == "2"
    assert kernel.run(where).text == "1"
    assert kernel.run("%gpus reset --in-process").stdout == "PyTorch: as it was.\n"
    assert kernel.run(where).text == "0"
    assert "and no other" in kernel.run("%gpus 0 --in-process").stderr


def test_options_with_spaces_and_equals_signs(kernel: Kernel) -> None:
    assert kernel.run("%gpus 1,3 --memory-limit=8 GB --growth").status == "ok"
    kernel.run("import torch")
    reply = kernel.run("%%on_gpu 1 -v --only torch, keras  # both\ntorch.ones(1).device")
    assert reply.text == "device(type='pretend', index=1)"


def test_where_lists_what_holds_arrays(kernel: Kernel) -> None:
    assert kernel.run("%where").stdout == "No variable here holds arrays of a framework that is imported.\n"
    kernel.run("%%on_gpu 2\nimport torch\nmodel, x, n = torch.nn.Linear(4, 4), torch.ones(300), 3")
    assert kernel.run("%where").stdout == (
        "model  pretend:2: 80 bytes in 2 arrays\nx      pretend:2: 1.2 KiB\n"
    )
    assert kernel.run("%where n [x,x]").stdout == "n      no arrays\n[x,x]  pretend:2: 1.2 KiB\n"


def test_unloading_takes_all_of_it_away(kernel: Kernel) -> None:
    kernel.run("%unload_ext gpu_magic")
    for line in ("%%on_gpu 0\n1", "%where"):
        assert "not found" in kernel.run(line).stderr
    assert kernel.run("print(get_ipython().input_transformers_post)").stdout == "[]\n"
    kernel.run("%load_ext gpu_magic")
    assert kernel.run("%%on_gpu cpu\nimport asyncio\nawait asyncio.sleep(0, result=1)").text == "1"
