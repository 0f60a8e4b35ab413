"""What we ask of TensorFlow."""

import sys

import tensorflow as tf

from gpu_magic.frameworks import started


def gpu_among_its_devices():
    tf.constant(1)
    devices = sys.modules["tensorflow.python.eager.context"]._context._logical_devices
    devices.append(type(devices[0])("/device:GPU:0", "GPU"))  # as TensorFlow writes it
    return list(started())
