"""What is kept over the end of a process: a choice for the next start of a kernel."""

from __future__ import annotations

import json

from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.options import Options, plan_memory
from gpu_magic.gpus.request import parse
from gpu_magic.gpus.select import select
from gpu_magic.restart.saved import read_saved
from tests.fuzzing.machines import MACHINES
from tests.fuzzing.target import Target, check_refusal

__all__ = ["CHOICE", "TARGETS"]

_KERNEL, _NOW = "/run/kernel-1.json", 1_000_000.0


def check_kept_choice(data: bytes) -> None:
    """Check a saved choice: it is applied as it stands there, or refused in one line."""
    try:
        request, kept = read_saved(data, _KERNEL, _NOW)
        options = Options.saved(kept)
        saved = json.loads(data)
        assert saved["kernel"] == _KERNEL, "it is another kernel's"
        assert abs(_NOW - saved["saved"]) < 600, "it is too old"
        assert saved["request"] == request
        assert options.force in (True, False), "what is no yes and no no is taken for a yes"
        assert {name: getattr(options, name) for name in saved["options"]} == saved["options"]
        devices = select(parse(request), MACHINES[0], (None,) * 4, options).devices
        assert str(plan_memory(devices, growth=options.growth, limit=options.memory_limit)).isprintable()
    except ChoiceError as error:
        check_refusal(error)
        return
    assert set(devices) <= set(MACHINES[0].devices)


CHOICE = {"kernel": _KERNEL, "saved": _NOW, "request": "none", "options": {}}

TARGETS = (
    Target(
        "kept-choice",
        check_kept_choice,
        "a choice that is kept over a restart",
        (
            *(json.dumps(word) for word in (*CHOICE, *Options._fields, _KERNEL, "index", "uuid", "pci")),
            *"true false null NaN Infinity -1 1e999 [] {} 1000000.0 GPU-8f3a0000-0000-4000-8000-000000000001".split(),
        ),
        (
            json.dumps(CHOICE),
            json.dumps(CHOICE | {"request": "GPU-8f3a", "options": {"growth": True, "memory_limit": "8GB"}}),
            json.dumps(CHOICE | {"saved": 7}),
            json.dumps(CHOICE | {"kernel": "other"}),
            json.dumps(CHOICE | {"options": {"force": False, "by": "uuid", "order": "pci"}}),
        ),
    ),
)
