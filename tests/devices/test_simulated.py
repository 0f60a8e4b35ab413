"""The simulated machine, as its users see it: through tools that know nothing of it."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import numpy as np
import pynvml
import pytest

import gpu_magic
from gpu_magic.process.drivers import State
from gpu_magic.testing import SimulationError, simulate, start_cuda
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_magic.devices.nvml import Nvml
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


def test_one_of_the_people_is_the_user_in_another_notebook() -> None:
    with simulate("8xA100-80GB", clock=lambda: 0.0) as machine:
        machine.populate()
        own = gpu_magic.my_processes()
    assert [one.name for one in own] == ["evaluate.ipynb"]


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
        ("99999999999xT4", "with a model of"),
        ("1xA100-80GB(1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb)", "at most 7"),
        ("1xA100-80GB(1g)", "MIG parts"),
    ],
)
def test_a_profile_that_names_no_machine_is_refused(profile: str, says: str) -> None:
    with pytest.raises(SimulationError, match=says), simulate(profile):
        pass


@pytest.mark.parametrize(
    "profile", ["foo", "mi300x", "8x", "100", "nvidia", "300xA100", "RTX 2080", "8xA100", "t4(1g.5gb)"]
)
def test_of_an_unknown_machine_the_models_are_listed(profile: str) -> None:
    with pytest.raises(SimulationError) as caught, simulate(profile):
        pass
    assert "with a model of A100-40GB" in str(caught.value)


def test_what_is_chosen_in_a_block_ends_with_it_and_the_real_mask_does_not_leak_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with simulate("4xT4"):
        assert gpu_magic.choose("3").mask == os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
    with (
        simulate("4xT4", mask="1,2"),
        pytest.raises(gpu_magic.ChoiceError, match="outside what this process"),
    ):
        gpu_magic.choose("3")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"


def test_odd_arguments_to_choose() -> None:
    with simulate("4xT4"):
        gpus = gpu_magic.gpus()
        assert gpu_magic.choose(gpus[2]).mask == "2"
        assert gpu_magic.choose([gpus[2], gpus[0]]).mask == "2,0"
        assert gpu_magic.choose(np.int64(1)).mask == "1"
        assert gpu_magic.choose(range(2)).mask == "0,1"
        for odd in ([], "", None, 1.5, b"1", [None], object(), True, {1, 0}):
            with pytest.raises(gpu_magic.ChoiceError):
                gpu_magic.choose(odd)
        with pytest.raises(gpu_magic.ChoiceError, match="neither 'index' nor 'uuid'"):
            gpu_magic.choose(1, by="UUID")
        with pytest.raises(gpu_magic.ChoiceError, match="neither 'pci' nor 'fastest'"):
            gpu_magic.choose(1, order="FASTEST_FIRST")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_all_says_what_it_leaves_out() -> None:
    with simulate("3xT4") as machine:
        machine.gpus[1].lose()
        choice = gpu_magic.choose("all")
        assert [device.index for device in choice.devices] == [0, 2]
        assert "GPU 1 is left out, as it is not answering" in repr(choice)


def test_auto_on_a_busy_machine_says_so() -> None:
    with simulate("2xT4") as machine:
        machine.gpus[0].run("x.py", "bob", 9 << 30, work=80)
        assert "GPU 1 is free; not picked: GPU 0 (in use by bob)." in repr(gpu_magic.choose("auto"))
        assert "Only 1 GPU is free." in repr(gpu_magic.choose("auto:2"))
        machine.gpus[1].run("y.py", "eve", 8 << 30, work=80)
        assert "No GPU is free: GPU 1 has the most free memory; not picked: GPU 0 (in use by bob)." in repr(
            gpu_magic.choose("auto")
        )


def test_a_simulated_choice_does_not_ask_whether_the_real_cuda_was_started(
    fresh: Fresh, native: Path, tmp_path: Path
) -> None:
    Driver(CARDS).write(tmp_path / "machine")
    code = """
import ctypes, gpu_magic
from gpu_magic.testing import simulate
ctypes.CDLL("libcuda.so.1").cuInit(0)
assert gpu_magic.choose(1).refusal
with simulate("2xT4"):
    print(gpu_magic.choose(1, strict=True).mask)
print(gpu_magic.guard().state.value)
"""
    assert fresh(code, **environment(native, tmp_path / "machine")).split() == ["1", "frozen"]


def test_cuda_can_be_started_in_the_simulation() -> None:
    with simulate("4xT4"):
        gpu_magic.choose("2,0")
        start_cuda()
        assert gpu_magic.guard().uuids == tuple(gpu.uuid for gpu in gpu_magic.choose("2,0").devices)
        with pytest.warns(
            gpu_magic.CudaInitializedWarning, match=r"keeps GPU 2 \(cuda:0\), GPU 0 \(cuda:1\)"
        ):
            gpu_magic.choose(1)
    assert gpu_magic.guard().state is State.ABSENT


def test_cuda_is_not_started_outside_of_a_simulation() -> None:
    with pytest.raises(SimulationError, match="simulate"):
        start_cuda()


def test_auto_picks_the_only_gpu_where_nvml_has_no_figures_of_memory() -> None:
    """As on GB10 and Jetson, whose memory is the machine's."""
    with simulate("1xT4") as machine:
        machine.gpus[0].fail("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_NOT_SUPPORTED)
        choice = gpu_magic.choose("auto")
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
        assert "GPU 0 does not report memory in use, so it is not known to be free." in repr(choice)


def test_the_fastest_of_all_is_first_where_it_is_asked_for() -> None:
    with simulate("1xT4+1xA100-80GB"):
        choice = gpu_magic.choose("all", order="fastest")
        assert [device.index for device in choice.devices] == [1, 0]
        assert os.environ["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"


def test_speeds_are_read_when_gpus_are_found_and_not_for_each_snapshot() -> None:
    with simulate("2xT4+2xL4"):
        calls = pynvml.nvmlLib.calls
        gpu_magic.gpus()
        gpu_magic.gpus()
        assert calls["nvmlDeviceGetNumGpuCores"] == 4


def test_speeds_are_still_known_after_gpus_are_found_anew(nvml: Nvml) -> None:
    with simulate("1xT4+1xL4"):
        nvml.inventory()
        nvml._opened_at = -math.inf  # a minute ago
        assert [gpu.index for gpu in nvml.inventory().fastest_first] == [1, 0]


def test_a_gpu_that_is_lost_while_its_speed_is_read_does_not_end_the_reading(nvml: Nvml) -> None:
    with simulate("1xT4+1xL4") as machine:
        machine.gpus[0].fail("nvmlDeviceGetNumGpuCores", pynvml.NVML_ERROR_GPU_IS_LOST)
        assert "lost" in nvml.inventory()[0].problem


def test_a_reset_to_what_can_not_be_read_is_applied() -> None:
    with simulate("2xT4") as machine:
        gpu_magic.choose(1)
        machine.gpus[0].lose()
        gpu_magic.choose("reset")
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
