"""Whether GPUs that are named are free: `%gpus 1,3 --only-free`."""

from __future__ import annotations

import pytest

from gpu_magic.devices.model import UNKNOWN, Claim, Gpu, GpuProcess, Inventory
from gpu_magic.errors import ChoiceError, NotFreeError
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select
from tests.gpus.machines import GIB, gpu, machine, unreadable

CLAIM = Claim("chen", 0.0, 4711, "eval.ipynb")
OURS = GpuProcess(11, "ipykernel", "maria", 40 * GIB, is_this_process=True, is_same_user=True)
OTHERS = GpuProcess(12, "train.py", "tom", 20 * GIB, is_this_process=False)


def used(index: int, *processes: GpuProcess) -> Gpu:
    """Return a GPU that processes use."""
    whole = gpu(index, 60, 90)
    return whole._replace(status=whole.status._replace(processes=processes))


def chosen(text: str, *others: Gpu) -> list[int]:
    """Return the numbers of the GPUs that are chosen, on a machine where some are as given."""
    gpus = {one.index: one for one in (*machine().gpus, *others)}
    found = select(
        parse(text), Inventory(tuple(gpus.values())), (None, None), Options(only_free=True)
    ).devices
    return [one.index for one in found if isinstance(one, Gpu)] if isinstance(found, tuple) else []


def test_free_ones_are_chosen_in_the_order_that_is_named() -> None:
    assert chosen("3,1", used(0, OTHERS)) == [3, 1]
    assert chosen("3", used(3, OURS)) == [3]  # what this process uses is free for it


def test_who_holds_which_is_said_in_one_line() -> None:
    claimed = gpu(1)._replace(status=gpu(1).status._replace(claims=(CLAIM,)))
    with pytest.raises(NotFreeError) as error:
        chosen("3,1,0", used(3, OURS, OTHERS), claimed)
    assert error.value.holders.startswith("GPU 3 (in use by tom), GPU 1 (claimed by chen: eval.ipynb, since ")
    assert str(error.value) == f"Not free: {error.value.holders}. To wait for them, add --wait 30m"
    with pytest.raises(
        NotFreeError, match=r"^Not free: GPU 3 \(in use by tom\)\. To wait for it, add --wait 30m$"
    ) as error:
        chosen("3", used(3, OTHERS))
    assert error.value.holders == "in use by tom"


@pytest.mark.parametrize(
    ("processes", "says"),
    [
        ((OTHERS, OTHERS._replace(pid=13, owner="chen")), "in use by chen and tom"),
        ((OTHERS._replace(age=10_800), OTHERS), "in use by tom for 3 h"),
        (
            (OTHERS._replace(age=300), OTHERS._replace(owner="maria", age=10_800)),
            "in use by maria for 3 h and tom for 5 min",
        ),
        ((OTHERS._replace(age=300), OTHERS._replace(owner="maria")), "in use by maria and tom for 5 min"),
        ((OTHERS._replace(owner=UNKNOWN, age=300), OTHERS), "in use by tom"),
        ((OTHERS._replace(owner=UNKNOWN, age=300),), "in use for 5 min"),
    ],
)
def test_how_long_one_user_is_there_is_not_said_of_another(
    processes: tuple[GpuProcess, ...], says: str
) -> None:
    with pytest.raises(NotFreeError) as error:
        chosen("3", used(3, *processes))
    assert error.value.holders == says


def test_claims_of_one_user_on_a_gpu_are_said_together() -> None:
    a, b = (
        Claim("ben", 60.0, 1, "a.ipynb", is_same_user=True),
        Claim("ben", 0.0, 2, "b.ipynb", is_same_user=True),
    )
    claimed = gpu(1)._replace(status=gpu(1).status._replace(claims=(a, CLAIM, b)))
    with pytest.raises(NotFreeError) as error:
        chosen("1", claimed)
    own, other = (str(one) for one in (b._replace(notebook="a.ipynb and b.ipynb"), CLAIM))
    assert error.value.holders == f"{own}, {other}"


def test_what_is_unknown_is_never_free() -> None:
    with pytest.raises(NotFreeError, match=r"GPU 2 \(usage unknown\)"):
        chosen("1,2", unreadable(gpu(2)))


@pytest.mark.parametrize("text", ["all", "none", "reset"])
def test_words_that_name_no_gpu_take_no_only_free(text: str) -> None:
    with pytest.raises(
        ChoiceError, match=r"--only-free goes with auto or GPU numbers\. Try auto --only-free"
    ):
        chosen(text)
