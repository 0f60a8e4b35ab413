"""Notebooks in the manner of public guides, cell by cell under `%%on_gpu`: no default device is left changed.

They are in `tests/programs/guides`, written for this, and need no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner

GUIDES = {
    "torch": ("tensors", "autograd", "training", "images", "text"),
    "tensorflow": ("basics", "gradients", "keras"),
    "jax": ("arrays", "transforms", "training"),
}
ON_JAX = ("flax_model", "optax_fit", "equinox_model")
WHERE = {"torch": "pretend:1", "tensorflow": "CPU:2", "jax": "{CpuDevice(id=2)}"}


@pytest.mark.parametrize(
    ("framework", "guide"), [(name, guide) for name, guides in GUIDES.items() for guide in guides]
)
def test_a_guide_runs_on_the_device_and_leaves_the_default_one(
    run: Runner, framework: str, guide: str
) -> None:
    found = run(f"on_gpu_guides_{framework}.guide", f"{framework}_{guide}")
    assert found == {"value": WHERE[framework], "left": []}


@pytest.mark.parametrize("guide", ON_JAX)
def test_a_guide_of_a_package_on_jax_does_too(run: Runner, guide: str) -> None:
    found = run("on_gpu_guides_jax.guide", guide)
    assert found == {"value": WHERE["jax"], "left": []}
