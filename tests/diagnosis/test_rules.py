"""The rules of versions, the builds that are published, what a report leaves out, and checks that fail."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import gpu_magic
from gpu_magic.diagnosis.checks import CHECKS
from gpu_magic.diagnosis.checks.builds import check_builds
from gpu_magic.diagnosis.checks.leftovers import check_leftovers
from gpu_magic.diagnosis.commands import choose, install
from gpu_magic.diagnosis.cuda_versions import fit, lowest_driver, of_driver, runs_on
from gpu_magic.diagnosis.diagnose import judge
from gpu_magic.diagnosis.facts import Build, Facts, Kernel, Packages
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.gathering import Gathered
from gpu_magic.diagnosis.private import without_private
from gpu_magic.diagnosis.wheels import fitting_build, has_code_for, pytorch_cuda
from gpu_magic.display.diagnosis import Diagnosis
from gpu_magic.display.diagnosis_facts import fact_rows
from gpu_magic.process.guard import Guard
from gpu_magic.process.state import State
from gpu_magic.selection.visible import Variables
from gpu_magic.testing import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("built", "driver", "how"),
    [
        ("12.6", "12.6", "same"),
        ("12.4", "12.6", "older"),
        ("11.8", "13.0", "older"),
        ("12.8", "12.2", "minor"),
        ("12.5.1", "12.5", "same"),
        ("12", "12.2", "same"),
        ("12", "13.0", "older"),
        ("13.0", "12.9", "too new"),
        ("13", "12.9", "too new"),
        ("12.0", "11.8", "too new"),
        ("11.1", "11.0", "minor"),
        ("10.2", "10.1", "too new"),
    ],
)
def test_how_a_build_fits_a_driver(built: str, driver: str, how: str) -> None:
    assert fit(built, driver) == how


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("580.65.06", "13"),
        ("580.65.05", "12"),
        ("525.60.13", "12"),
        ("525.60.11", "11"),
        ("418.87", ""),
        ("", ""),
    ],
)
def test_which_cuda_a_driver_runs_at_least(driver: str, cuda: str) -> None:
    assert of_driver(driver) == cuda


def test_the_lowest_drivers_are_nvidia_s() -> None:
    assert [lowest_driver(cuda) for cuda in ("11.8", "12.4", "13", "10.2")] == [
        "450.80.02",
        "525.60.13",
        "580.65.06",
        "",
    ]


@pytest.mark.parametrize(
    ("cuda", "capability", "runs"),
    [
        ("12.6", (8, 0), True),
        ("12.6", (12, 0), False),
        ("12.8", (12, 0), True),
        ("12", (12, 0), True),
        ("11.7", (9, 0), False),
        ("13.0", (7, 0), False),
        ("13.0", (7, 5), True),
        ("10.2", (8, 0), False),
        ("11.0", (8, 9), True),
        ("13.0", (99, 0), True),
    ],
)
def test_which_gpus_a_cuda_has_code_for(cuda: str, capability: tuple[int, int], runs: bool) -> None:
    assert runs_on(cuda, capability) is runs


@pytest.mark.parametrize(
    ("version", "driver", "capability", "cuda"),
    [
        ("2.13.0+cpu", "13.0", (8, 0), "13.0"),
        ("2.13.0", "13.2", (8, 0), "13.2"),
        ("2.13.0", "12.4", (8, 0), "12.6"),
        ("2.13.0", "13.2", (7, 0), "12.6"),  # a V100
        ("2.13.0", "12.8", (12, 0), ""),  # Blackwell, and the driver has no CUDA 13
        ("2.11.0", "12.8", (12, 0), "12.8"),
        ("2.5.1", "13.0", (8, 0), "12.4"),
        ("2.5.1", "11.4", (8, 0), "11.8"),
        ("2.99.0", "13.0", (8, 0), "13.0"),
        ("1.13.1", "13.0", (8, 0), ""),
    ],
)
def test_which_build_of_pytorch_is_offered(
    version: str, driver: str, capability: tuple[int, int], cuda: str
) -> None:
    assert pytorch_cuda(version, driver, {capability}) == cuda


def test_pytorch_s_own_builds_have_fewer_gpus_than_cuda() -> None:
    assert not has_code_for(Build("PyTorch", "torch", "2.8.0+cu128", "12.8"), (7, 0))
    assert has_code_for(Build("CuPy", "cupy-cuda12x", "13.6.0", "12"), (7, 0))


@pytest.mark.parametrize(
    ("build", "lines"),
    [
        (Build("JAX", "jax", "0.10.2", ""), ['python -m pip install "jax[cuda12]==0.10.2"']),
        (
            Build("CuPy", "cupy-cuda13x", "14.0.0", "13", parts=("cupy-cuda13x",)),
            ["python -m pip uninstall -y cupy-cuda13x", "python -m pip install cupy-cuda12x"],
        ),
        (
            Build("PyTorch", "torch", "2.13.0", "13.0", installer="conda"),
            ['conda install -c conda-forge "pytorch-gpu" "cuda-version=12"'],
        ),
    ],
)
def test_a_gpu_that_cuda_13_has_no_code_for_gets_builds_for_cuda_12(build: Build, lines: list[str]) -> None:
    v100 = {(7, 0)}
    assert fitting_build(build, Packages(), "13.0", v100, "python").splitlines() == lines


def test_tensorflow_compiles_for_a_newer_gpu_and_the_same_release_is_no_help() -> None:
    with simulate("1xL4"):
        machine = replace(gpu_magic.gpus(), simulated="")
    facts = Facts(machine, packages=Packages((Build("TensorFlow", "tensorflow", "2.3.0", "10.1"),)))
    (found,) = check_builds(facts)
    assert (found.severity, found.mend) == ("worth knowing", "")
    assert "no kernel image" not in found.meaning
    assert "compiles" in found.meaning


# A simulated machine


def test_where_gpus_are_simulated_a_cpu_only_build_is_right() -> None:
    builds = (
        Build("PyTorch", "torch", "2.13.0+cpu", ""),
        Build("TensorFlow", "tensorflow", "2.21.0", "99.9", lacks="CUDA's libraries (cuDNN)"),
        Build("JAX", "jax", "0.10.2", "", loaded="0.9.0"),
    )
    with simulate("8xA100-80GB"):
        facts = Facts(gpu_magic.gpus(), packages=Packages(builds))
    cpu_only, outdated = check_builds(facts)
    assert cpu_only == Finding(
        "worth knowing",
        "PyTorch",
        "PyTorch 2.13.0+cpu is a CPU-only build.",
        "With SIMULATED GPUs that is right.",
    )
    assert outdated.what == "JAX 0.9.0 is imported here, and 0.10.2 is installed since."


def test_where_gpus_are_simulated_no_process_is_offered_to_be_ended() -> None:
    with simulate("1xA100-80GB") as machine:
        machine.gpus[0].run("train.py", "maria", 12 << 30, is_own=True)
        facts = Facts(gpu_magic.gpus())
    (found,) = check_leftovers(facts)
    assert "is yours too: it has 12.0 GiB on GPU 0" in found.what
    assert (found.meaning, found.mend) == ("", "")
    (real,) = check_leftovers(Facts(replace(facts.machine, simulated="")))
    assert real.meaning == "If it is left over:"
    assert real.mend.startswith("kill ")


def test_without_a_gpu_nothing_is_said_of_a_choice() -> None:
    kernel = Kernel("kernel", Guard(State.ABSENT), Variables(), Variables())
    with simulate("0xT4"):
        nothing = gpu_magic.gpus()
    with simulate("1xT4"):
        one = gpu_magic.gpus()
    said = [dict(row[:2] for row in fact_rows(Facts(machine, kernel)))["CUDA"] for machine in (nothing, one)]
    assert said == ["not started", "not started: the choice can still change"]


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("kernel", "%gpus 0,1 --restart"),
        ("unattended kernel", "%gpus 0,1"),
        ("ipython", "%gpus 0,1"),
        ("python", "gpu_magic.choose('0,1')"),
    ],
)
def test_how_gpus_are_chosen_where(program: str, line: str) -> None:
    assert choose(program, "0,1", is_too_late=True) == line  # type: ignore[arg-type]


def test_packages_are_installed_for_this_python() -> None:
    assert install("kernel", "torch") == "%pip install torch"
    assert install("kernel", "torch", "uv") == f"!uv pip install --python {sys.executable} torch"
    assert install("kernel", "torch", "poetry") == "%pip install torch"


# What others may read


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/maria/x.py failed", "… failed"),
        ("open ~/x/y", "open …"),
        ("https://download.pytorch.org/whl/cu126", "https://download.pytorch.org/whl/cu126"),
        ("/dev/nvidia0 and /dev/sda", "/dev/nvidia0 and …"),
        (
            "GPU-2a000000-0000-4000-8000-0123456789ab,MIG-1b000000-0000-4000-8000-0123456789ab",
            "GPU-2a00…,MIG-1b00…",
        ),
        ("MIG-GPU-8f3a1c52-0000-4000-8000-0123456789ab/1/0", "MIG-GPU-8f3a…"),
        ("by maria on gpu07", "by … on …"),
        ("marianne", "marianne"),
        ("CUDA 12.6: fine", "CUDA 12.6: fine"),
    ],
)
def test_names_paths_and_uuids_are_left_out(text: str, shown: str) -> None:
    assert without_private(text, ["maria", "gpu07"]) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "uv pip install --python '/home/maria braun/my env/python' torch",
            "uv pip install --python '…' torch",
        ),
        ("No such file: '/scratch/big secret/x.py'", "No such file: '…'"),
        ('open "~/big secret/x"', 'open "…"'),
        ("/home/maria braun/x.py failed", "… failed"),
        ("sudo sh -c 'modprobe -r nvidia_uvm'", "sudo sh -c 'modprobe -r nvidia_uvm'"),
        ("it's /dev/nvidia0 that isn't open", "it's /dev/nvidia0 that isn't open"),
    ],
)
def test_paths_with_spaces_are_left_out(text: str, shown: str) -> None:
    assert without_private(text, ["/home/maria braun", "maria braun"]) == shown


# What programs read


def test_the_names_of_json_stay() -> None:
    """They are documented: another name for one of them breaks the programs that read it."""
    found = Diagnosis.of(
        judge(Gathered(Facts(packages=Packages((Build("PyTorch", "torch", "2.13.0"),))), ()))
    )
    shown = Diagnosis((Finding("wrong", "x", "y"),), found.facts).to_dict()
    assert list(shown) == ["summary", "findings", "facts"]
    assert list(shown["findings"][0]) == ["severity", "about", "what", "meaning", "mend", "public"]
    assert list(shown["facts"]) == ["machine", "kernel", "packages", "system", "front_end"]


# What fails


def check_the_weather(facts: Facts) -> Iterator[Finding]:
    yield Finding("wrong", "weather", "It rains.")
    raise RuntimeError("the barometer\nis broken")


def test_a_check_that_fails_costs_one_line() -> None:
    gathered = Gathered(Facts(packages=Packages()), ())
    found = Diagnosis.of(judge(gathered, [check_the_weather]))
    rain, failed = found.findings
    assert rain.what == "It rains."
    assert failed.severity == "unknown"
    assert failed.what == "The check of the weather could not be made: RuntimeError: the barometer is broken"
    assert found.summary == "1 thing is wrong, 1 could not be read or checked."


def test_of_nothing_no_check_fails() -> None:
    """A source that could not be read is no trouble for a check."""
    assert judge(Gathered(Facts(), ()), CHECKS).findings == ()
    assert repr(Diagnosis.of(judge(Gathered(Facts(), ())))) == "Nothing wrong was found."
