"""Chooses a GPU whenever a line comes, and says which, or why none."""

from __future__ import annotations

import sys

import gpu_magic
from gpu_magic.errors import ChoiceError

gpu_magic.gpus()  # all is loaded
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(*(device.uuid for device in gpu_magic.choose(line.strip()).devices), flush=True)
    except ChoiceError as error:
        print("-", str(error).replace("\n", "\\n"), flush=True)
