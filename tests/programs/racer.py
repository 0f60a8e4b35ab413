"""Chooses a GPU whenever a line comes, and says which, or why none."""

from __future__ import annotations

import sys

import gpu_magic
from gpu_magic.errors import ChoiceError

gpu_magic.gpus()  # all is loaded
print("ready", flush=True)
for line in sys.stdin:
    try:
        request, option, _ = line.strip().partition(" --only-free")
        choice = gpu_magic.choose(request, only_free=bool(option))
        print(*(device.uuid for device in choice.devices), flush=True)
    except ChoiceError as error:
        print("-", str(error).replace("\n", "\\n"), flush=True)
