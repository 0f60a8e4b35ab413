"""Several kernels on one machine: what one has chosen, the others see, and `auto` keeps off it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

    Kernels = Callable[..., Kernel]

CHOSEN = re.compile(r"cuda:\d+ = GPU (\d+)")


def chosen(kernel: Kernel, line: str) -> list[str]:
    """Run a line that chooses; return the numbers of the GPUs that are chosen."""
    reply = kernel.run(line)
    assert reply.status == "ok", reply.errors
    return CHOSEN.findall(reply.said)


@pytest.fixture
def two(start_kernel: Kernels) -> tuple[Kernel, Kernel]:
    """Return two kernels, of two notebooks."""
    first = start_kernel(JPY_SESSION_NAME="/home/maria/train.ipynb")
    second = start_kernel(JPY_SESSION_NAME="/home/maria/eval.ipynb")
    return first.load(), second.load()


CLAIMED = r"claimed by you: train.ipynb, since \d\d:\d\d"


def test_two_notebooks_that_say_auto_get_different_gpus(two: tuple[Kernel, Kernel]) -> None:
    first, second = two
    assert chosen(first, "%gpus auto:2") == ["0", "1"]
    assert chosen(second, "%gpus auto:2") == ["2", "3"]
    assert re.search(
        r"auto:3 can pick only 2 GPUs\. Not available: GPU 0 and GPU 1 \(claimed by .*\)\. "
        r"Try auto:2, or add --wait 30m",
        second.run("%gpus auto:3").refusal,
    )
    assert "--wait" not in second.run("%gpus auto:9").refusal  # there never are as many
    assert chosen(second, "%gpus auto:2 --dry-run") == ["2", "3"]
    # The table says who claims what since when, and so does a choice by number.
    chosen(first, "%gpus 1")
    reply = second.run("%gpus")
    assert re.search(rf"^  1 .* {CLAIMED}$", reply.text, re.MULTILINE)
    assert re.search(CLAIMED, reply.html)
    assert (
        "claimed by you: train" not in first.run("%gpus").text
    )  # its own: the column for this kernel says it
    assert re.search(rf"^GPU 1 is {CLAIMED}$", second.run("%gpus 1,2").said, re.MULTILINE)


def test_a_claim_ends_with_the_choice_and_with_the_kernel(two: tuple[Kernel, Kernel]) -> None:
    first, second = two
    for ending in ("%gpus reset", "%gpus none", "%gpus 3", "%unload_ext gpu_magic"):
        first.run("%load_ext gpu_magic")
        chosen(first, "%gpus 0")
        assert chosen(second, "%gpus auto") == ["1"]
        assert first.run(ending).status == "ok"
        second.run("%gpus none")
        assert chosen(second, "%gpus auto") == ["0"], ending
        second.run("%gpus none")
    first.run("%load_ext gpu_magic")
    chosen(first, "%gpus 0")
    first.restart()
    assert chosen(second, "%gpus auto") == ["0"]


def test_a_launched_command_has_its_gpus_to_itself(two: tuple[Kernel, Kernel]) -> None:
    first, second = two
    assert first.run("%gpu_launch --gpus auto:4 --dry-run sleep 600").status == "ok"
    assert chosen(second, "%gpus auto") == ["0"]
    second.run("%gpus none")
    assert first.run("%gpu_launch --gpus auto --background one sleep 600").status == "ok"
    assert first.run("%gpu_launch --gpus auto --background two sleep 600").status == "ok"
    reply = first.run("%gpus auto:2")
    assert CHOSEN.findall(reply.said) == ["2", "3"]
    assert "GPU 0 and GPU 1 (claimed by this kernel: sleep 600, since " in reply.said
    (row,) = [line for line in first.run("%gpus").text.splitlines() if line.startswith("  1  ")]
    assert re.search(r"claimed by this kernel: sleep 600, since \d\d:\d\d$", row)
    assert re.search(
        r"can pick no GPU\. Not available: .* To wait, add --wait 30m", second.run("%gpus auto").refusal
    )
    first.run("%gpu_tasks stop one")
    assert chosen(second, "%gpus auto") == ["0"]


@pytest.mark.nightly  # as a command, and engines take seconds to start
def test_engines_claim_their_gpus_until_they_are_stopped(two: tuple[Kernel, Kernel]) -> None:
    first, second = two
    assert first.run("%gpu_cluster auto:2").status == "ok"
    reply = first.run("%gpus auto")
    assert CHOSEN.findall(reply.said) == ["2"]
    assert "GPU 0 and GPU 1 (claimed by this kernel: engines, since " in reply.said
    assert chosen(second, "%gpus auto") == ["3"]
    assert first.run("%gpu_cluster stop").status == "ok"
    assert sorted(chosen(second, "%gpus auto:3")) == ["0", "1", "3"]


@pytest.mark.nightly  # the claims of the test above, by ipyparallel's own call
def test_engines_of_ipyparallels_own_cluster_claim_their_gpus(kernel: Kernel) -> None:
    kernel.run(
        "%gpus 2,3\nimport ipyparallel\n"
        "theirs = ipyparallel.Cluster(n=1, controller='gpu', engines='gpu', log_level=50)\n"
        "client = theirs.start_and_connect_sync()"
    )
    assert re.findall(r"claimed by this kernel: engines", kernel.run("%gpus").text) == [
        "claimed by this kernel: engines"
    ]
    kernel.run("client.close()\ntheirs.stop_cluster_sync()")
    assert "engines" not in kernel.run("%gpus").text
