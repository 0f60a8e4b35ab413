"""The needs of claims: whether each need is met, and if not, why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.gpu.claim import Claim, Need

__all__ = ["missing", "why_not"]


def missing(probed: Mapping[str, Any]) -> dict[Need, str]:
    """Return for each need the reason that it is not met; empty if it is met.

    Parameters
    ----------
    probed
        The result of each probe in `probes`, by the probe's name; a text if the probe failed.

    """
    nvml = _found(probed, "nvml")
    gpus = nvml.get("gpus", [])
    names = [gpu["name"] for gpu in gpus]
    driver = nvml["problem"] if "problem" in nvml else nvml.get("why not", "")
    if not driver and not gpus:
        driver = "NVML lists no GPU here"
    split = any(gpu["is split"] for gpu in gpus)
    torch = _found(probed, "torch")
    return {
        "a driver": driver,
        "whole GPUs": driver or ("a GPU here is split by MIG" if split else ""),
        "two GPUs": driver or _unless(len(nvml.get("use", [])) > 1, "only one GPU may be used here"),
        "GPUs that are alike": driver
        or _unless(len(gpus) > 1 and len(set(names)) == 1, "the GPUs here are not several GPUs of one model"),
        "GPUs that differ": driver or _unless(len(set(names)) > 1, "all GPUs here are of one model"),
        "MIG": driver or _unless(split, "no GPU here is split by MIG"),
        "MPS": driver or _unless(any(gpu["has mps"] for gpu in gpus), "no MPS server runs here"),
        "nvidia-smi": driver or _unless(nvml.get("nvidia-smi"), "there is no nvidia-smi here"),
        "ipykernel": driver or _unless(nvml.get("ipykernel"), "ipykernel is not installed here"),
        "an accelerator of PyTorch's": _unless(torch.get("accelerator"), torch["why not"]),
        "PyTorch for CUDA": torch["why not"],
        "TensorFlow for CUDA": _found(probed, "tensorflow")["why not"],
        "JAX for CUDA": _found(probed, "jax")["why not"],
        "CuPy": _found(probed, "cupy")["why not"],
    }


def why_not(claim: Claim, missing: Mapping[Need, str]) -> str:
    """Return why a claim cannot be tried here; empty if it can."""
    return next(filter(None, (missing[need] for need in claim.needs)), "")


def _found(probed: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = probed[name]
    return {"why not": found} if isinstance(found, str) else found


def _unless(is_there: object, reason: str) -> str:
    return "" if is_there else reason
