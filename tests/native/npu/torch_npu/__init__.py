"""Stands where transformers and accelerate look for the package of Ascend's NPUs."""

__version__ = "2.13.0"
npu_fusion_attention = None
