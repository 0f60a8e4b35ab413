"""The simulated machine, as its users see it: through tools that know nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
import pytest

from gpu_magic.testing import SimulationError, simulate

if TYPE_CHECKING:
    from tests.conftest import Fresh


def test_nvitop_runs_on_it(fresh: Fresh) -> None:
    fresh("""
        from nvitop import Device
        from gpu_magic.testing import simulate

        with simulate("2xRTX-4090+1xT4"):
            names = [device.name() for device in Device.all()]
        assert names == ["NVIDIA GeForce RTX 4090"] * 2 + ["Tesla T4"], names
    """)


def test_gpustat_runs_on_it_and_does_not_upset_our_reader(fresh: Fresh) -> None:
    """Importing gpustat replaces functions of pynvml for the whole process."""
    fresh("""
        import gpustat
        from gpu_magic.devices.nvml import Nvml
        from gpu_magic.testing import simulate

        with simulate("2xRTX-4090+1xT4", clock=lambda: 0.0) as machine:
            machine.gpus[0].run("train.py", "maria", 20 << 30)
            theirs = [gpu.memory_used << 20 for gpu in gpustat.new_query()]
            ours = [gpu.status.memory_used for gpu in Nvml().inventory()]
            assert ours == theirs == [gpu.memory_used for gpu in machine.gpus], (ours, theirs)
    """)


def test_figures_follow_the_seed_and_the_clock() -> None:
    def figures(seed: int, second: float) -> list[tuple[int, int, int, str]]:
        with simulate("4xA100-80GB", seed=seed, clock=lambda: second) as machine:
            machine.populate()
            return [(gpu.utilization, gpu.power, gpu.temperature, gpu.uuid) for gpu in machine.gpus]

    assert figures(1, 0.0) == figures(1, 0.0)
    assert figures(1, 0.0) != figures(1, 30.0)
    assert figures(1, 0.0) != figures(2, 0.0)


def test_figures_stay_within_what_a_gpu_can_show() -> None:
    now = [0.0]
    with simulate("8xL4", clock=lambda: now[0]) as machine:
        machine.populate()
        for second in range(200):
            now[0] = second / 3
            for gpu in machine.gpus:
                assert 0 <= gpu.utilization <= 100
                assert 0 < gpu.power <= gpu.model.watts * 1000
                assert 20 <= gpu.temperature <= 90
                assert 0 <= gpu.memory_used <= gpu.model.memory


def test_the_library_goes_away_with_the_block() -> None:
    before = pynvml.nvmlLib
    with simulate("1xT4"):
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 1
    assert pynvml.nvmlLib is before


def test_before_init_it_answers_as_the_real_one() -> None:
    with simulate("1xT4"), pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        ("8xB12", "with a model of"),
        ("", "with a model of"),
        ("1xT4(1g.5gb)", "MIG parts"),
        ("999xT4", "more than"),
    ],
)
def test_a_profile_that_names_no_machine_is_refused(profile: str, says: str) -> None:
    with pytest.raises(SimulationError, match=says), simulate(profile):
        pass
