"""Whatever the owner of a claim writes into it: it is believed only if it names its device again, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpu_magic.claims.held import Claims
from tests.claims.holders import GPU, OTHER, holder
from tests.inputs import check_line

if TYPE_CHECKING:
    from pathlib import Path

LINES = st.lists(
    st.sampled_from([GPU, OTHER, "", "\x1b[31m", "\u202e", "train.ipynb"]) | st.text(max_size=300), max_size=4
)


def test_any_claim(folder: Path) -> None:
    with holder(GPU) as pid:
        (file,) = (each for each in folder.iterdir() if each.is_file() and GPU.encode() in each.read_bytes())

        @settings(suppress_health_check=list(HealthCheck))
        @given(LINES)
        @example([GPU, "train.ipynb"])
        @example([OTHER, "train.ipynb"])
        def check(lines: list[str]) -> None:
            data = "\n".join(lines).encode(errors="surrogatepass")
            file.write_bytes(data)
            found = Claims().others()
            assert found.keys() <= {GPU}
            for claim in found.get(GPU, ()):
                assert claim.pid == pid
                check_line(str(claim), 200)
            assert bool(found) == (data.split(b"\n")[0] == GPU.encode())

        check()
