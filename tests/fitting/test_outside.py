"""What a followed step would do outside of its process: it is refused, in one line, and was not done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("write_text", "it would write to kept.txt"),
        ("open", "it would write to a.txt"),
        ("low", "it would write to a.txt"),
        ("np.save", "it would write to a.npy"),
        ("torch.save", "it would write to model.pt"),
        ("from torch import save", "it would write to model.pt"),
        ("unlink", "it would remove kept.txt"),
        ("os.remove", "it would remove kept.txt"),
        ("rename", "it would rename kept.txt"),
        ("mkdir", "it would make made"),
        ("rmtree", "it would remove ."),
        ("run", "it would run touch"),
        ("system", "it would run touch a.txt"),
        ("sqlite3", "it would open the database new.db"),
        ("temporary", r"it would make \S+"),
        ("connect", "it would connect to another process"),
        ("database that is open", "it uses a Connection"),
        ("swallowing", "it would write to a.npy"),
        ("model", "it would write to kept.txt"),
    ],
)
def test_it_is_refused(run: Runner, how: str, why: str) -> None:
    found = run("fitting_outside.refused", how)
    said = found.pop("said")
    pattern = rf"The step can't be followed without being run: {why}, in line \d+.*: .+"
    assert re.fullmatch(pattern, said), said
    assert "gpu_magic.fit(" not in said
    assert found == {"files": True, "text": "as it was", "rows": 0}


@pytest.mark.parametrize("how", ["file that is open", "csv"])
def test_what_it_writes_to_an_open_file_is_swallowed(run: Runner, how: str) -> None:
    found = run("fitting_outside.refused", how)
    assert found == {"said": "", "files": True, "text": "as it was", "rows": 0}


def test_reading_and_importing_are_not(run: Runner) -> None:
    found = run("fitting_outside.allowed")
    assert min(found.pop("peaks")) > 0
    assert found == {"after": "written", "compiled": False, "bytecode": False}
