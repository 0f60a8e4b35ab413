"""What we ask of a framework, asked of the real ones; each in a process of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from gpu_magic.frameworks import KNOWN

if TYPE_CHECKING:
    from tests.conftest import Fresh


@pytest.mark.parametrize(
    ("name", "imports", "harmless", "starts"),
    [
        (
            "TensorFlow",
            "import tensorflow as tf",
            "tf.config.list_physical_devices()",
            "tf.constant(1)",
        ),
        (
            "TensorFlow",
            "import tensorflow as tf",
            "tf.config.set_visible_devices([], 'GPU')",
            "tf.device('/CPU:0').__enter__()",
        ),
        ("JAX", "import jax", "jax.config.update('jax_enable_x64', True)", "jax.devices()"),
    ],
)
def test_started_is_what_the_framework_does(
    fresh: Fresh, name: str, imports: str, harmless: str, starts: str
) -> None:
    shown = fresh(f"""
        from gpu_magic.frameworks import imported, started
        print([f.name for f in imported()])
        {imports}
        (framework,) = [f for f in imported() if f.name == {name!r}]
        print(framework.is_started())
        {harmless}
        print(framework.is_started())
        {starts}
        print(framework.is_started(), framework.has_gpu(), started())
    """)
    # It has started, and on a machine without a GPU that is not a GPU's start.
    assert shown.split("\n")[:4] == ["[]", "False", "False", "True False []"]


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
    assert shown.strip() == "['PyTorch', 'JAX'] []"


def test_nothing_is_imported_by_asking(fresh: Fresh) -> None:
    shown = fresh("""
        import sys
        from gpu_magic.frameworks import KNOWN, imported, started
        before = set(sys.modules)
        started(), imported()
        for file in KNOWN.values():
            framework = __import__(f"gpu_magic.frameworks.{file}", fromlist=["x"]).FRAMEWORK
            framework.is_started(), framework.line_for(1)
        print({name for name in set(sys.modules) - before if not name.startswith("gpu_magic")})
    """)
    assert shown.strip() == "set()"


@pytest.mark.parametrize("file", KNOWN.values())
def test_the_line_to_type_is_python_and_names_the_device(file: str) -> None:
    line = import_module(f"gpu_magic.frameworks.{file}").FRAMEWORK.line_for(3)
    compile(line, "line", "exec")
    assert "3" in line


def test_the_lines_for_tensorflow_and_jax_run(fresh: Fresh) -> None:
    """On logical CPU devices, as no GPU is here: the same calls with another kind of device."""
    fresh(
        """
        import jax, tensorflow as tf
        from gpu_magic.frameworks.jax import FRAMEWORK as Jax
        from gpu_magic.frameworks.tensorflow import FRAMEWORK as TensorFlow

        cpus = [tf.config.LogicalDeviceConfiguration()] * 4
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cpus)
        line = TensorFlow.line_for(2).replace("GPU", "CPU").replace("...", "x = tf.constant(1) + 1")
        exec(line)
        assert x.device.endswith("CPU:2"), x.device

        exec(Jax.line_for(2).replace('"gpu"', '"cpu"'))
        assert jax.numpy.zeros(1).devices() == {jax.devices("cpu")[2]}
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )
