"""Any line behind any magic, as it is entered and before Tab: it is read as it stands, or refused in one line."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import gpu_magic
from gpu_magic.errors import GpuMagicError
from gpu_magic.option_table import OPTIONS
from gpu_magic.shell.arguments import read, read_count
from gpu_magic.shell.completion import complete
from gpu_magic.testing import simulate
from tests.inputs import LINES, LONG, check_line, check_refusal

MAGICS = tuple(magic for magic in OPTIONS if magic.startswith("%") and magic != "%gpu_launch")
NAMED = st.sampled_from(sorted({option for options in OPTIONS.values() for option in options}))
TYPED = st.builds("{} {}{}".format, LINES, NAMED, st.sampled_from(["", "=", " "])) | LINES | NAMED


@pytest.mark.parametrize("magic", MAGICS)
@given(line=TYPED)
@example(line="9" * LONG)
@example(line="x --dry-run")
@example(line="x --o")
def test_a_line_is_read_again_as_it_is_written(magic: str, line: str) -> None:
    try:
        found = vars(read(magic, line))
    except GpuMagicError as error:
        check_refusal(error)
        return
    retyped = [found["request"]]
    for name, value in found.items():
        option = f"--{name.replace('_', '-')}"
        if name == "request" or value is None or value is False:
            continue
        retyped.append(f"{option}={value}" if value and value is not True else option)
    again = " ".join(filter(None, retyped))
    # Quotes are not kept, and then what was within them can begin a comment.
    assert "#" in again or vars(read(magic, again)) == found


@given(LINES)
@example("9" * LONG)
def test_a_count_and_a_process_are_found_or_refused(text: str) -> None:
    with simulate("2xT4") as machine:
        machine.gpus[0].run("train.py", "maria", 1 << 30, pid=4711, is_same_user=True)
        processes = gpu_magic.my_processes()
    for reader in (read_count, processes.find):
        try:
            reader(text)
        except GpuMagicError as error:
            check_refusal(error)


@pytest.mark.parametrize("magic", MAGICS)
@given(line=TYPED)
@example(line=f"{'9' * LONG}-")
def test_what_tab_offers_begins_with_what_is_typed(magic: str, line: str) -> None:
    words = line.split(" ")
    shell = SimpleNamespace(user_ns={"model": 1, "größe": 2}, user_ns_hidden={})
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)+2xT4"):
        offers = complete(shell, magic, words)
    if offers is None:
        return
    assert words[-1].endswith(offers.fragment)
    for offer in offers.texts:
        check_line(offer, 100)
        assert offer.lower().startswith(offers.fragment.lower())
