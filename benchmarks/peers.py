"""What gpu_magic is measured beside, and which of today's tools it is not measured beside, and why."""

from __future__ import annotations

__all__ = ["LEFT_OUT", "MEASURED"]

# Distributions whose version decides about a figure: contenders, and what lies beneath all of them.
MEASURED = (
    "nvidia-ml-py",
    "nvitop",
    "gpustat",
    "jupyterlab-nvdashboard",
    "zeus",
    "ipyparallel",
    "torch",
    "tensorflow-cpu",
    "jax",
    "transformers",
    "ipython",
    "ipykernel",
    "jupyter-server",
    "jupyterlab",
    "ipywidgets",
    "anywidget",
    "playwright",
)

LEFT_OUT = {
    "nvidia-smi": "comes with NVIDIA's driver, and is not there without one.",
    "GPUtil": "runs nvidia-smi for each answer, which takes nearly all of its time.",
    "autocvd": "runs nvidia-smi for each answer.",
    "setGPU": "runs gpustat when it is imported: see gpustat.",
    "gpuview": "serves gpustat's answers to a browser: see gpustat.",
    "py3nvml": "an older binding for the same library, without the calls of today's: see bare pynvml.",
    "torchrun, Accelerate, DeepSpeed": "gpu_magic starts them with their own command lines. What "
    "that adds is in the topic launch, with a program that ends at once.",
    "nbdistributed": "its first cell waits for a fixed time, so that its figures are those of its waiting.",
}
