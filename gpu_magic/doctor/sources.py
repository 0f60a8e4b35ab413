"""Reads the system and the installed frameworks from files.

No framework is imported. Sources:

- PyTorch: torch/version.py has `cuda = '12.6'`, or None in a CPU-only build. It also has `hip` and `xpu`.
- TensorFlow: tensorflow/python/platform/build_info.py has `is_cuda_build` and `cuda_version`.
- JAX: jaxlib alone is CPU-only. jax-cuda12-plugin and jax-cuda13-plugin bring CUDA. JAX ignores them unless
  they have jaxlib's version (jaxlib 0.10, plugin_support.py, `check_plugin_version`).
- NVIDIA, "CUDA Compatibility": a driver runs builds for its major version of CUDA and for older versions.
- Containers: Docker makes /.dockerenv, Podman /run/.containerenv; Kubernetes sets KUBERNETES_SERVICE_HOST,
  Apptainer APPTAINER_CONTAINER (Singularity SINGULARITY_CONTAINER).
- A container without the driver capability "utility" has no NVML, and without "compute" no libcuda.so.1
  (NVIDIA Container Toolkit, "Driver capabilities"). /proc/driver/nvidia is the host's in any container.
- Every program that uses CUDA opens /dev/nvidiactl and /dev/nvidia-uvm. If a container's cgroup has lost
  them, opening fails with EPERM despite open permissions (nvidia-docker #1730).
- CUDA creates missing device files with nvidia-modprobe, if it is installed setuid root (nvidia-modprobe(1)).
  So after a boot, /dev/nvidia-uvm may not exist before the first use of CUDA.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.binding import PROBLEM
from gpu_magic.devices.model import UNKNOWN, Unknown
from gpu_magic.doctor.facts import Build, DeviceFile, Packages, System

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["loaded_version", "major", "read_packages", "read_system"]

_NAMED = ("nvidia-ml-py", "pynvml", "anywidget", "ipywidgets", "ipykernel", "ipython")
_CONTROL = ("nvidiactl", "nvidia-uvm")
# The folders of the driver's and CUDA's libraries in systems and containers. The last one is Apptainer's.
_LIBRARIES = (
    *("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib"),
    *("usr/local/cuda/lib64", "usr/local/nvidia/lib64", ".singularity.d/libs"),
)
_MOST_OF_LIST = 1 << 22  # bytes of a list of libraries, which can have thousands of entries


def read_system(environment: Mapping[str, str], root: Path = Path("/")) -> System:
    """Read the system from files below `root` and from the variables of this process's launch."""
    version = _text_of(root / "proc/driver/nvidia/version")
    module = re.search(r"Kernel Module\s.*?(\d+\.\d+(?:\.\d+)?)", version)
    file = root / "usr/bin/nvidia-modprobe"
    modprobe = file.stat() if file.exists() else None
    group = re.search(r"docker|kubepods|containerd|libpod|/lxc/", _text_of(root / "proc/self/cgroup"))
    containers = {
        "kubernetes": "KUBERNETES_SERVICE_HOST" in environment,
        "apptainer": environment.keys()
        & {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "SINGULARITY_NAME"},
        "podman": (root / "run/.containerenv").exists(),
        "docker": (root / ".dockerenv").exists(),
        "container": group or (root / "run/systemd/container").exists(),
    }
    kinds = {
        "Colab": environment.keys() & {"COLAB_RELEASE_TAG", "COLAB_BACKEND_VERSION", "COLAB_GPU"},
        "Kaggle": "KAGGLE_KERNEL_RUN_TYPE" in environment,
        "WSL": "microsoft" in _text_of(root / "proc/sys/kernel/osrelease").lower(),
        "Jetson": (root / "etc/nv_tegra_release").exists(),
    }
    bus = root / "sys/bus/pci/devices"
    return System(
        container=next(filter(containers.get, containers), ""),
        kind=next(filter(kinds.get, kinds), ""),
        module=module[1] if module else "",
        is_on_bus=any(map(_is_gpu, bus.iterdir())) if bus.is_dir() else UNKNOWN,
        devices=tuple(_device_files(root / "dev")),
        makes_devices=modprobe is not None and not modprobe.st_uid and bool(modprobe.st_mode & stat.S_ISUID),
        has_cuda=any((root / folder / "libcuda.so.1").exists() for folder in _LIBRARIES),
        capabilities=environment.get("NVIDIA_DRIVER_CAPABILITIES"),
    )


def _text_of(file: Path, most: int = 1 << 16) -> str:
    """Return the start of a file. Empty if it cannot be read."""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(most)
    except OSError:
        return ""


def _is_gpu(device: Path) -> bool:
    """Return whether a PCI device is an NVIDIA display controller: class 0x0300 (VGA) or 0x0302 (3D)."""
    return _text_of(device / "vendor").strip() == "0x10de" and _text_of(device / "class").startswith("0x03")


def _device_files(folder: Path) -> list[DeviceFile]:
    names = (file.name.removeprefix("nvidia") for file in folder.glob("nvidia*"))
    numbers = sorted(int(name) for name in names if name.isdecimal())
    found = []
    for name in [*_CONTROL, *(f"nvidia{number}" for number in numbers)]:
        file, error = folder / name, ""
        if name in _CONTROL:
            try:
                os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
            except OSError as problem:
                error = errno.errorcode.get(problem.errno or 0, "")
        if file.exists() or name not in _CONTROL:
            found.append(DeviceFile(f"/dev/{name}", os.access(file, os.R_OK | os.W_OK), error))
    return found


def read_packages(places: Sequence[str], root: Path = Path("/"), library_path: str = "") -> Packages:
    """Read the packages in folders of `sys.path`. `library_path` is LD_LIBRARY_PATH."""
    found = (_torch(places), _tensorflow(places, root, library_path), _jax(places), _cupy(places))
    versions = {name: one.version for name, one in _installed(_NAMED, places).items()}
    return Packages(tuple(build for build in found if build is not None), versions, PROBLEM)


def _installed(names: Sequence[str], places: Sequence[str]) -> dict[str, Distribution]:
    """Return the first installed distribution for each name, without names that are not installed."""
    found: dict[str, Distribution] = {}
    for name in names:
        context = DistributionFinder.Context(name=name, path=list(places))
        for one in Distribution.discover(context=context):
            with suppress(Exception):  # METADATA can be missing or invalid
                if one.version:  # the rest of an interrupted installation has none
                    found.setdefault(name, one)
    return found


def _text_in(module: str, path: str, places: Sequence[str]) -> str:
    """Return the text of a file in the package that Python would import. Empty if there is none."""
    spec = PathFinder.find_spec(module, list(places))
    folders = (spec and spec.submodule_search_locations) or ()
    return next((_text_of(Path(folder) / path) for folder in folders), "")


def _build(
    framework: str, found: dict[str, Distribution], built_for: str | Unknown, runtime: str = "", **more: Any
) -> Build:
    first = next(iter(found.values()), None)
    loaded = loaded_version("torch" if framework == "PyTorch" else framework.lower())
    told = {"version": first.version if first else "", "distributions": tuple(found)} | more
    return Build(framework, built_for=built_for, runtime=runtime, loaded=loaded, **told)


def _torch(places: Sequence[str]) -> Build | None:
    # `cuda: Optional[str] = '12.6'`. None has no quotes, so it does not match.
    line = r"^(\w+)(?:\s*:[^=\n]+)?\s*=\s*['\"](.*?)['\"]\s*$"
    stated = dict(re.findall(line, _text_in("torch", "version.py", places), re.MULTILINE))
    if "__version__" not in stated:
        return None  # a folder of the user named torch
    kinds = {"cuda": "CUDA", "hip": "ROCm", "xpu": "Intel's GPUs (XPU)"}
    kind = next((kind for kind in kinds if stated.get(kind)), "")
    runtime = "" if kind == "xpu" else stated.get(kind, "")
    return _build("PyTorch", {}, kinds.get(kind, "CPU"), runtime, version=stated["__version__"])


def _tensorflow(places: Sequence[str], root: Path, library_path: str) -> Build | None:
    found = _installed(("tensorflow", "tensorflow-cpu", "tensorflow-rocm"), places)
    if not found:
        return None
    info = _text_in("tensorflow", "python/platform/build_info.py", places)
    stated = dict(re.findall(r"\('(\w+)', '?(\w[\w.]*)'?\)", info))
    kinds = {"is_cuda_build": "CUDA", "is_rocm_build": "ROCm"}
    kind = next((kind for name, kind in kinds.items() if stated.get(name) == "True"), "CPU")
    cuda = stated.get("cuda_version", "") if kind == "CUDA" else ""
    # TensorFlow does not include cuDNN. The system, a cluster's module, conda or pip can have installed it.
    named = (*_LIBRARIES, *library_path.split(":"), f"{sys.prefix}/lib")
    lists = (root / "etc/ld.so.cache", root / "proc/self/maps")
    has_cudnn = (
        not cuda
        or _installed([f"nvidia-cudnn-cu{major(cuda)}"], places)
        or any(next((root / one.lstrip("/")).glob("libcudnn.so*"), None) for one in named if one)
        or any("libcudnn.so" in _text_of(one, _MOST_OF_LIST) for one in lists)
    )
    lacks = "" if has_cudnn else "CUDA's libraries (cuDNN), which it needs but does not include"
    built_for = kind if stated or "tensorflow-cpu" in found else UNKNOWN
    return _build("TensorFlow", found, built_for, cuda, lacks=lacks)


def _jax(places: Sequence[str]) -> Build | None:
    found = _installed(("jax", "jaxlib"), places)
    if "jax" not in found:
        return None
    names = [f"jax-cuda{cuda}-{part}" for cuda in (13, 12) for part in ("plugin", "pjrt")]
    parts = _installed(names, places)
    has_rocm = _installed(("jax-rocm7-plugin", "jax-rocm60-plugin"), places)
    built_for: str | Unknown = "CUDA" if parts else "ROCm" if has_rocm else "CPU"
    runtime = "".join(re.findall(r"\d+", next(iter(parts), "")))
    its, lacks = found["jaxlib"].version if "jaxlib" in found else "", ""
    for name, part in parts.items():
        if name.endswith("plugin") and part.version != its:
            why = f"{name} is {part.version} but jaxlib {its}, so JAX ignores it"
            lacks = f"a plug-in of jaxlib's version: {why}"
    with suppress(OSError, ValueError):  # the file can have any content
        if built_for == "CPU" and (found["jax"].read_text("INSTALLER") or "").strip() == "conda":
            built_for = UNKNOWN  # conda's jaxlib can include CUDA
    return _build("JAX", found, built_for, runtime, distributions=tuple(parts), lacks=lacks)


def _cupy(places: Sequence[str]) -> Build | None:
    kinds = ["cuda13x", "cuda12x", "cuda11x", "rocm-7-0", "rocm-6-0", "rocm-5-0"]
    found = _installed([*(f"cupy-{kind}" for kind in kinds), "cupy"], places)
    name = next(iter(found), "")
    kind = "CUDA" if "cuda" in name else "ROCm" if "rocm" in name else UNKNOWN
    return _build("CuPy", found, kind, "".join(re.findall(r"\d+", name)[:1])) if found else None


def loaded_version(module: str) -> str:
    """Return the version of an imported module. Empty if it is not imported or has no version."""
    found = sys.modules.get(module)
    if not isinstance(found, ModuleType):  # sys.modules can have any object
        return ""
    # This runs no code of the module, which can be a lazy one that loads on attribute access.
    return str(ModuleType.__getattribute__(found, "__dict__").get("__version__") or "")


def major(version: str) -> int:
    """Return the major number of a CUDA version. 0: there is none."""
    return int(re.match(r"\d*", version)[0] or 0)  # type: ignore[index] # it matches any text
