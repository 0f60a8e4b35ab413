"""Parses the profile of a simulated machine: `8xA100-80GB`, `2xRTX-4090+1xT4`."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpu_magic.errors import SimulationError

__all__ = ["CATALOGUE", "Model", "parse_profile"]

MIB = 1 << 20
_MOST_GPUS = 256
_MOST_INSTANCES = 7


class Model(NamedTuple):
    """A kind of GPU.

    Parameters
    ----------
    name
        NVML's.
    memory
        Bytes.
    watts
        The power limit.
    capability, cores, clock
        CUDA's compute capability, the number of CUDA cores, and their highest frequency in MHz.
    has_mig
        Whether MIG can split it.

    """

    name: str
    memory: int
    watts: int
    capability: tuple[int, int]
    cores: int
    clock: int
    has_mig: bool = False


# Names and memory as nvidia-smi prints them for these cards; the rest as in NVIDIA's data sheets.
CATALOGUE = {
    "A100-40GB": Model("NVIDIA A100-SXM4-40GB", 40960 * MIB, 400, (8, 0), 6912, 1410, has_mig=True),
    "A100-80GB": Model("NVIDIA A100-SXM4-80GB", 81920 * MIB, 400, (8, 0), 6912, 1410, has_mig=True),
    "H100-80GB": Model("NVIDIA H100 80GB HBM3", 81559 * MIB, 700, (9, 0), 16896, 1980, has_mig=True),
    "H200": Model("NVIDIA H200", 143771 * MIB, 700, (9, 0), 16896, 1980, has_mig=True),
    "L4": Model("NVIDIA L4", 23034 * MIB, 72, (8, 9), 7424, 2040),
    "L40S": Model("NVIDIA L40S", 46068 * MIB, 350, (8, 9), 18176, 2520),
    "RTX-3090": Model("NVIDIA GeForce RTX 3090", 24576 * MIB, 350, (8, 6), 10496, 2100),
    "RTX-4090": Model("NVIDIA GeForce RTX 4090", 24564 * MIB, 450, (8, 9), 16384, 3105),
    "RTX-A6000": Model("NVIDIA RTX A6000", 49140 * MIB, 300, (8, 6), 10752, 2100),
    "T4": Model("Tesla T4", 15360 * MIB, 70, (7, 5), 2560, 1590),
    "V100-32GB": Model("Tesla V100-SXM2-32GB", 32768 * MIB, 300, (7, 0), 5120, 1530),
}

_COMPONENT = re.compile(r"(?:([0-9]{1,9})x)?([A-Za-z0-9-]+?)(?:\(([\w.,]+)\))?")
_MIG_KIND = re.compile(r"[1-7]g\.[0-9]{1,3}gb")


def parse_profile(profile: str) -> list[tuple[Model, tuple[str, ...]]]:
    """Return the model of each GPU of a profile, in order, and the kinds of its MIG instances.

    Parameters
    ----------
    profile
        Components joined by "+", each a count, a model, and the MIG instances it is split into, if any:
        `2xRTX-4090+1xT4`, `1xA100-80GB(3g.40gb,4g.40gb)+7xA100-80GB`. `0xT4` is a machine without GPUs.

    Raises
    ------
    SimulationError
        It is not a profile. The message lists the models.

    """
    models: list[tuple[Model, tuple[str, ...]]] = []
    for component in profile.split("+"):
        match = _COMPONENT.fullmatch(component.strip())
        model = CATALOGUE.get(match[2]) if match else None
        if not match or model is None:
            raise SimulationError(
                f"{component.strip()!r} is not a machine to simulate: write COUNTxMODEL, joined by '+', "
                f"with a model of {', '.join(sorted(CATALOGUE))}."
            )
        count = int(match[1] or 1)
        if len(models) + count > _MOST_GPUS:
            raise SimulationError(f"{profile!r} has more than {_MOST_GPUS} GPUs.")
        kinds = tuple(match[3].split(",")) if match[3] else ()
        fits = model.has_mig and len(kinds) <= _MOST_INSTANCES and all(map(_MIG_KIND.fullmatch, kinds))
        if kinds and not fits:
            how = f"A100-80GB(3g.40gb,4g.40gb), at most {_MOST_INSTANCES}"
            raise SimulationError(f"{component.strip()!r}: MIG parts are written like {how}.")
        models += [(model, kinds)] * count
    return models
