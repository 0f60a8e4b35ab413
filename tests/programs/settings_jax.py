"""What `choose` says to a JAX that has started on a GPU."""

import sys

import jax

from gpu_magic import choose
from tests.programs.choosing import variables, visible_devices
from tests.programs.errors import choice_error


def start_on_a_gpu():
    jax.devices()
    sys.modules["jax._src.xla_bridge"]._backends["cuda"] = None  # as JAX writes it


def the_same_again():
    first = choose("1", memory_limit="8GB")
    start_on_a_gpu()
    second = choose("1", memory_limit="8GB")
    return [first.is_applied, second.is_applied]


def started_under_none():
    choose("none")
    jax.devices()
    return repr(choose("1")).splitlines()[-1]


def too_late(options):
    start_on_a_gpu()
    error = choice_error(choose, "1", **options)
    return {"error": error, "variables": variables(), "visible devices": visible_devices()}
