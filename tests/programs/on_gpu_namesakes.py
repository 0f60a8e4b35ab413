"""`on_gpu` where somebody's own module has the name of a framework."""

import sys

import torch

from gpu_magic import devices_of, on_gpu


def own_keras(folder):
    sys.path.insert(0, folder)
    import keras

    with on_gpu(1):
        found = {"device": str(torch.ones(1).device), "class": repr(keras.Model)}
    return {**found, "arrays": repr(devices_of(keras.Model()))}
