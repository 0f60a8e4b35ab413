"""TensorFlow, JAX and CuPy: calls that start CUDA, and calls that do not."""

from __future__ import annotations

from tests.gpu.claim import Seen, claim
from tests.gpu.programs.common import alone, counted
from tests.gpu.programs.cuda import LIVE, answer_now


@claim(
    "`import tensorflow` does not start CUDA.",
    "frameworks/tensorflow.py",
    "TensorFlow for CUDA",
)
def importing_tensorflow() -> Seen:
    alone()
    import tensorflow as tf

    answer = answer_now()
    return Seen(answer in LIVE, f"after import tensorflow {tf.__version__}: {answer}")


@claim(
    "`tf.config.list_physical_devices()` starts CUDA.",
    "frameworks/tensorflow.py",
    "TensorFlow for CUDA",
)
def listing_in_tensorflow() -> Seen:
    alone()
    import tensorflow as tf

    count = len(tf.config.list_physical_devices("GPU"))
    answer = answer_now()
    return Seen(count == 1 and answer == "started", f"{counted(count)}, and CUDA is {answer}")


@claim(
    "TensorFlow sees a choice that you make after `import tensorflow`.",
    "gpus/apply.py",
    "TensorFlow for CUDA",
    "a driver",
)
def choice_in_tensorflow() -> Seen:
    import tensorflow as tf

    import gpu_magic
    from tests.gpu.programs.common import used

    gpu_magic.choose(used()[0], growth=True)
    gpus = tf.config.list_physical_devices("GPU")
    growth = bool(gpus) and bool(tf.config.experimental.get_memory_growth(gpus[0]))
    with gpu_magic.on_gpu(0):
        device = tf.ones(1).device
    return Seen(
        len(gpus) == 1 and growth and "GPU:0" in device,
        f"{counted(len(gpus))}, growth {growth}, a tensor on {device}",
    )


@claim("`import jax` does not start CUDA.", "frameworks/jax.py", "JAX for CUDA")
def importing_jax() -> Seen:
    alone()
    import jax

    answer = answer_now()
    return Seen(answer in LIVE, f"after import jax {jax.__version__}: {answer}")


@claim("`jax.devices()` starts CUDA.", "frameworks/jax.py", "JAX for CUDA")
def listing_in_jax() -> Seen:
    alone()
    import jax

    count = len(jax.devices("cuda"))
    answer = answer_now()
    return Seen(count == 1 and answer == "started", f"{counted(count)}, and CUDA is {answer}")


@claim(
    "JAX sees a choice that you make after `import jax`.",
    "gpus/apply.py",
    "JAX for CUDA",
    "a driver",
)
def choice_in_jax() -> Seen:
    import jax

    import gpu_magic
    from tests.gpu.programs.common import used

    gpu_magic.choose(used()[0], growth=True)
    with gpu_magic.on_gpu(0):
        platform = jax.numpy.ones(1).devices().pop().platform
    count = len(jax.devices("cuda"))
    return Seen(count == 1 and platform == "gpu", f"{counted(count)}, an array on the {platform}")


@claim("`import cupy` does not start CUDA.", "frameworks/cupy.py", "CuPy")
def importing_cupy() -> Seen:
    alone()
    import cupy

    answer = answer_now()
    return Seen(answer in LIVE, f"after import cupy {cupy.__version__}: {answer}")


@claim("`cupy.cuda.runtime.getDeviceCount()` starts CUDA.", "frameworks/cupy.py", "CuPy")
def counting_in_cupy() -> Seen:
    alone()
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    answer = answer_now()
    return Seen(count == 1 and answer == "started", f"{counted(count)}, and CUDA is {answer}")


@claim(
    "In a block on a GPU, CuPy creates arrays on that GPU. `%to_gpu` moves NumPy arrays to that GPU as CuPy "
    "arrays.",
    "frameworks/cupy.py",
    "CuPy",
)
def placing_in_cupy() -> Seen:
    alone()
    import cupy

    import gpu_magic

    with gpu_magic.on_gpu(0):
        inside = cupy.ones(3).device.id
    moved = gpu_magic.to_gpu(cupy.asnumpy(cupy.ones(3)), 0, numpy="cupy")
    is_so = inside == 0 and isinstance(moved, cupy.ndarray)
    return Seen(is_so, f"an array on {inside}, a NumPy array became an array of {type(moved).__module__}")
