"""The report of a run, as JSON: the outcome of each claim, and the machine. It names no host and no person."""

from __future__ import annotations

import getpass
import os
import platform
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.gpu.machine import Machine

__all__ = ["machine_of", "without_names"]

_HEX = r"[0-9a-fA-F]"
_UUID = re.compile(rf"({_HEX}{{4}}){_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}")
_PATH = re.compile(r"(?<![\w:])~?(?:/[\w.+@~-]+){2,}/?")


def machine_of(here: Machine) -> dict[str, Any]:
    """Return what a report says of its machine."""
    gpus: list[Mapping[str, Any]] = here.nvml.get("gpus", [])
    return {
        "format": 1,
        "date": datetime.now(UTC).date().isoformat(),
        # The tests' own libraries instead of a driver. Such a report confirms nothing about a GPU.
        "stand-ins": "GPU_MAGIC_TEST_STATE" in os.environ or here.torch.get("accelerator") == "pretend",
        "gpus": [{name: gpu[name] for name in ("name", "uuid", "bytes", "is split")} for gpu in gpus],
        "driver": here.nvml.get("driver"),
        "CUDA of the driver": here.nvml.get("cuda"),
        "CUDA of PyTorch": here.torch.get("cuda") or None,
        "packages": here.packages,
    }


def without_names(value: Any) -> Any:
    """Return a value without paths, the names of this host and this user, and all but four digits of each UUID."""
    if isinstance(value, dict):
        return {key: one if key == "sentence" else without_names(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_names(one) for one in value]
    if not isinstance(value, str):
        return value
    text = _PATH.sub("(path)", _UUID.sub(r"\1…", value))
    for name, stands in ((platform.node(), "(host)"), (_user(), "(user)")):
        if name:
            text = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", stands, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        return ""
