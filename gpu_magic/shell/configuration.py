"""What can be set in IPython's configuration."""

from __future__ import annotations

from typing import Any

from traitlets import Bool, Enum, observe
from traitlets.config import Configurable

from gpu_magic.process.session import current

__all__ = ["GpuMagics"]


class GpuMagics(Configurable):
    """The magics of gpu_magic; `%config GpuMagics` shows what can be set."""

    on_frozen = Enum(
        ["warn", "error"],
        default_value="warn",
        help='What a different choice does once CUDA has started: "warn", or "error", which stops Run All.',
    ).tag(config=True)

    claims = Bool(
        default_value=True,
        help="Claim the GPUs that are chosen, for the kernels of all users on this machine to see.",
    ).tag(config=True)

    by = Enum(
        [None, "index", "uuid"],
        default_value=None,
        help="Write CUDA_VISIBLE_DEVICES as numbers or as UUIDs; None: as it was when the kernel started.",
    ).tag(config=True)

    @observe("by")
    def _set_by(self, change: dict[str, Any]) -> None:
        current().by = change["new"]

    @observe("claims")
    def _set_claims(self, change: dict[str, Any]) -> None:
        current().claims.are_wanted = change["new"]
        if not change["new"]:
            current().claims.release()
