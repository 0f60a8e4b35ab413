"""Any names behind `%to_gpu` and any expression behind `%gpu_fit`: done, or refused in one line; no variable changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from IPython.core.error import UsageError

from gpu_magic.errors import GpuMagicError
from gpu_magic.testing import simulate
from tests.inputs import LONG, ODD, check_refusal

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class Thing:
    """Something with attributes."""

    def __init__(self) -> None:
        self.weight, self.parts = [1.0, 2.0], {"a": (1, 2)}


# What could take all memory or time, as the user's own expressions may: powers, shifts, formats.
HEAVY = re.compile(r"\*|%|<<|[fFtT][rR]?['\"]|[rR][fFtT]['\"]")
EXPRESSIONS = (
    st.lists(
        st.sampled_from(
            "model data x .weight .parts ['train'] [0] ( ) , : lambda [ ] { } \" ' = := not in if else for None".split()
        )
        | ODD,
        max_size=8,
    )
    .map(" ".join)
    .filter(lambda line: not HEAVY.search(line))
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["to_gpu", "gpu_park", "gpu_unpark", "gpu_fit"]), EXPRESSIONS)
@example("gpu_fit", f"x{'.a' * LONG}")
@example("gpu_fit", f"{'-' * LONG}1")
@example("gpu_fit", "model(await x)")
@example("gpu_fit", "model((yield))")
@example("gpu_fit", "model(x(1), a=1, a=2)")
@example("to_gpu", f"{'-' * LONG}1")
@example("to_gpu", "[" * LONG)
@example("to_gpu", "\udc99")
@example("to_gpu", "model.weight[0].a[x]")
def test_any_expression(shell: InteractiveShell, magic: str, line: str) -> None:
    shell.run_line_magic("load_ext", "gpu_magic")
    mine = {"model": Thing(), "data": {"train": [1, 2]}, "x": 1, "größe": 2}
    shell.user_ns.update(mine)
    with simulate("2xT4"):
        try:
            shell.run_line_magic(magic, line.replace("\n", " "))
        except (GpuMagicError, UsageError) as error:
            check_refusal(error)
    assert all(shell.user_ns[name] is value for name, value in mine.items())
