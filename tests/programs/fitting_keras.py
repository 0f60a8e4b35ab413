"""Predictions of `fit` for Keras's models, on the backend that KERAS_BACKEND names."""

import keras
import numpy as np

import gpu_magic


def network():
    layers = [
        keras.Input((64,)),
        keras.layers.Dense(512, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(10),
    ]
    return keras.Sequential(layers)


def batch_of(size):
    return np.zeros((size, 64), "float32"), np.zeros((size,), "int32")


def compiled():
    model = network()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.optimizer.build(model.trainable_variables)
    return model


def values(model):
    return [keras.ops.convert_to_numpy(one).copy() for one in (*model.variables, *model.optimizer.variables)]


def step():
    model = compiled()
    model.fit(*batch_of(8), verbose=0)
    before = values(model)
    found = gpu_magic.fit(model, batch_of(4096))
    larger = gpu_magic.fit(model, batch_of(4096), batch_size=8192)
    forward = gpu_magic.fit(model, batch_of(4096), eval=True)
    after = values(model)
    model.fit(*batch_of(8), verbose=0)  # it still trains
    return {
        "peak": found.peak,
        "larger": larger.peak,
        "forward": forward.peak,
        "weights": sum(value.nbytes for value in before),
        "changed": [
            place for place, pair in enumerate(zip(before, after, strict=True)) if (pair[0] != pair[1]).any()
        ],
    }


def _said(function):
    try:
        return str(function())
    except gpu_magic.FitError as error:
        return str(error)


def refused():
    return _said(lambda: gpu_magic.fit(compiled(), batch_of(8)))


def missing():
    model = network()
    said = [_said(lambda: gpu_magic.fit(model, batch_of(8)))]
    model.compile("adam", "mse")
    said.append(_said(lambda: gpu_magic.fit(model, batch_of(8))))
    said.append(_said(lambda: gpu_magic.fit(compiled(), batch_of(8), amp=True)))
    return said
