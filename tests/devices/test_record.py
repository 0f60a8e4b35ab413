"""Records are dataclasses: what people do with a dataclass works on a `Gpu`."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from gpu_magic.devices.model import Gpu, MigInstance
from gpu_magic.devices.status import GpuProcess, GpuStatus
from gpu_magic.devices.unknown import UNKNOWN

PROCESS = GpuProcess(7, "train.py", "maria", 1 << 30)
GPU = Gpu(0, "GPU-1", status=GpuStatus(1, 2, processes=(PROCESS,)), mig=(MigInstance("MIG-1", UNKNOWN, 0),))


def test_fields_are_given_by_position_or_name_and_have_defaults() -> None:
    assert GpuProcess(7, "train.py", owner="maria", memory=1 << 30) == PROCESS
    assert (PROCESS.mine, GPU.name, GPU.problem) == (False, UNKNOWN, "")


@pytest.mark.parametrize(
    ("values", "named", "says"),
    [
        ((), {}, "missing required argument 'index'"),
        ((0,), {"index": 1}, "multiple values for argument 'index'"),
        ((0,), {"colour": 1}, "unexpected keyword argument 'colour'"),
        (range(16), {}, "takes 15 arguments but 16 were given"),
    ],
)
def test_wrong_arguments_are_refused_as_by_a_function(
    values: tuple[int, ...], named: dict[str, int], says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        Gpu(*values, **named)


def test_nothing_of_it_can_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        GPU.index = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        del GPU.index
    with pytest.raises(AttributeError):
        GPU.colour = 1
    assert GPU.index == 0


def test_the_functions_of_dataclasses_work() -> None:
    assert dataclasses.replace(GPU, index=3).index == 3
    assert dataclasses.asdict(GPU)["status"]["processes"][0]["owner"] == "maria"
    names = [field.name for field in dataclasses.fields(PROCESS)]
    assert names[:5] == ["pid", "name", "owner", "memory", "mine"]


def test_it_is_compared_by_its_fields() -> None:
    assert copy.deepcopy(GPU) == GPU == pickle.loads(pickle.dumps(GPU))
    assert hash(copy.copy(GPU)) == hash(GPU)
    assert dataclasses.replace(GPU, index=3) != GPU
    assert repr(PROCESS) == (
        f"GpuProcess(pid=7, name='train.py', owner='maria', memory={1 << 30}, mine=False, is_own=False, "
        "notebook='', started=UNKNOWN, age=UNKNOWN)"
    )
    match PROCESS:
        case GpuProcess(pid, name):
            assert (pid, name) == (7, "train.py")
