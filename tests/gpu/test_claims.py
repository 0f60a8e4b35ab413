"""On a real NVIDIA GPU: every claim, as a test. A claim that cannot be tried is skipped, as are all without a GPU."""

from __future__ import annotations

import ctypes
import fcntl
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.gpu.child import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gpu.claim import Claim
    from tests.gpu.machine import Machine

_PROGRAMS = (
    # The driver, and what frameworks ask of it
    *(
        "driver",
        "forks",
        "masks",
        "order",
        "figures",
        "energy",
        "mig_and_mps",
        "starts_pytorch",
        "starts_others",
    ),
    # gpu_magic
    *("choosing", "placing", "libraries", "moving", "outside", "parking", "freeing", "fitting", "measuring"),
    *("costs", "rivals", "checkpoint"),
)


def _claims() -> Iterator[Claim]:
    """Return the claims of the functions of each module, and of its list `CLAIMS`, if there is one."""
    for name in _PROGRAMS:
        module = import_module(f"tests.gpu.programs.{name}")
        yield from filter(None, (getattr(value, "claim", None) for value in vars(module).values()))
        yield from getattr(module, "CLAIMS", ())


CLAIMS = {claim.name: claim for claim in _claims()}


def _missing() -> str:
    """Return why no claim can be tried here; empty if one may be."""
    try:
        ctypes.CDLL("libcuda.so.1")
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        return f"no NVIDIA driver here: {error}"
    return ""


MISSING = _missing()


@pytest.mark.gpu
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.timeout(600)  # it probes the machine, and waits for others
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_claim(claim: Claim, here: Machine, tell: Any) -> None:
    # Claims fill and time a GPU, so they are tried one by one, even if pytest runs several tests at once.
    with Path(tempfile.gettempdir(), "gpu_magic-claims.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = outcome_of(claim, here)
    tell(claim.name, {"sentence": claim.sentence} | found)
    if found["outcome"] == "not tried":
        pytest.skip(found["what"])
    assert found["outcome"] != "contradicted", f"{claim.sentence} Instead: {found['what']}"


def outcome_of(claim: Claim, here: Machine) -> dict[str, Any]:
    """Try a claim. A program that fails, or does not end in time, contradicts its claim."""
    result: dict[str, Any] = {"outcome": "not tried", "what": "", "figures": {}, "seconds": 0.0}
    if reason := next(filter(None, map(here.lacks, claim.needs)), ""):
        return result | {"what": reason}
    began = time.monotonic()
    seen = run(f"programs.{claim.name.partition(':')[0]}", claim.arguments, here.use)
    result["seconds"] = round(time.monotonic() - began, 2)
    if "not tried" in seen:
        return result | {"what": seen["not tried"]}
    if "failed" in seen:
        return result | {"outcome": "contradicted", "what": seen["failed"]}
    outcome = "measured" if not claim.is_judged else "confirmed" if seen["is_so"] else "contradicted"
    return result | {"outcome": outcome, "what": seen["what"], "figures": seen["figures"]}
