"""Which of NVIDIA's GPUs are near each other: read when a choice asks for it."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.binding import pynvml
from gpu_magic.devices.nvml_calls import ask
from gpu_magic.devices.unknown import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_near"]


def read_near(handles: Mapping[int, Any]) -> frozenset[tuple[int, int]]:
    """Return the pairs of GPUs that are linked by NVLink or by one PCIe switch, the lower number first.

    Parameters
    ----------
    handles
        The handle of each GPU, by its number.

    """
    pairs = combinations(sorted(handles), 2)
    return frozenset(pair for pair in pairs if _are_near(handles[pair[0]], handles[pair[1]]))


def _are_near(one: Any, other: Any) -> bool:
    """Return whether NVML says that two GPUs are near; what it does not say counts as far.

    `nvmlDeviceGetP2PStatus` with NVML_P2P_CAPS_INDEX_NVLINK is OK through a bridge and through NVSwitch
    (nvidia-smi topo -p2p n). NVML_TOPOLOGY_SINGLE is "all devices that only need traverse a single PCIe
    switch", PIX in `nvidia-smi topo -m`; NVML_TOPOLOGY_INTERNAL is one board.
    """
    if (
        _ask(pynvml.nvmlDeviceGetP2PStatus, one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
        == pynvml.NVML_P2P_STATUS_OK
    ):
        return True
    level = _ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    return level is not UNKNOWN and level <= pynvml.NVML_TOPOLOGY_SINGLE


def _ask(call: Any, *arguments: Any) -> Any:
    try:
        return ask(call, *arguments)
    except pynvml.NVMLError:  # one of them is lost
        return UNKNOWN
