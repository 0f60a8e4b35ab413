"""Run a cell, a block or a function on one device, in every framework: `%%on_gpu`, `gpu_magic.on_gpu`."""
