"""`%gpus 3 --ask`: real kernels of several notebooks ask each other for GPUs, and answer."""

from __future__ import annotations

import getpass
import re
from typing import TYPE_CHECKING

import pytest

from tests.conftest import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kernel.conftest import Kernel

    Kernels = Callable[..., Kernel]

ME = getpass.getuser()
OF_STARTED = "What this kernel has started has claimed GPU 2: %gpu_tasks and %gpu_cluster list and end that."


@pytest.fixture
def two(start_kernel: Kernels) -> tuple[Kernel, Kernel]:
    """Return the kernel of a notebook that has claimed GPUs 1 and 3, and of another one."""
    holder = start_kernel(JPY_SESSION_NAME="/home/maria/train.ipynb")
    asker = start_kernel(JPY_SESSION_NAME="/home/bob/eval.ipynb")
    for kernel in (holder, asker):
        assert kernel.run("%load_ext gpu_magic").status == "ok"
    assert holder.run("%gpus 3,1").status == "ok"
    return holder, asker


def said(kernel: Kernel, line: str) -> str:
    """Run a line; return what it prints."""
    reply = kernel.run(line)
    assert reply.status == "ok", reply.errors
    return reply.stdout


def refused(kernel: Kernel, line: str) -> str:
    """Run a line that is refused; return the one line that says why."""
    reply = kernel.run(line)
    (refusal,) = reply.stderr.removeprefix("UsageError: ").splitlines()
    return refusal


def test_who_asks_is_read_with_the_next_cell_and_in_the_table(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    assert said(asker, "%gpus 3 --ask 'my deadline is tonight'") == (
        "Asked for GPU 3: you (train.ipynb). The answer is shown with a later cell of yours. "
        "%gpus 3 --wait 30m waits until nobody else has it.\n"
    )
    asks = rf"{ME} \(eval.ipynb\) asks for GPU 3, since \d\d:\d\d: my deadline is tonight"
    how = "%gpus --give-up ends your claim and frees memory; %gpus --keep says no."
    first = said(holder, "print('mine')")
    assert re.fullmatch(rf"{asks}\n{how}\nmine\n", first)
    assert said(holder, "print('mine')") == "mine\n"  # said once
    assert re.search(rf"^! {asks}\n! {how}$", holder.run("%gpus").text, re.MULTILINE)
    assert "asks for" not in asker.run("%gpus").text


def test_what_is_given_up_before_cuda_has_started_is_not_chosen_any_more(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    said(asker, "%gpus 3 --ask")
    given = said(holder, "%gpus --give-up").splitlines()[2:]
    assert given[0] == f"Given up: GPU 3; {ME} can read that."
    assert re.match(r"cuda:0 = GPU 1 ", given[1])
    assert len(given) == 2
    assert said(asker, "1") == f"{ME} (train.ipynb) has given up GPU 3: %gpus 3 chooses it.\n"
    assert said(asker, "1") == ""
    assert "claimed" not in said(asker, "%gpus 3")
    assert "claimed" in said(asker, "%gpus 1")


def test_the_last_one_that_is_given_up_leaves_none(two: tuple[Kernel, Kernel]) -> None:
    holder, _ = two
    assert said(holder, "%gpus 3,1 --give-up").splitlines() == [
        "Given up: GPU 3 and GPU 1.",
        "No GPU is visible to CUDA: frameworks run on the CPU.",
    ]


def test_a_no_is_read_with_the_next_cell_and_the_note_is_over(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    said(asker, "%gpus 3,1 --ask")
    assert said(holder, "%gpus --keep").splitlines()[2:] == [f"Kept: GPU 3 and GPU 1; {ME} can read that."]
    assert said(asker, "1") == f"{ME} (train.ipynb) keeps GPU 3 and GPU 1.\n"
    assert refused(holder, "%gpus --keep") == "Nobody asks for a GPU that this kernel has claimed."
    assert "claimed" in said(asker, "%gpus 3")


def test_what_is_suggested_works(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    (line,) = re.findall(r"(%gpus .*) waits", said(asker, "%gpus 1 --ask"))
    said(holder, "%gpus --give-up")
    assert "cuda:0 = GPU 1" in said(asker, line)


def test_a_text_is_sent_as_it_is_typed(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    said(asker, "%gpus 3 --ask see issue #12, it's 'due' {tonight} -- please.")
    assert said(holder, "1").splitlines()[0].endswith(": see issue #12, it's 'due' {tonight} -- please.")


def test_one_answer_ends_a_note_for_two_gpus_of_one_kernel(
    two: tuple[Kernel, Kernel], start_kernel: Kernels
) -> None:
    holder, asker = two
    assert said(asker, "%gpus 3,1 --ask").startswith("Asked for GPU 3 and GPU 1: you (train.ipynb). ")
    said(holder, "%gpus --keep")
    said(asker, "1")
    third = start_kernel()
    said(third, "%load_ext gpu_magic")
    assert "Asked for GPU 1" in said(third, "%gpus 1 --ask")  # no note of this user is open


def test_an_answer_is_told_also_where_the_gpu_was_chosen_meanwhile(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    said(asker, "%gpus 3 --ask")
    said(asker, "%gpus 3")
    said(holder, "%gpus --keep")
    assert said(asker, "1") == f"{ME} (train.ipynb) keeps GPU 3.\n"


def test_what_a_background_cell_runs_on_is_not_given_up(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    said(holder, CUINIT)
    said(holder, "%%on_gpu 0 --background work\nimport time\ntime.sleep(600)")
    said(asker, "%gpus 3 --ask")
    assert refused(holder, "%gpus --give-up").startswith("work runs on cuda:0 = GPU 3")
    said(asker, "1")
    assert "claimed" in said(asker, "%gpus 3")
    said(holder, "%gpu_tasks work --stop")


def test_the_rest_is_chosen_as_it_was(start_kernel: Kernels) -> None:
    kernel = start_kernel(CUDA_VISIBLE_DEVICES="0,1")
    said(kernel, "%load_ext gpu_magic")
    said(kernel, "%gpus 3,2,1 --force --by uuid")
    said(kernel, "%gpus 3 --give-up")
    mask = said(kernel, "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], end='')").split(",")
    assert len(mask) == 2
    assert all(name.startswith("GPU-") for name in mask)


def test_a_part_can_be_given_up(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    said(asker, "%gpus 3,1 --ask")
    said(holder, "%gpus 1 --give-up")
    assert said(asker, "1") == f"{ME} (train.ipynb) has given up GPU 1: %gpus 1 chooses it; keeps GPU 3.\n"


@pytest.mark.parametrize("ending", ["%gpus 0", "%gpus reset", "%unload_ext gpu_magic"])
def test_who_asks_reads_that_the_claim_has_ended(two: tuple[Kernel, Kernel], ending: str) -> None:
    holder, asker = two
    said(asker, "%gpus 3 --ask")
    said(holder, ending)
    assert said(asker, "1") == "Nobody else claims GPU 3 any more: %gpus 3 chooses it.\n"
    assert said(asker, "1") == ""


def test_a_note_ends_with_its_process(two: tuple[Kernel, Kernel], start_kernel: Kernels) -> None:
    holder, _ = two
    third = start_kernel()
    said(third, "%load_ext gpu_magic")
    said(third, "%gpus 3 --ask")
    third.end()
    assert said(holder, "1") == ""


def test_one_note_at_a_time_and_one_in_ten_minutes(two: tuple[Kernel, Kernel], start_kernel: Kernels) -> None:
    holder, asker = two
    third = start_kernel(JPY_SESSION_NAME="/home/bob/other.ipynb")
    said(third, "%load_ext gpu_magic")
    said(asker, "%gpus 3 --ask")
    soon = "You have asked a short time ago; the next note can go in {} min."
    assert refused(asker, "%gpus 1 --ask") == soon.format(10)
    assert refused(third, "%gpus 1 --ask") == (
        "A note of yours is open already, from eval.ipynb: one at a time, and it ends with its answers or with "
        "that kernel."
    )
    said(holder, "%gpus --keep")
    said(asker, "1")
    assert refused(asker, "%gpus 1 --ask") == soon.format(1)  # it was answered
    # Another kernel's is not kept back by that one's time, and the holder lets it wait.
    said(third, "%gpus 1 --ask")
    assert said(holder, "1") == ""


def test_what_nobody_has_claimed_can_not_be_asked_for(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    assert refused(asker, "%gpus 2 --ask") == "Nobody uses GPU 2, or has claimed it: %gpus 2 chooses it."
    assert refused(holder, "%gpus 3 --ask") == "This kernel has GPU 3 itself."


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        ("%gpus auto --ask", "--ask goes with GPUs by number: %gpus 3 --ask; not with auto."),
        ("%gpus --ask", "--ask goes with GPUs; try %gpus 1,3 --ask"),
        ("%gpus 9 --ask", "There is no GPU 9"),
        ("%gpus 3 --ask --wait 5m", "--ask does not go with --wait."),
        ("%gpus 3 --wait 5m --ask", "--ask does not go with --wait."),
        ("%gpus --ask 3", "--ask goes with GPUs; try %gpus 1,3 --ask"),
        ("%gpus --mine --ask", "--mine chooses no GPUs, and does not go with --ask."),
        ("%gpus 3 --ask --keep", "--ask does not go with --keep."),
        ("%gpus 3 --keep", "--keep answers all who ask, and does not go with 3."),
        ("%gpus --keep", "Nobody asks for a GPU that this kernel has claimed."),
        ("%gpus --give-up", "Nobody asks for a GPU that this kernel has claimed."),
        ("%gpus 3 --give-up", "This kernel has not claimed GPU 3; it has no GPU."),
        ("%gpus auto --give-up", "--give-up goes with GPUs by number, or alone; not with auto."),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(kernel: Kernel, line: str, refusal: str) -> None:
    said(kernel, "%load_ext gpu_magic")
    assert refused(kernel, line).startswith(refusal)


CUINIT = 'import ctypes; _ = ctypes.CDLL("libcuda.so.1").cuInit(0)'


def test_once_cuda_has_started_memory_is_freed_and_what_stays_is_named(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    said(holder, CUINIT)
    said(asker, "%gpus 3 --ask")
    assert said(holder, "%gpus --give-up").splitlines()[2:] == [
        f"Given up: GPU 3; {ME} can read that.",
        "This process has no memory on a GPU.",
        "CUDA has started here, so this kernel keeps cuda:0, and some memory there, until it is restarted.",
    ]
    assert said(asker, "1") == f"{ME} (train.ipynb) has given up GPU 3: %gpus 3 chooses it.\n"
    assert "cuda:0" in holder.run("%gpus").text
    assert "claimed" not in said(asker, "%gpus 3")


def test_what_the_kernel_s_own_command_has_claimed_is_not_given_up(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    said(holder, "%gpu_launch --gpus 2 --background run sleep 600")
    said(asker, "%gpus 2 --ask")
    heard = said(holder, "1").splitlines()
    assert "asks for GPU 2" in heard[0]
    how = "see %gpu_tasks, %gpu_cluster; %gpus --keep says no."
    assert heard[1:] == [f"What this kernel has started has claimed it: {how}"]
    assert refused(holder, "%gpus 2 --give-up") == refused(holder, "%gpus 2 --ask") == OF_STARTED
    assert refused(holder, "%gpus --give-up") == OF_STARTED
    said(holder, "%gpu_tasks run --stop")
    assert "Nobody else claims GPU 2 any more" in said(asker, "1")


def test_what_tools_run_in_the_kernel_is_left_alone(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    said(asker, "%gpus 3 --ask")
    heard: list[str] = []
    holder.client.execute_interactive(
        "print('a variable inspector')",
        store_history=False,
        output_hook=lambda message: heard.append(message["content"].get("text", "")),
        timeout=LIMIT,
    )
    assert "".join(heard) == "a variable inspector\n"
    assert "asks for" in said(holder, "1")


def test_python_does_what_the_magic_does(two: tuple[Kernel, Kernel]) -> None:
    holder, asker = two
    assert said(asker, "import gpu_magic; print(gpu_magic.ask([3, 1], 'please'))").startswith(
        "Asked for GPU 3"
    )
    said(holder, "import gpu_magic; given = gpu_magic.give_up(3)")
    assert said(holder, "print([device.index for device in given.devices], given.freed)") == "[3] None\n"
    assert said(asker, "1") == f"{ME} (train.ipynb) has given up GPU 3: %gpus 3 chooses it; keeps GPU 1.\n"
