"""Which of AMD's GPUs are near each other: read when a choice asks for it, as `topology` does for NVIDIA's.

`amdsmi_topo_get_link_type` gives a kind of link and a number of hops. XGMI with one hop is a link from one
GPU to the other; with more of them it leads over CPUs. PCIe with one hop would be one switch: the library
counts two for GPUs of one CPU, and more for others, whatever switches there are (rocm_smi.cc,
`rsmi_topo_get_link_type`). What it does not know is 0, which is also its INTERNAL.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.unknown import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["read_near"]

# AMDSMI_LINK_TYPE_PCIE and _XGMI (7.0.2). Before 7.0 this call gave AMDSMI_IOLINK_TYPE_…, which are the same
# numbers, and amdsmi's AmdSmiLinkType had others.
_LINKS = (1, 2)


def read_near(ask: Callable[..., Any], handles: Mapping[int, Any]) -> frozenset[tuple[int, int]]:
    """Return the pairs of GPUs that are linked by XGMI or by one PCIe switch, the lower number first.

    Parameters
    ----------
    ask
        Calls a function of amdsmi by its name; UNKNOWN where the library refuses.
    handles
        The handle of each GPU, by its number.

    """
    found = set()
    for first, last in combinations(sorted(handles), 2):
        link = ask("amdsmi_topo_get_link_type", handles[first], handles[last])
        if link is not UNKNOWN and link["type"] in _LINKS and link["hops"] == 1:
            found.add((first, last))
    return frozenset(found)
