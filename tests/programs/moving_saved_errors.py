"""Errors that were saved in a variable, and keep the local variables of the functions that raised them."""

import torch
import torch._dynamo  # as in the other files with PyTorch: they have one server

import __main__
from gpu_magic import devices_of


def failing(size):
    local = [torch.ones(size)]
    raise ValueError(len(local))


def caught(call, *args):
    try:
        call(*args)
    except Exception as error:  # noqa: BLE001 - that is what is looked at
        return error
    return None


def wrapping():
    try:
        failing(3)
    except ValueError as error:
        raise RuntimeError("second") from error


class OwnError(Exception):
    pass


def with_an_attribute():
    error = OwnError("x", torch.ones(5))
    error.more = torch.ones(2)
    raise error


def held():
    group = ExceptionGroup("several", [caught(failing, 7)])
    errors = {
        "of a function": caught(failing, 2),
        "that led to it": caught(wrapping),
        "the user's own": caught(with_an_attribute),
        "in a group": group,
        "in a list": [caught(failing, 4)],
    }
    return {name: dict(devices_of(error)) for name, error in errors.items()}


def of_a_cell():
    """An error that a cell has caught keeps none of the user's variables: they are the variables' own."""
    __main__.__dict__["x"] = torch.ones(9)
    code = "try:\n    1 / 0\nexcept Exception as error:\n    saved = error"
    exec(compile(code, "<cell>", "exec"), vars(__main__))
    return dict(devices_of(__main__.__dict__["saved"]))
