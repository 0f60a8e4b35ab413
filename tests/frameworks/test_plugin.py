"""What a plug-in has to have: one that lacks it fails when it is made, with a line that says what."""

from __future__ import annotations

import contextlib
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.frameworks import imported
from gpu_magic.frameworks.base import Framework
from tests.programs.runner import PROGRAMS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.programs.runner import Runner


class Abacus(Framework):
    """A plug-in with all that is required, and nothing else."""

    name, module = "Abacus", "abacus"

    def statement_for(self, ordinal: int) -> str:
        return f"abacus.use({ordinal})"

    def problem(self, device: Any) -> str:
        return "" if device.index < 2 else "the abacus has two rods"

    def name_of(self, device: Any) -> str:
        return f"rod {device.index}"

    def scope(self, device: Any, is_used: Any) -> Any:
        return contextlib.nullcontext()

    def narrow(self, ordinals: Any) -> Any:
        return "it can't be narrowed", None


def test_a_plug_in_needs_these_members_and_no_other() -> None:
    assert Framework.__abstractmethods__ == {
        "name",
        "module",
        "statement_for",
        "problem",
        "name_of",
        "scope",
        "narrow",
    }
    plugin = Abacus()
    assert (plugin.name, plugin.is_array(list), plugin.pools()) == ("Abacus", False, {})


@pytest.mark.parametrize("member", sorted(Framework.__abstractmethods__))
def test_one_without_a_required_member_fails_when_it_is_made(member: str) -> None:
    members = {
        name: value for name, value in vars(Abacus).items() if name != member and not name.startswith("_")
    }
    broken = type("Broken", (Framework,), members)
    with pytest.raises(TypeError, match=rf"^[^\n]*\bBroken\b[^\n]*\b{member}\b[^\n]*$"):
        broken()


def broken_entry_point(*folders):
    sys.path += folders
    sys.modules["cupy"] = types.SimpleNamespace(cuda=None, ndarray=None)
    import forgetful  # noqa: F401

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [one.name for one in imported() + imported()]
    return {"imported": found, "warnings": [str(one.message) for one in caught]}


@pytest.mark.parametrize(
    ("leads_to", "said"),
    [
        ("forgetful_plugin:FRAMEWORK", "TypeError(\"Can't instantiate abstract class Forgetful with"),
        ("json:dumps", "TypeError('json:dumps is not an instance of gpu_magic.frameworks.base.Framework')"),
        ("json:nothing", "AttributeError(\"module 'json' has no attribute 'nothing'\")"),
        ("not_there:FRAMEWORK", "ModuleNotFoundError(\"No module named 'not_there'\")"),
    ],
)
def test_a_broken_entry_point_is_one_warning_and_hides_no_other_framework(
    run: Runner, tmp_path: Path, leads_to: str, said: str
) -> None:
    info = tmp_path / "forgetful-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: forgetful\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gpu_magic.frameworks]\nforgetful = {leads_to}\n")
    found = run.fresh(broken_entry_point, str(tmp_path), str(PROGRAMS / "forgetful"))
    assert found["imported"] == ["CuPy", "CuPy"]
    (warning,) = found["warnings"]
    assert warning.startswith(f"gpu_magic can't use the plug-in for forgetful: {said}")
    assert "\n" not in warning
