"""The report of a run, `report.json`: the outcome of each claim, and the machine. It names no host and no person."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.gpu.claims import CLAIMS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.gpu.runner import Found, Here

__all__ = ["FORMAT", "make", "read", "without_names", "write"]

FORMAT = 1
_HEX = r"[0-9a-fA-F]"
_UUID = re.compile(rf"({_HEX}{{4}}){_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}")
_PATH = re.compile(r"(?<![\w:])~?(?:/[\w.+@~-]+){2,}/?")


def make(here: Here, found: Mapping[str, Found], seconds: float) -> dict[str, Any]:
    """Return a report, as values of JSON.

    Parameters
    ----------
    here
        The machine.
    found
        The outcome of each claim, by the claim's name.
    seconds
        The time of the whole run.

    """
    nvml = here.probed["nvml"] if isinstance(here.probed["nvml"], dict) else {}
    torch = here.probed["torch"] if isinstance(here.probed["torch"], dict) else {}
    packages = here.probed["packages"] if isinstance(here.probed["packages"], dict) else {}
    gpus = [
        {name: gpu[name] for name in ("name", "uuid", "bytes", "is split")} for gpu in nvml.get("gpus", [])
    ]
    report = {
        "format": FORMAT,
        "date": datetime.now(UTC).date().isoformat(),
        # The tests' own libraries instead of a driver. Such a report confirms nothing about a GPU.
        "stand-ins": "GPU_MAGIC_TEST_STATE" in os.environ or torch.get("accelerator") == "pretend",
        "gpus": gpus,
        "driver": nvml.get("driver"),
        "CUDA of the driver": nvml.get("cuda"),
        "CUDA of PyTorch": torch.get("cuda") or None,
        "packages": packages,
        "seconds": round(seconds, 1),
        "claims": {
            name: {
                # A claim that was reworded later is a different claim: see `table`.
                "sentence": CLAIMS[name].sentence,
                "outcome": one.outcome,
                "what": one.what,
                "figures": one.figures,
                "seconds": one.seconds,
            }
            for name, one in found.items()
        },
    }
    return _scrubbed(report)  # type: ignore[no-any-return]


def write(report: Mapping[str, Any], path: Path) -> None:
    """Write a report to a file."""
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """Read a report.

    Raises
    ------
    ValueError
        The file is not a report, or has another format.

    """
    report = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        message = f"{path.name} is not a report of format {FORMAT}"
        raise ValueError(message)
    return report


def without_names(text: str) -> str:
    """Return a text without paths, the names of this host and this user, and all but four digits of each UUID."""
    text = _UUID.sub(r"\1…", text)
    text = _PATH.sub("(path)", text)
    for name, stands in ((platform.node(), "(host)"), (_user(), "(user)")):
        if name:
            text = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", stands, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        return ""


def _scrubbed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: one if key == "sentence" else _scrubbed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_scrubbed(one) for one in value]
    return without_names(value) if isinstance(value, str) else value
