"""The rules of versions, the builds that are published, what a report leaves out, and checks that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_magic.diagnosis.checks import CHECKS
from gpu_magic.diagnosis.commands import choose, install
from gpu_magic.diagnosis.cuda_versions import fit, lowest_driver, of_driver, runs_on
from gpu_magic.diagnosis.diagnose import judge
from gpu_magic.diagnosis.facts import Build, Facts, Packages
from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.gathering import Gathered
from gpu_magic.diagnosis.private import without_private
from gpu_magic.diagnosis.wheels import has_code_for, pytorch_cuda
from gpu_magic.display.diagnosis import Diagnosis

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
    ("program", "line"),
    [
        ("kernel", "%gpus 0,1 --restart"),
        ("unattended kernel", "%gpus 0,1"),
        ("ipython", "%gpus 0,1"),
        ("python", "gpu_magic.choose('0,1')"),
        ("shell", "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1"),
    ],
)
def test_how_gpus_are_chosen_where(program: str, line: str) -> None:
    assert choose(program, "0,1", is_too_late=True) == line  # type: ignore[arg-type]


def test_packages_are_installed_for_this_python() -> None:
    assert install("kernel", "torch") == "%pip install torch"
    assert install("kernel", "torch", "uv") == "!uv pip install torch"


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
