"""All claims, in the order of the table, starting with the quick ones."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.gpu.claim import Claim

__all__ = ["CLAIMS", "GROUPS", "LIGHT"]

PROGRAMS = Path(__file__).parent / "programs"
_ORDER = (
    "driver",
    "forks",
    "masks",
    "order",
    "figures",
    "energy",
    "mig_and_mps",
    "starts_pytorch",
    "starts_others",
    "choosing",
    "placing",
    "moving",
    "freeing",
    "fitting",
    "measuring",
    "costs",
)
# Programs that hardly use a GPU and measure nothing. Several of them run at once.
_LIGHT = ("driver", "forks", "masks", "order", "starts_pytorch", "starts_others", "choosing")


def _claims_of(name: str) -> tuple[Claim, ...]:
    """Return a module's claims: the claims of its functions, and its list `CLAIMS`, if there is one."""
    module = import_module(f"tests.gpu.programs.{name}")
    of_functions = (getattr(value, "claim", None) for value in vars(module).values())
    return (*filter(None, of_functions), *getattr(module, "CLAIMS", ()))


def _title_of(name: str) -> str:
    """Return the first line of a module's docstring, up to its colon."""
    source = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].partition(":")[0]


# The claims by the title of their group.
GROUPS = {_title_of(name): _claims_of(name) for name in _ORDER}
CLAIMS = {claim.name: claim for claims in GROUPS.values() for claim in claims}
LIGHT = frozenset(name for name in CLAIMS if name.partition(".")[0] in _LIGHT)
