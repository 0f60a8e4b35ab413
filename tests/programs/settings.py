"""What `choose` tells frameworks that are not imported yet."""

import sys
import warnings

from IPython.core.interactiveshell import InteractiveShell

from gpu_magic import choose
from tests.programs.choosing import start_cuda, variables, visible_devices
from tests.programs.errors import choice_error


def growth():
    said = repr(choose("1", growth=True)).split("\n")[-1]
    return {"said": said, "variables": variables()}


def growth_and_another_choice():
    choose("1", growth=True)
    choose("1")
    return variables()


def growth_and_reset():
    choose("1", growth=True)
    choose("reset")
    return {"variables": variables(), "visible devices": visible_devices()}


def growth_in_a_dry_run():
    said = repr(choose("1", growth=True, dry_run=True)).split("\n")[-2:]
    return {"said": said, "variables": variables()}


def growth_without_gpus():
    return choice_error(choose, "none", growth=True)


def unloading():
    shell = InteractiveShell.instance()
    for line in ("%load_ext gpu_magic", "%gpus 1 --growth --memory-limit 8GiB"):
        shell.run_cell(line)
    loaded = sorted(variables())
    shell.run_cell("%unload_ext gpu_magic")
    return {
        "loaded": loaded,
        "unloaded": variables(),
        "hooks": [type(one).__name__ for one in sys.meta_path if "gpu_magic" in type(one).__module__],
    }


def limit_before_imports():
    said = repr(choose("1,2", memory_limit="8GiB")).split("\n")[-1]
    import tensorflow  # noqa: F401, ICN001 - it is to be imported
    import torch  # noqa: F401

    from tests.programs.limits import limits, limits_after_another_choice

    return {"said": said, **limits(), "after another choice": limits_after_another_choice()}


def limit_with_jax_s_new_name():
    choose("1", memory_limit="8GiB")
    from jaxlib.xla_client import generate_pjrt_gpu_plugin_options as options

    return {"variables": list(variables()), "fraction": options()["memory_fraction"]}


def growth_once_cuda_is_initialized():
    choose("1")
    start_cuda()
    same = choose("1", growth=True)
    found = {"same choice": [bool(same.refusal), sorted(variables())[:1]]}
    warnings.simplefilter("ignore")
    other = choose("2")
    return {**found, "other choice": [bool(other.refusal), sorted(variables())[:1]]}


def in_process_before_cuda_is_initialized():
    return choice_error(choose, "2", in_process=True)
