"""What is said of a cell that was measured, besides its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.text import size_text
from gpu_magic.usage.growth import Growth
from gpu_magic.usage.hints import IdleGpu

if TYPE_CHECKING:
    from gpu_magic.usage.hints import Hint

__all__ = ["hint_text"]


def hint_text(hint: Hint) -> str:
    """Return a hint as one line."""
    if isinstance(hint, IdleGpu):
        return (
            f"{hint.gpu.name} was idle for {hint.share:.0%} of this cell, and {hint.loader} loads each batch "
            f"in between: DataLoader(…, num_workers=4, pin_memory=True) loads while the GPU works."
        )
    if isinstance(hint, Growth):
        what = f"Memory on {hint.device} grows each time this cell runs, by {size_text(hint.size)} now, and "
        if hint.keeps_graphs:
            return (
                f"{what}{hint.variable} keeps what its tensors were computed from: "
                "loss.item() or loss.detach() keeps the number alone."
            )
        return f"{what}{hint.variable} holds it."
    return f"{hint.model} is on the CPU, while GPUs are chosen: %to_gpu {hint.model} moves it."
