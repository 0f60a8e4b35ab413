"""What others build on: the public names, and a package that is light to import."""

from __future__ import annotations

import pydoc
from typing import TYPE_CHECKING

import pytest

import gpu_magic
import gpu_magic.testing

if TYPE_CHECKING:
    from tests.conftest import Fresh

NAMES = """
BackgroundTask BindingError CallFailed CellUsage Choice ChoiceError Claim Cluster ClusterError
CommandFailed CudaInitializedError CudaInitializedWarning Devices Diagnosis Engine Finding Fit
FitError Freed Gpu GpuMagicError GpuProcess GpuStatus GpuTime GpuUsage Gpus Guard History Inventory
KernelRestarting LaunchError MeasurementError MigInstance NotFreeError OnGpu OwnProcess OwnProcesses Parking
PlacementError PlacementWarning ProcessError SimulationError Task UNKNOWN choose cluster devices_of
doctor end_process fit gpu_free gpu_time gpus guard history launch map my_processes on_gpu panel park
tasks to_cpu to_gpu unpark wait_for
""".split()


def test_the_public_names() -> None:
    exported = [name for name in NAMES if name != "map"]  # Python's own stays what it is
    assert getattr(gpu_magic, "__all__") == exported  # noqa: B009 - the stub has none
    namespace: dict[str, object] = {}
    exec("from gpu_magic import *", namespace)
    assert set(exported) <= set(namespace)
    assert "map" not in namespace
    of_testing = "Machine SimulatedGpu SimulatedMig SimulationError simulate start_cuda"
    assert gpu_magic.testing.__all__ == of_testing.split()
    assert set(NAMES) <= set(dir(gpu_magic))
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = gpu_magic.nothing_like_it  # type: ignore[attr-defined]


def test_every_public_name_is_there_and_documented() -> None:
    for name in set(NAMES) - {"UNKNOWN"}:
        thing = getattr(gpu_magic, name)
        assert pydoc.getdoc(thing), name
        assert not isinstance(thing, type(gpu_magic)), "a folder hides the function of its name"


def test_functions_that_use_it_go_to_the_workers_of_joblib_ray_and_dask(fresh: Fresh) -> None:
    """These pickle a notebook's functions with cloudpickle. A decorated one does not take all variables along."""
    shown = fresh("""
        import threading
        import cloudpickle
        import gpu_magic

        cannot_be_pickled = threading.Lock()

        def state():
            return gpu_magic.guard().can_change, gpu_magic is __import__("gpu_magic")

        @gpu_magic.on_gpu("cpu")
        def double(x):
            return 2 * x

        block = gpu_magic.on_gpu("cpu")

        def inside(x):
            with block:
                return 3 * x

        sent = cloudpickle.dumps([state, double, inside])
        state, double, inside = cloudpickle.loads(sent)
        print(state(), double(2), inside(2))
    """)
    assert shown == "(True, True) 4 6\n"


def test_importing_it_imports_nothing(fresh: Fresh) -> None:
    shown = fresh("""
        import sys
        before = set(sys.modules)
        import gpu_magic
        loaded = set(sys.modules) - before
        print(sorted(name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names))
    """)
    modules = ("", ".process", ".process.drivers", ".process.environment")
    assert shown.strip() == str([f"gpu_magic{module}" for module in modules])


def test_a_choice_in_a_script_does_not_load_the_event_loop(fresh: Fresh) -> None:
    shown = fresh("""
        import os, sys
        os.environ["GPU_MAGIC_SIMULATE"] = "2xA100-80GB"
        import gpu_magic
        gpu_magic.choose(1)
        print("asyncio" in sys.modules)
    """)
    assert shown == "False\n"


def test_the_table_loads_nothing_of_a_choice(fresh: Fresh) -> None:
    shown = fresh("""
        import os, sys
        os.environ["GPU_MAGIC_SIMULATE"] = "2xA100-80GB"
        import gpu_magic
        print(gpu_magic.gpus())
        print(sorted(name for name in sys.modules if name.startswith(("gpu_magic.gpus.", "gpu_magic.option"))))
    """)
    assert shown.splitlines()[-1] == "['gpu_magic.gpus.table']"


def test_a_name_stays_a_function_when_its_rooms_are_loaded(fresh: Fresh) -> None:
    fresh("""
        import gpu_magic
        gpu_magic.gpus(), gpu_magic.guard()
        gpu_magic.on_gpu("cpu").__enter__(), gpu_magic.devices_of([])
        import gpu_magic.gpus.choice, gpu_magic.gpus.select, gpu_magic.process.guard
        names = ("gpus", "guard", "choose", "on_gpu", "devices_of", "to_gpu", "to_cpu", "gpu_free")
        assert all(callable(getattr(gpu_magic, name)) for name in names)
    """)


def test_every_module_can_be_imported_under_another_name(fresh: Fresh) -> None:
    """Also if a public function hides its folder."""
    shown = fresh("""
        import pkgutil, sys
        import gpu_magic
        for name in ("cluster", "doctor", "fit", "gpus", "launch", "on_gpu", "panel", "park"):
            folder = f"{gpu_magic.__path__[0]}/{name}"
            for module in (f"gpu_magic.{name}.{one.name}" for one in pkgutil.iter_modules([folder])):
                exec(f"import {module} as it")
                assert it is sys.modules[module], module
            assert callable(getattr(gpu_magic, name))
        import gpu_magic.gpus.wait
        print(gpu_magic.gpus.wait.__name__)
    """)
    assert shown == "gpu_magic.gpus.wait\n"


def test_a_folder_does_not_hide_the_function_of_its_name(fresh: Fresh) -> None:
    code = "import sys, types, gpu_magic; gpu_magic.doctor = types.ModuleType('x'); print(gpu_magic.doctor.__name__)"
    assert fresh(code) == "doctor\n"
