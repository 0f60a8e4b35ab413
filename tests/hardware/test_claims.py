"""The list of claims: what each says of itself, and that its program is there."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module

from tests.conftest import ROOT
from tests.gpu.claims import CLAIMS, GROUPS, LIGHT, PROGRAMS
from tests.test_architecture import LIBRARIES


def test_every_claim_is_a_sentence_of_its_own() -> None:
    sentences = [claim.sentence for claim in CLAIMS.values()]
    assert len(set(sentences)) == len(sentences)
    for sentence in sentences:
        assert re.fullmatch(r"[A-Z`0-9].*\.", sentence), sentence
        # Each stands alone in a report: what "it" and "so" would be is in another line there.
        assert not re.match(r"(So|It|Such|This|That) ", sentence), sentence


def test_what_relies_on_a_claim_is_there() -> None:
    assert [
        claim.where for claim in CLAIMS.values() if not (ROOT / "gpu_magic" / claim.where).is_file()
    ] == []


def test_every_claim_has_a_program_that_takes_its_arguments() -> None:
    for claim in CLAIMS.values():
        module, _, function = claim.program.partition(".")
        program = getattr(import_module(f"tests.gpu.programs.{module}"), function)
        inspect.signature(program).bind(*claim.arguments)


def test_every_module_of_programs_with_claims_is_listed() -> None:
    made = {path.stem for path in PROGRAMS.glob("*.py") if "@claim" in path.read_text(encoding="utf-8")}
    listed = {claim.program.partition(".")[0] for claim in CLAIMS.values()}
    assert made <= listed
    assert len(CLAIMS) == sum(map(len, GROUPS.values()))
    assert set(CLAIMS) > LIGHT


def test_no_program_imports_at_its_top_what_may_start_cuda() -> None:
    """The parent reads all of them; and whether an import starts CUDA is a claim of its own."""
    heavy = {*LIBRARIES, "ipykernel", "jupyter_client"}
    for path in (*PROGRAMS.glob("*.py"), *PROGRAMS.parent.glob("*.py")):
        names = set()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
        assert not heavy & {name.partition(".")[0] for name in names}, path
