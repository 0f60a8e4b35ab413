"""Says why a step can't be followed on tensors without data, and in which line of the user's code."""

from __future__ import annotations

from gpu_magic.frameworks.prediction import NotFollowed
from gpu_magic.frameworks.shadow.place import described, place_of

__all__ = ["why_not_followed"]

_REASONS = {
    "DataDependentOutputException": "it needs what a tensor holds",
    "DynamicOutputShapeException": "the shape of what {op} returns depends on data",
    "UnsupportedOperatorException": "{op} is not known without data",
}
# What each operation passes through on its way, in PyTorch 2.13: the line that asked for it stands before.
_PLUMBING = (
    "torch/__init__.py",
    "torch/_compile.py",
    "torch/_decomp/",
    "torch/_dynamo/",
    "torch/_meta_registrations.py",
    "torch/_ops.py",
    "torch/_prims",
    "torch/_refs/",
    "torch/_subclasses/",
    "torch/_tensor.py",
    "torch/autograd/graph.py",
    "torch/functional.py",
    "torch/nn/_reduction.py",
    "torch/nn/functional.py",
    "torch/overrides.py",
    "torch/utils/",
)


def why_not_followed(error: BaseException) -> str:
    """Return a sentence: what can't be followed, or what the step raises, and where."""
    where = place_of(error.__traceback__, _PLUMBING)
    reason = _REASONS.get(type(error).__name__)
    if isinstance(error, NotFollowed):
        return f"The step can't be followed without being run: {error}{where}"
    if reason is not None:
        op = str(getattr(error, "func", "")).removeprefix("aten.").partition(".")[0]
        return f"The step can't be followed without being run: {reason.format(op=f'{op}()')}{where}"
    return f"The step raises {described(error)}{where}"
