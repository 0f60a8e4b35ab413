"""`to_gpu` with NumPy's arrays beside PyTorch's tensors."""

import numpy as np
import torch

from gpu_magic import to_cpu, to_gpu
from gpu_magic.move.move import move_variables
from gpu_magic.move.names import Names
from tests.programs.errors import placement_error


def batch():
    a = np.arange(6.0).reshape(2, 3)
    batch = {"x": a, "row": a[1], "t": torch.ones(2), "names": np.array(["a"]), "nested": np.empty(2, object)}
    batch["nested"][0] = torch.ones(1)
    return batch


def left_alone():
    given = batch()
    a = given["x"]
    to_gpu(given, 0)
    return {
        "array is the same": given["x"] is a,
        "tensor": str(given["t"].device),
        "in an object array": str(given["nested"][0].device),
    }


def converted():
    given = batch()
    to_gpu(given, 0)
    to_gpu(given, 0, numpy="torch")
    return {
        "array": str(given["x"].device),
        "row": given["row"].tolist(),
        "names": type(given["names"]).__name__,
    }


def converted_on_the_cpu():
    return str(to_cpu([torch.ones(1), np.arange(6.0)], numpy="torch")[1].device)


def not_converted():
    return placement_error(to_gpu, np.arange(6.0), 0)


def converted_to(framework):
    return placement_error(to_gpu, np.arange(6.0), 0, numpy=framework)


def beside_a_tensor_of_another_variable():
    x = torch.ones(2)
    space = {"x": x, "both": [x, np.ones(2)]}
    error = placement_error(move_variables, Names(space, ()), "x both", device="0")
    return {"error": error, "is the same": space["both"][0] is space["x"], "device": str(space["x"].device)}
