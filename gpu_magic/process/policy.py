"""What an administrator has forbidden in this process.

It is said in IPython's configuration, `c.GpuMagics.allow_force = False`, or by the variable
GPU_MAGIC_ALLOW_FORCE=0 that a process is launched with. Either forbids it to the magics and to the Python
functions; the variable does in scripts and for `gpu-magic run`, too. A user who wants to can change both.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["may_force"]

_NO = ("0", "false", "no", "off")


def may_force(launched: Mapping[str, str]) -> bool:
    """Return whether `--force` may take GPUs that this process was not given.

    Parameters
    ----------
    launched
        The variables that it was launched with.

    """
    if launched.get("GPU_MAGIC_ALLOW_FORCE", "").lower() in _NO:
        return False
    ipython: Any = sys.modules.get("IPython.core.getipython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None:
        return True
    # What %config has set since counts; before %load_ext there is the configuration alone.
    magics = next((one for one in shell.configurables if type(one).__name__ == "GpuMagics"), None)
    if magics is not None:
        return bool(magics.allow_force)
    return str(shell.config.get("GpuMagics", {}).get("allow_force", True)).lower() not in _NO
