"""Runs code on the GPU that is meant, in every framework, and says where variables live."""
