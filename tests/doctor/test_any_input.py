"""A report for others has no name of a user in it, whatever the text around it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gpu_magic.doctor.diagnosis import without_private

TEXT = st.lists(
    st.sampled_from(
        "/home/ GPU-8f3a0000-0000-4000-8000-000000000001 MIG- /dev/nvidia ~ http:// - maria ( : bob".split()
    )
    | st.text(max_size=5)
).map("".join)


@given(st.from_regex(r"\A[a-z][a-z0-9]{1,20}\Z"), TEXT)
@example("bob", "bob-laptop: bob")
def test_a_name_is_not_in_a_report(name: str, text: str) -> None:
    shown = without_private(f"/home/{name}/x {text} {name}", [name])
    assert f"/home/{name}" not in shown
    assert f" {name} " not in f" {without_private(shown, [name])} "
