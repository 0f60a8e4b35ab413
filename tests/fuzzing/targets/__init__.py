"""The targets, by name: a file for each kind of input."""

from __future__ import annotations

from tests.fuzzing.targets import claims, code, commands, kept, lines, messages, reports, requests, variables

__all__ = ["TARGETS"]

_MODULES = (requests, variables, messages, kept, claims, commands, lines, code, reports)

TARGETS = {target.name: target for module in _MODULES for target in module.TARGETS}
