"""What `choose` tells PyTorch, JAX and TensorFlow once CUDA is initialized."""

import jax  # noqa: F401 - it is to be imported
import tensorflow as tf  # noqa: F401
import torch

from gpu_magic import choose
from tests.programs.choosing import start_cuda, visible_devices
from tests.programs.errors import choice_error


def current():
    return torch.accelerator.current_device_index()


def in_process():
    choose("1,2,3")
    start_cuda()
    found = {"dry run": str(choose("2", in_process=True, dry_run=True)).split("\n"), "after it": current()}
    found["said"] = str(choose("2", in_process=True)).split("\n")
    found["current"], found["visible devices"] = current(), visible_devices()
    found["another"] = [list(choose("3", in_process=True).ordinals), current()]
    found["one that it can't use"] = choice_error(choose, "0", in_process=True)
    found["with memory"] = choice_error(choose, "3", in_process=True, growth=True, memory_limit="8GB")
    found["reset"] = [str(choose("reset", in_process=True)), current()]
    return found
