"""What we ask of a framework, asked of the real ones; each in a process of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from gpu_magic.frameworks import KNOWN

if TYPE_CHECKING:
    from tests.conftest import Fresh


ADD_GPU = "one.append(type(one[0])('/device:GPU:0', 'GPU'))"
CONTEXT = "__import__('sys').modules['tensorflow.python.eager.context']._context"


@pytest.mark.parametrize(
    ("name", "imports", "starts", "devices"),
    [
        (
            "TensorFlow",
            "import tensorflow as tf",
            "tf.constant(1)",
            f"getattr({CONTEXT}, '_logical_devices', None)",
        ),
        ("JAX", "import jax", "jax.devices()", "__import__('jax')._src.xla_bridge._backends"),
    ],
)
def test_a_framework_that_has_started_on_the_cpu_has_no_gpu(
    fresh: Fresh, name: str, imports: str, starts: str, devices: str
) -> None:
    """And the place where it keeps its devices is still where we look for them."""
    shown = fresh(f"""
        from gpu_magic.frameworks import imported, started
        print([f.name for f in imported()])
        {imports}
        print({name!r} in [f.name for f in imported()], bool({devices}))
        {starts}
        print(bool({devices}), started())
    """)
    assert shown.split("\n")[:3] == ["[]", "True False", "True []"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (
            "TensorFlow",
            f"import tensorflow as tf; tf.constant(1); one = {CONTEXT}._logical_devices\n{ADD_GPU}",
        ),
        ("JAX", "import jax; jax.devices(); sys.modules['jax._src.xla_bridge']._backends['cuda'] = None"),
    ],
)
def test_a_gpu_among_its_devices_is_seen(fresh: Fresh, name: str, code: str) -> None:
    """The real framework's own list, with a GPU's entry in it as the framework would write it."""
    shown = fresh(f"import sys\nfrom gpu_magic.frameworks import started\n{code}\nprint(started())")
    assert shown.strip() == f"[{name!r}]"


def test_pytorch_s_flag_is_read_and_its_cuda_not_started(fresh: Fresh) -> None:
    shown = fresh("""
        import torch
        from gpu_magic.frameworks import imported, started
        print([f.name for f in imported()], started(), torch.cuda.is_initialized())
    """)
    assert shown.strip() == "['PyTorch'] [] False"


def test_a_framework_that_is_half_imported_or_blocked_does_no_harm(fresh: Fresh) -> None:
    shown = fresh("""
        import sys, types
        from gpu_magic.frameworks import imported, started
        sys.modules |= {"torch": types.ModuleType("torch"), "torch.cuda": types.ModuleType("torch.cuda")}
        sys.modules |= {"jax": types.ModuleType("jax"), "jax._src.xla_bridge": types.ModuleType("bridge")}
        sys.modules["jax._src.xla_bridge"]._backends = 7
        sys.modules["tensorflow"] = None
        print([f.name for f in imported()], started())
    """)
    assert shown.strip() == "[] []"


def test_nothing_is_imported_by_asking(fresh: Fresh) -> None:
    shown = fresh("""
        import sys
        from gpu_magic.frameworks import KNOWN, imported, started
        before = set(sys.modules)
        started(), imported()
        for file in KNOWN.values():
            framework = __import__(f"gpu_magic.frameworks.{file}", fromlist=["x"]).FRAMEWORK
            framework.has_gpu(), framework.statement_for(1)
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(new - sys.stdlib_module_names - {"gpu_magic"})
    """)
    assert shown.strip() == "set()"


@pytest.mark.parametrize("file", KNOWN.values())
def test_the_line_to_type_is_python_and_names_the_device(file: str) -> None:
    line = import_module(f"gpu_magic.frameworks.{file}").FRAMEWORK.statement_for(3)
    compile(line, "line", "exec")
    assert "3" in line


def test_the_lines_for_tensorflow_and_jax_run(fresh: Fresh) -> None:
    """On logical CPU devices, as no GPU is here: the same calls with another kind of device."""
    fresh(
        """
        import jax, tensorflow as tf
        from gpu_magic.frameworks.jax import FRAMEWORK as Jax
        from gpu_magic.frameworks.tensorflow.framework import FRAMEWORK as TensorFlow

        cpus = [tf.config.LogicalDeviceConfiguration()] * 4
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cpus)
        line = TensorFlow.statement_for(2).replace("GPU", "CPU").replace("...", "x = tf.constant(1) + 1")
        exec(line)
        assert x.device.endswith("CPU:2"), x.device

        exec(Jax.statement_for(2).replace('"gpu"', '"cpu"'))
        assert jax.numpy.zeros(1).devices() == {jax.devices("cpu")[2]}
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )
