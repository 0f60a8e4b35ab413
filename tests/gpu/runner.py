"""Runs claims, each in a separate process, and returns the outcome of each claim."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu.claims import LIGHT
from tests.gpu.needs import missing, why_not

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.gpu.claim import Claim, Outcome

__all__ = ["Found", "Here", "look", "run_all", "run_one"]

ROOT = Path(__file__).parent.parent.parent
PROBES = ("packages", "nvml", "torch", "tensorflow", "jax", "cupy")
# Seconds: the most for one program, and for all of them.
LIMIT = 120
ALL = 420
_LONGEST = 300  # characters of an error
_AT_ONCE = 4  # light ones
# Variables that programs must not inherit, because they simulate a machine or change how a framework behaves.
_REMOVED = ("GPU_MAGIC_SIMULATE", "PYTORCH_NVML_BASED_CUDA_CHECK", "PYTEST_CURRENT_TEST")
_running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a claim.

    Parameters
    ----------
    outcome
        Confirmed, contradicted, not tried, or measured.
    what
        The observation, or the reason that the claim was not tried.
    figures
        Numbers by their names, which include the unit.
    seconds
        How long it took.

    """

    outcome: Outcome
    what: str
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Here:
    """This machine.

    Parameters
    ----------
    probed
        The result of each probe in `probes`, by the probe's name; if the probe failed, the reason.
    missing
        For each need the reason that it is not met; empty if it is met.

    """

    probed: dict[str, Any]
    missing: dict[Any, str]

    @property
    def variables(self) -> dict[str, str]:
        """The variables that name the GPUs for the programs. A program for one GPU uses the first."""
        nvml = self.probed["nvml"]
        return {"GPU_MAGIC_TEST_GPUS": "" if isinstance(nvml, str) else ",".join(nvml["use"])}


def look() -> Here:
    """Probe this machine, in other processes, so that nothing starts CUDA in this process."""
    probed: dict[str, Any] = {}
    variables: dict[str, str] = {}
    for probe in PROBES:
        status, answer, output = _run(f"probes.{probe}", (), variables, LIMIT)
        found = json.loads(answer) if status == 0 else {"failed": _ending(status, output)}
        probed[probe] = f"its probe failed: {found['failed']}" if "failed" in found else found
        if probe == "nvml":
            variables = Here(probed, {}).variables
    return Here(probed, missing(probed))


def run_one(claim: Claim, here: Here, limit: float = LIMIT) -> Found:
    """Try a claim.

    Parameters
    ----------
    claim
        The claim.
    here
        This machine.
    limit
        Seconds after which its process is ended.

    Returns
    -------
    Found
        A program that fails, or does not end in time, contradicts its claim.

    """
    if reason := why_not(claim, here.missing):
        return Found("not tried", reason)
    began = time.monotonic()
    status, answer, output = _run(f"programs.{claim.program}", claim.arguments, here.variables, limit)
    seconds = round(time.monotonic() - began, 2)
    if status != 0:
        return Found("contradicted", _ending(status, output), {}, seconds)
    seen = json.loads(answer)
    if "failed" in seen:
        return Found("contradicted", f"its program failed: {seen['failed'][:_LONGEST]}", {}, seconds)
    if "not tried" in seen:
        return Found("not tried", seen["not tried"], {}, seconds)
    outcome: Outcome = "confirmed" if seen["is_so"] else "contradicted"
    return Found(outcome if claim.is_judged else "measured", seen["what"], seen["figures"], seconds)


def run_all(
    claims: Iterable[Claim], here: Here, told: Callable[[Claim, Found], None], seconds: float = ALL
) -> dict[str, Found]:
    """Try claims until the time is up: first the light claims, several at once, then the other claims, one by one.

    Parameters
    ----------
    claims
        The claims.
    here
        This machine.
    told
        Is called with each claim and its outcome.
    seconds
        The time limit for all claims. When it has passed, the remaining claims are not tried.

    """
    end = time.monotonic() + seconds

    def run(claim: Claim) -> Found:
        left = end - time.monotonic()
        if left <= 0:
            return Found("not tried", f"the {seconds:.0f} seconds for all claims had passed")
        return run_one(claim, here, min(LIMIT, left))

    wanted = list(claims)
    found: dict[str, Found] = {}
    for workers, part in (
        (_AT_ONCE, [one for one in wanted if one.name in LIGHT]),
        (1, [one for one in wanted if one.name not in LIGHT]),
    ):
        pool = ThreadPoolExecutor(workers)
        try:
            for claim, one in zip(part, pool.map(run, part), strict=True):
                found[claim.name] = one
                told(claim, one)
        except BaseException:  # Ctrl+C, which the programs do not get, because each has its own session
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(_running):
                _end(process)
            raise
        pool.shutdown()
    return {claim.name: found[claim.name] for claim in wanted}


def _run(
    program: str, arguments: tuple[Any, ...], variables: dict[str, str], limit: float
) -> tuple[int, str, str]:
    """Run a program; return its exit status, its answer and its output."""
    environment = {name: value for name, value in os.environ.items() if name not in _REMOVED}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment |= {
        "GPU_MAGIC_CLAIMS": "off",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **variables,
    }
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer")
        environment |= {"IPYTHONDIR": folder, "JUPYTER_RUNTIME_DIR": folder}
        with Path(folder, "output").open("w+b") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.gpu.child", program, json.dumps(arguments), str(answer)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                start_new_session=True,
            )
            _running.add(process)
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end(process)
                _running.discard(process)
            output.seek(0)
            printed = output.read().decode(errors="replace")
        if status is None:
            return -signal.SIGALRM, "", f"it did not end within {limit:.0f} seconds"
        return status, answer.read_text(encoding="utf-8") if status == 0 else "", printed


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all processes in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ending(status: int, output: str) -> str:
    """Return how a program failed: the signal, or the last line of its output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed nothing"
    if status == -signal.SIGALRM:
        return last
    if status < 0:
        return f"it was ended by {signal.Signals(-status).name}"
    return f"its process failed: {last[:_LONGEST]}"
