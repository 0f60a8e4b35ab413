"""What a plug-in has to have: one that lacks it fails when it is made, with a line that says what."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.frameworks.base import Framework, Transfer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Fresh


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


@pytest.mark.parametrize("member", ["add", "copy", "commit", "replacement", "undo", "before"])
def test_a_transfer_without_a_step_fails_when_it_is_made(member: str) -> None:
    members = {name: lambda *_: None for name in Transfer.__abstractmethods__ - {member}}
    with pytest.raises(TypeError, match=member):
        type("Broken", (Transfer,), members)()


FORGETFUL = """
from gpu_magic.frameworks.base import Framework

class Forgetful(Framework):
    name, module = "Forgetful", "forgetful"
    def statement_for(self, ordinal): return ""
    def name_of(self, device): return ""
    def scope(self, device, is_used): return None
    def narrow(self, ordinals): return "", None

FRAMEWORK = Forgetful()
"""


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
    fresh: Fresh, tmp_path: Path, leads_to: str, said: str
) -> None:
    info = tmp_path / "forgetful-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: forgetful\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gpu_magic.frameworks]\nforgetful = {leads_to}\n")
    (tmp_path / "forgetful.py").write_text("")
    (tmp_path / "forgetful_plugin.py").write_text(FORGETFUL)
    shown = fresh(
        f"""
        import sys, types, warnings
        sys.path.append({str(tmp_path)!r})
        sys.modules["cupy"] = types.SimpleNamespace(cuda=None, ndarray=None)
        import forgetful
        from gpu_magic.frameworks import imported
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            print([one.name for one in imported() + imported()])
        print(len(caught), caught[0].message)
        """
    ).split("\n")
    assert shown[0] == "['CuPy', 'CuPy']"
    assert shown[1].startswith(f"1 gpu_magic can't use what knows forgetful: {said}")
    assert shown[2:] == [""]
