"""What tells gpu_magic of the abacus."""

import contextlib
import sys

from gpu_magic.frameworks.base import Framework


class Abacus(Framework):
    name, module = "Abacus", "abacus"

    def statement_for(self, ordinal):
        return "abacus.use()"

    def problem(self, device):
        return "" if device.index < 2 else "the abacus has two rods"

    def name_of(self, device):
        return f"rod {device.index}"

    def narrow(self, ordinals):
        return "it can't be narrowed", None

    @contextlib.contextmanager
    def scope(self, device, is_used):
        abacus = sys.modules["abacus"]
        before, abacus.device = abacus.device, self.name_of(device)
        try:
            yield
        finally:
            abacus.device = before


FRAMEWORK = Abacus()
