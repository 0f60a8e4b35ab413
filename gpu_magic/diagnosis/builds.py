"""The frameworks as they are installed, and the CUDA that each was built for: nothing is imported.

- PyTorch: torch/version.py has `cuda = '12.6'`, and None in a CPU-only build; without it the local version
  has it ("+cu126", "+cpu"), or a requirement (nvidia-cuda-runtime-cu12 12.6.77).
- TensorFlow: tensorflow/python/platform/build_info.py has `is_cuda_build` and `cuda_version`.
- JAX: jaxlib alone is CPU-only. jax-cuda12-plugin and jax-cuda13-plugin bring CUDA, and are not used unless
  their version is jaxlib's (jaxlib 0.10, plugin_support.py, `check_plugin_version`).
- CuPy: cupy-cuda12x is for CUDA 12; `cupy` was built where it is, or comes from conda.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from gpu_magic.devices.unknown import UNKNOWN, Unknown
from gpu_magic.diagnosis.facts import Build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["find_package", "installed", "loaded_version", "module_places", "read_builds"]

_TENSORFLOW = (
    "tensorflow",
    "tensorflow-cpu",
    "tf-nightly",
    "tf-nightly-cpu",
    "tensorflow-rocm",
)
_CUPY = (
    *("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy-cuda118", "cupy-cuda117"),
    *("cupy-rocm-7-0", "cupy-rocm-6-0", "cupy-rocm-5-0", "cupy-rocm-4-3"),
    "cupy",
)
_OF_INTEL = "Intel's GPUs (XPU)"
_JAX_CUDA = {"jax-cuda13-plugin": "13", "jax-cuda12-plugin": "12"}
_JAX_ROCM = {"jax-rocm7-plugin": "7", "jax-rocm60-plugin": "6"}
# Where libraries of CUDA can lie besides packages of pip's: in the system, a toolkit, a conda environment.
_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/local/cuda/lib64",
    "usr/local/cuda/targets/x86_64-linux/lib",
)
_MAJORS = ("13", "12", "11")
_MOST_READ = 1 << 16  # bytes of a file
_MOST_OF_LIST = 1 << 22  # bytes of a list of libraries, which can have some thousand


def read_builds(
    paths: Sequence[str] | None = None, root: Path = Path("/"), library_path: str = ""
) -> tuple[Build, ...]:
    """Return the frameworks that are installed.

    Parameters
    ----------
    paths
        Where modules are looked for; None: as Python does, in `sys.path`.
    root
        The folder with the system's libraries.
    library_path
        LD_LIBRARY_PATH, as this process was started.

    """
    places = module_places() if paths is None else list(paths)
    readers: list[Callable[[], Build | None]] = [
        partial(_torch, places),
        partial(_tensorflow, places, root, library_path),
        partial(_jax, places),
        partial(_cupy, places),
    ]
    return tuple(build for read in readers if (build := read()) is not None)


def module_places() -> list[str]:
    """Return the folders of `sys.path`; what else is in it, as a `Path`, Python leaves out, too."""
    return [place for place in sys.path if isinstance(place, str)]


def installed(name: str, places: Sequence[str]) -> Distribution | None:
    """Return the distribution of a name that is found first; None where there is none that can be read."""
    return next(_all_installed(name, places), None)


def _all_installed(name: str, places: Sequence[str]) -> Iterator[Distribution]:
    """Yield the distributions of a name; what an interrupted installation has left has no version."""
    context = DistributionFinder.Context(name=name, path=list(places))
    return (found for found in Distribution.discover(context=context) if _version(found))


def _behind(name: str, places: Sequence[str]) -> tuple[str, ...]:
    """Return the versions of a distribution in other folders than the first."""
    folders = {str(found.locate_file("")): _version(found) for found in _all_installed(name, places)}
    return tuple(folders.values())[1:]


def find_package(module: str, places: Sequence[str]) -> Path | None:
    """Return the folder of a package that Python would import, without importing it."""
    spec = PathFinder.find_spec(module, list(places))
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None


def _torch(places: list[str]) -> Build | None:
    found = installed("torch", places)
    folder = find_package("torch", places)
    if found is None and (folder is None or not (folder / "version.py").exists()):
        return None  # a folder of the user's that is called so
    stated = _assigned(_text(folder / "version.py")) if folder else {}
    version = stated.get("__version__") or (_version(found) if found else "")
    build = partial(
        Build,
        "PyTorch",
        "torch",
        version,
        loaded=loaded_version("torch"),
        installer=_installer(found),
        behind=_behind("torch", places),
    )
    if "cuda" in stated:
        other = _OF_INTEL if stated.get("xpu") or version.endswith("+xpu") else ""
        return build(stated["cuda"], stated.get("hip", ""), other=other)
    label = version.partition("+")[2]
    if label in ("cpu", "xpu"):
        return build("", other=_OF_INTEL if label == "xpu" else "")
    if match := re.fullmatch(r"cu(\d+)(\d)", label):
        return build(f"{match[1]}.{match[2]}")
    if match := re.match(r"rocm([\d.]+)", label):
        return build("", match[1])
    return build(_required_cuda(found.requires or []) if found else UNKNOWN)


def _required_cuda(requirements: Iterable[str]) -> str | Unknown:
    """Return the CUDA version by what a distribution needs: `nvidia-cuda-runtime-cu12==12.6.77; …`."""
    for one in requirements:
        if match := re.match(r"nvidia-cuda-runtime(?:-cu\d+)?\s*[(=~><\s]+(\d+\.\d+)", one):
            return match[1]
    return UNKNOWN


def _tensorflow(places: list[str], root: Path, library_path: str) -> Build | None:
    found = [dist for name in _TENSORFLOW if (dist := installed(name, places))]
    if not found:
        return None
    names = [str(dist.metadata["Name"]).replace("_", "-").lower() for dist in found]
    folder = find_package("tensorflow", places)
    info = _text(folder / "python/platform/build_info.py") if folder else ""
    build = partial(
        Build,
        "TensorFlow",
        names[0],
        _version(found[0]),
        loaded=loaded_version("tensorflow"),
        installer=_installer(found[0]),
        beside=tuple(names[1:]),
        parts=tuple(names),
        extras=_extras(found[0]),
    )
    values = dict(re.findall(r"\('(\w+)', '?(\w[\w.]*)'?\)", info))
    if values.get("is_cuda_build") == "True":
        cuda = values.get("cuda_version", "")
        known = re.match(r"\d+", cuda)
        lacks = _lacking(known[0] if known else "", places, root, library_path)
        return build(cuda if known else UNKNOWN, lacks=lacks)
    if values.get("is_rocm_build") == "True":
        return build("", UNKNOWN)
    is_cpu = values.get("is_cuda_build") == "False" or (not values and "cpu" in names[0])
    return build("" if is_cpu else UNKNOWN)


def _lacking(major: str, places: list[str], root: Path, library_path: str) -> str:
    """Return what of CUDA's libraries TensorFlow does not find; empty where they can be there.

    Parameters
    ----------
    major
        Of the CUDA that it was built for: pip's packages for another one have cuDNN, and a cuBLAS of another
        name. Empty where that is not known.
    places, root, library_path
        As in `read_builds`.

    """
    if any(installed(f"nvidia-cudnn-cu{one}", places) for one in ([major] if major else _MAJORS)):
        return ""
    named = [*_LIBRARY_FOLDERS, *library_path.split(":")]
    folders = [root / folder.lstrip("/") for folder in filter(None, named)] + [Path(sys.prefix) / "lib"]
    there = any(next(folder.glob("libcudnn.so*"), None) for folder in folders if folder.is_dir())
    # What the linker knows, and what this process has loaded already, from wherever that was.
    lists = (root / "etc/ld.so.cache", root / "proc/self/maps")
    if there or any("libcudnn.so" in _text(file, _MOST_OF_LIST) for file in lists):
        return ""
    return "CUDA's libraries (cuDNN), which it looks for and does not bring"


def _jax(places: list[str]) -> Build | None:
    found, library = installed("jax", places), installed("jaxlib", places)
    if found is None:
        return None
    plugins = {name: dist for name in (*_JAX_CUDA, *_JAX_ROCM) if (dist := installed(name, places))}
    with_cuda = [name for name in plugins if name in _JAX_CUDA]
    runtimes = [name.replace("-plugin", "-pjrt") for name in with_cuda]
    parts = [part for pair in zip(with_cuda, runtimes, strict=True) for part in pair]
    build = partial(
        Build,
        "JAX",
        "jax",
        _version(found),
        loaded=loaded_version("jax"),
        installer=_installer(found),
        beside=tuple(with_cuda[1:]),
        parts=tuple(part for part in parts if part in plugins or installed(part, places)),
        extras=_extras(found),
    )
    cuda: str | Unknown = next((_JAX_CUDA[name] for name in with_cuda), "")
    rocm = next((_JAX_ROCM[name] for name in plugins if name in _JAX_ROCM), "")
    if library is None:
        return build(cuda, rocm, lacks="jaxlib, without which it can't be imported")
    if not plugins and (match := re.search(r"\+cuda(\d+)", _version(library))):
        return build(match[1])  # up to jaxlib 0.4.23 (2023) it had CUDA itself
    if not plugins and _installer(found) == "conda":
        return build(UNKNOWN)  # conda's jaxlib can have CUDA in it, and its metadata does not say so
    lacks = ""
    its = _numbers(_version(library))
    if _tuple(its) > _tuple(_numbers(_version(found))):
        lacks = f"a jaxlib that it can be imported with: jaxlib {its} is newer than it"
    for name in with_cuda:
        if (mine := _numbers(_version(plugins[name]))) != its:
            lacks = f"a plug-in of jaxlib's version: {name} is {mine}, jaxlib {its}, and JAX leaves it out"
    return build(cuda, rocm, lacks=lacks)


def _cupy(places: list[str]) -> Build | None:
    found = {name: dist for name in _CUPY if (dist := installed(name, places))}
    if not found:
        return None
    name, dist = next(iter(found.items()))
    cuda = re.search(r"cuda(\d\d)(\d?)", name)
    rocm = re.search(r"rocm-(\d)-(\d)", name)
    version = f"{cuda[1]}.{cuda[2]}" if cuda and cuda[2] else cuda[1] if cuda else "" if rocm else UNKNOWN
    return Build(
        "CuPy",
        name,
        _version(dist),
        version,
        f"{rocm[1]}.{rocm[2]}" if rocm else "",
        loaded=loaded_version("cupy"),
        installer=_installer(dist),
        beside=tuple(list(found)[1:]),
        parts=tuple(found),
    )


def loaded_version(module: str) -> str:
    """Return the version of a module that is imported; empty where it is not, or does not say."""
    found = sys.modules.get(module)
    if not isinstance(found, ModuleType):  # anything can take its place
        return ""
    # A module can be one that loads itself when it is asked for something: this runs no code of it.
    version = ModuleType.__getattribute__(found, "__dict__").get("__version__")
    return str(version) if version else ""


def _version(found: Distribution) -> str:
    try:
        return str(found.version or "")
    except Exception:  # noqa: BLE001 - its METADATA can be missing, or anything
        return ""


def _installer(found: Distribution | None) -> str:
    try:
        text = found.read_text("INSTALLER") if found else ""
    except (OSError, ValueError):  # it can hold anything
        text = ""
    return (text or "").strip().lower() or "pip"


def _extras(found: Distribution) -> tuple[str, ...]:
    return tuple(map(str, found.metadata.get_all("Provides-Extra") or ()))


def _numbers(version: str) -> str:
    match = re.match(r"\d+(\.\d+)*", version)
    return match[0] if match else version


def _tuple(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _assigned(text: str) -> dict[str, str]:
    """Return the names that a module gives a text or None, `cuda: Optional[str] = '12.6'`; None is empty."""
    found = re.findall(
        r"^(\w+)(?:\s*:[^=\n]+)?\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|None)\s*$", text, re.MULTILINE
    )
    return {name: one or other for name, one, other in found}


def _text(file: Path, most: int = _MOST_READ) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(most)
    except OSError:
        return ""
