"""`on_gpu` around imports of frameworks, where CuPy says that there are GPUs."""

import sys
import threading
import warnings

import cupy

from gpu_magic import PlacementWarning, on_gpu
from tests.programs.errors import placement_error


def afterwards():
    """Return where PyTorch makes tensors once the block has ended, and what is left of ours in its import."""
    import torch

    loader = torch.__spec__.loader
    return {
        "outside": str(torch.ones(1).device),
        "hooks": [
            type(one).__name__ for one in sys.meta_path if type(one).__module__.startswith("gpu_magic")
        ],
        "loader": type(loader).__name__,
        "loader is changed": "exec_module" in vars(loader),
    }


def import_statement():
    with on_gpu(2):
        cupy.ones(1)
        import torch  # noqa: F401

        found = {"inside": str(sys.modules["torch"].ones(1).device)}
        with on_gpu(1):
            found["in an inner block"] = str(sys.modules["torch"].ones(1).device)
    return {**found, **afterwards()}


def import_of_another_package():
    with on_gpu(2):
        cupy.ones(1)
        import hides_torch  # noqa: F401

        found = {"inside": str(sys.modules["torch"].ones(1).device)}
        with on_gpu(1):
            found["in an inner block"] = str(sys.modules["torch"].ones(1).device)
    return {**found, **afterwards()}


def import_from():
    with on_gpu(2):
        cupy.ones(1)
        from torch import nn  # noqa: F401

        found = {"inside": str(sys.modules["torch"].ones(1).device)}
        with on_gpu(1):
            found["in an inner block"] = str(sys.modules["torch"].ones(1).device)
    return {**found, **afterwards()}


def import_by_name():
    with on_gpu(2):
        cupy.ones(1)
        __import__("torch")

        found = {"inside": str(sys.modules["torch"].ones(1).device)}
        with on_gpu(1):
            found["in an inner block"] = str(sys.modules["torch"].ones(1).device)
    return {**found, **afterwards()}


def in_an_inner_block():
    found = {}
    with on_gpu(2):
        with on_gpu(1):
            import torch

            found["inner"] = [str(torch.ones(1).device), cupy.ones(1).device.id]
        found["outer"] = [str(torch.ones(1).device), cupy.ones(1).device.id]
    return {**found, "outside": str(torch.ones(1).device)}


def one_that_can_not_run_there():
    def use():
        with on_gpu(1):
            cupy.ones(1)
            import tensorflow as tf

            return tf

    error = placement_error(use)
    import tensorflow as tf

    return {"error": error, "outside": tf.constant(1).device[-5:]}


def one_that_fails(folder):
    sys.path.insert(0, folder)
    found = []
    with on_gpu(2):
        for _ in range(2):
            try:
                import keras  # noqa: F401
            except ImportError as error:
                found.append({"error": str(error), "is imported": "keras" in sys.modules})
    return found


def in_a_thread():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with on_gpu(2):
            thread = threading.Thread(target=__import__, args=("torch",))
            thread.start()
            thread.join()
    return [str(one.message) for one in caught if one.category is PlacementWarning]


def another_block_ends_meanwhile():
    """Have another block end while Python asks the finders, one after the other, for a module."""
    other = on_gpu(1)

    class Finder:
        def find_spec(self, name, path, target=None):
            if name == "wave":
                other.__exit__(None, None, None)

    other.__enter__()
    hook = next(one for one in sys.meta_path if type(one).__module__.startswith("gpu_magic"))
    sys.meta_path.insert(sys.meta_path.index(hook) + 1, Finder())
    sys.modules.pop("wave", None)
    import wave

    return wave.__name__
