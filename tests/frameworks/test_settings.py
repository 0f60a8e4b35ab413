"""What `%gpus` tells frameworks that are not imported yet."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

import pytest
from IPython.core.interactiveshell import InteractiveShell

from gpu_magic import choose, gpus
from tests.frameworks.test_imported import LIMITED, limit
from tests.programs.choosing import start_cuda, variables
from tests.programs.errors import choice_error
from tests.programs.runner import PROGRAMS, ROOT, gives

if TYPE_CHECKING:
    from tests.programs.runner import Runner

GROWTH = "TensorFlow and JAX allocate memory as they need it."
GIVEN = {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}


def growth():
    """Return what is said, and the variables, at each step."""
    found = {"dry run": [repr(choose("1", growth=True, dry_run=True)).split("\n")[-2], variables()]}
    found["set"] = [repr(choose("1", growth=True)).split("\n")[-1], variables()]
    choose("1")
    found["another choice"] = variables()
    choose("1", growth=True)
    choose("reset")
    found["reset"] = [variables(), os.environ.get("CUDA_VISIBLE_DEVICES")]
    return {**found, "no GPU": choice_error(choose, "none", growth=True)}


def test_growth_is_set_and_ends_with_the_next_choice(on_four_gpus: Runner) -> None:
    assert on_four_gpus(growth, **GIVEN) == {
        "dry run": [GROWTH, GIVEN],
        "set": [
            GROWTH,
            {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        ],
        "another choice": GIVEN,
        "reset": [GIVEN, None],
        "no GPU": "--growth needs GPUs. Try all --growth",
    }


@gives(
    [
        ["TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"],
        *({}, []),
    ],
    on="on_four_gpus",
)
def test_unloading_takes_it_back():
    shell = InteractiveShell.instance()
    for line in ("%load_ext gpu_magic", "%gpus 1 --growth --memory-limit 8GiB"):
        shell.run_cell(line)
    loaded = sorted(variables())
    shell.run_cell("%unload_ext gpu_magic")
    hooks = [one for one in sys.meta_path if "gpu_magic" in type(one).__module__]
    return [loaded, variables(), hooks]


def limit_with_jax_s_new_name():
    choose("1", memory_limit="8GiB")
    from jaxlib.xla_client import generate_pjrt_gpu_plugin_options as options

    return [list(variables()), options()["memory_fraction"]]


def test_jax_s_new_name_of_the_fraction_is_kept_where_it_is_set(on_four_gpus: Runner) -> None:
    """With both names JAX refuses to start (jaxlib 0.10)."""
    names, fraction = on_four_gpus(limit_with_jax_s_new_name, XLA_CLIENT_MEM_FRACTION="0.9")
    assert names == ["XLA_CLIENT_MEM_FRACTION"]
    assert fraction < 0.5


def limits_that_are_no_round_fraction():
    """Return the limits that JAX's fraction exceeds."""
    total, over = gpus()[1].memory_total, []
    for number in range(1, 40):
        choose("1", memory_limit=number * 1_999_999_993)
        fraction = float(os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"])
        over += [number] * (fraction * total > number * 1_999_999_993)
    return over


def test_jax_s_fraction_never_allows_more_than_the_limit(on_four_gpus: Runner) -> None:
    assert on_four_gpus(limits_that_are_no_round_fraction) == []


@gives([False, True, ["TF_FORCE_GPU_ALLOW_GROWTH"]], on="on_four_gpus")
def test_the_same_choice_of_a_frozen_process_can_still_say_memory():
    choose("1")
    start_cuda()
    same = choose("1", growth=True)
    warnings.simplefilter("ignore")
    return [bool(same.refusal), bool(choose("2").refusal), sorted(variables())[:1]]


@gives("CUDA has not started, so --in-process is not needed. Try %gpus 2", on="on_four_gpus")
def test_in_process_is_for_a_process_where_cuda_is_initialized():
    return choice_error(choose, "2", in_process=True)


def started_under_none():
    import jax

    choose("none")
    jax.devices()
    return repr(choose("1")).splitlines()[-1]


@pytest.mark.nightly  # the line is made from `is_started` and `has_gpu`
def test_a_framework_that_has_started_without_a_gpu_is_named(on_four_gpus: Runner) -> None:
    said = on_four_gpus(started_under_none, PYTHONPATH=f"{ROOT}:{PROGRAMS / 'jax_plugin'}")
    assert said == "JAX started without a GPU and will see none until you restart."


def limit_before_imports():
    return limit(("tensorflow", "torch"))


@pytest.mark.nightly  # frameworks that are imported already are in test_imported.py
def test_a_limit_reaches_frameworks_that_are_imported_later(on_four_gpus: Runner) -> None:
    assert on_four_gpus(limit_before_imports) == LIMITED
