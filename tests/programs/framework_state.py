"""What we ask of a framework, before and after it starts; no framework is imported yet."""

import sys
import types
import warnings

from gpu_magic.frameworks import KNOWN, get, imported, started


def names(frameworks):
    return [framework.name for framework in frameworks]


def tensorflow_on_the_cpu():
    found = {"imported before": names(imported())}
    import tensorflow as tf

    def devices():
        """Return what we look for, where TensorFlow keeps it."""
        context = sys.modules["tensorflow.python.eager.context"]._context
        return getattr(context, "_logical_devices", None)

    found["imported after"] = names(imported())
    found["has devices when imported"] = bool(devices())
    tf.constant(1)
    return {**found, "has devices when started": bool(devices()), "started": list(started())}


def jax_on_the_cpu():
    found = {"imported before": names(imported())}
    import jax

    def devices():
        """Return what we look for, where JAX keeps it."""
        return jax._src.xla_bridge._backends

    found["imported after"] = names(imported())
    found["has devices when imported"] = bool(devices())
    jax.devices()
    return {**found, "has devices when started": bool(devices()), "started": list(started())}


def torch_imported():
    import torch

    return {
        "imported": names(imported()),
        "started": list(started()),
        "CUDA is initialized": torch.cuda.is_initialized(),
    }


def half_imported_or_blocked():
    sys.modules |= {"torch": types.ModuleType("torch"), "torch.cuda": types.ModuleType("torch.cuda")}
    sys.modules |= {"jax": types.ModuleType("jax"), "jax._src.xla_bridge": types.ModuleType("bridge")}
    sys.modules["jax._src.xla_bridge"]._backends = 7
    sys.modules["tensorflow"] = None
    return {"imported": names(imported()), "started": list(started())}


def imported_by_asking():
    """Return the packages that are imported when all frameworks are asked, apart from Python's and ours."""
    before = set(sys.modules)
    started()
    imported()
    asked = [get(module) for module in KNOWN]
    for framework in asked:
        framework.has_gpu()
        framework.statement_for(1)
    new = {name.partition(".")[0] for name in set(sys.modules) - before}
    return {"asked": len(asked), "new": sorted(new - sys.stdlib_module_names - {"gpu_magic"})}


def broken_entry_point(*folders):
    sys.path += folders
    sys.modules["cupy"] = types.SimpleNamespace(cuda=None, ndarray=None)
    import forgetful  # noqa: F401

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = names(imported() + imported())
    return {"imported": found, "warnings": [str(one.message) for one in caught]}
