"""Adds kernels that start with GPUs to Jupyter, lists them and removes them."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_magic.errors import ChoiceError, GpuMagicError, NotFreeError
from gpu_magic.gpus.options import plan_memory
from gpu_magic.gpus.request import Auto, Named, Word, parse
from gpu_magic.gpus.select import select
from gpu_magic.kernelspec.begin import read_request
from gpu_magic.process.mask import Variables
from gpu_magic.process.session import current
from gpu_magic.process.view import read_machine
from gpu_magic.text import listed

if TYPE_CHECKING:
    from gpu_magic.gpus.options import Options

__all__ = ["Kernelspec", "install", "installed", "never_here", "remove"]

_MODULE = "gpu_magic.kernelspec"
_LOGOS = Path(__file__).with_name("logos")  # by the names that Jupyter looks for


@dataclass(frozen=True, slots=True)
class Kernelspec:
    """A kernel that starts with GPUs, as `gpu-magic kernel list` shows it."""

    name: str
    display_name: str
    gpus: str  # as typed after `%gpus`
    folder: str
    problem: str  # why it can't start; empty if it can


def install(
    typed: str, name: str = "", display_name: str = "", prefix: str | None = None, *, is_plain: bool = False
) -> Kernelspec:
    """Add a kernel for this Python with the GPUs typed after `%gpus`, or replace one that gpu_magic added.

    Without a prefix, install it for this user. Raises GpuMagicError if it can't be added.
    """
    request, options = read_request(typed)
    name = name or _name(request, options)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise ChoiceError(f"{name!r:.40} is not a kernel name. Use letters, digits, '.', '-' and '_'")
    specs, ipykernel = _jupyter()
    there = Path(specs.user_kernel_dir if prefix is None else f"{prefix}/share/jupyter/kernels", name.lower())
    if there.exists() and not _was_made_here(there):
        raise ChoiceError(f"{there} is another kernel. Choose a name for the new one: --name my-{name}")
    spec = ipykernel.get_kernel_dict()
    argv = [*spec["argv"], "--gpus", typed, *(["--plain"] if is_plain else [])]
    spec["argv"] = [_MODULE if word == "ipykernel_launcher" else word for word in argv]
    display_name = display_name or f"Python {sys.version_info.major} · {_title(request, options)}"
    with tempfile.TemporaryDirectory() as folder:
        path = ipykernel.write_kernel_spec(Path(folder, name), spec | {"display_name": display_name})
        shutil.copytree(_LOGOS, path, dirs_exist_ok=True)  # in place of plain Python's
        try:
            to = specs.install_kernel_spec(str(path), name, user=prefix is None, prefix=prefix)
        except OSError as error:
            other = "--user" if prefix else "--sys-prefix"
            problem = f"Cannot write the kernel: {error.strerror}: {error.filename}"
            raise ChoiceError(f"{problem}. To install it elsewhere, add {other}") from None
    return Kernelspec(name.lower(), display_name, typed, to, "")


def _was_made_here(folder: Path) -> bool:
    try:
        return _MODULE in (folder / "kernel.json").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def installed(prefix: str = "") -> list[Kernelspec]:
    """Return the kernels added by gpu_magic that Jupyter finds from this Python, or those below a prefix."""
    found = []
    for name, known in sorted(_jupyter(prefix)[0].get_all_specs().items()):
        argv = known["spec"]["argv"]
        if _MODULE in argv:
            place = argv.index("--gpus") + 1 if "--gpus" in argv else len(argv)
            gpus = "".join(argv[place : place + 1])
            problem = "" if Path(argv[0]).exists() or "/" not in argv[0] else f"{argv[0]} is gone"
            found.append(
                Kernelspec(name, known["spec"]["display_name"], gpus, known["resource_dir"], problem)
            )
    return found


def never_here(typed: str) -> ChoiceError | None:
    """Return why a kernel with these GPUs never gets them on this machine. None: it can, or that is unknown.

    The kernel can be for another machine that shares the folder. Its server can also have other variables
    than this process.
    """
    try:
        machine = read_machine(current())
        if not machine.problem:
            request, options = read_request(typed)
            plain = options.without("only_free")
            devices = select(parse(request), machine, Variables(), plain).known
            plan_memory(devices, growth=plain.growth, limit=plain.memory_limit)
    except ChoiceError as error:
        return None if isinstance(error, NotFreeError) else error
    except GpuMagicError:  # the machine cannot be read
        pass
    return None


def remove(name: str, prefix: str = "") -> str:
    """Remove a kernel added by gpu_magic. Return its folder. Raises GpuMagicError if there is none."""
    ours = [one.name for one in installed(prefix)]
    if name.lower() not in ours:  # Jupyter stores names in lower case
        raise ChoiceError(f"gpu_magic has added no kernel {name!r:.40}. It has added {listed(ours, 'none')}.")
    try:
        return str(_jupyter(prefix)[0].remove_kernel_spec(name.lower()))
    except OSError as error:
        raise ChoiceError(f"Cannot remove the kernel: {error.strerror}: {error.filename}") from None


def _jupyter(prefix: str = "") -> tuple[Any, Any]:
    """Return a manager of all kernelspecs or of those below a prefix, and ipykernel's module `kernelspec`."""
    try:
        from ipykernel import kernelspec
        from jupyter_client.kernelspec import KernelSpecManager
    except ImportError:
        raise ChoiceError(
            f"ipykernel is not installed here: {sys.executable} -m pip install ipykernel"
        ) from None
    manager = KernelSpecManager()
    if prefix:
        manager.kernel_dirs, manager.ensure_native_kernel = [f"{prefix}/share/jupyter/kernels"], False
    return manager, kernelspec


def _name(request: str, options: Options) -> str:
    """Return a name for a kernel: `gpu-auto-2`, `gpu-2-0`."""
    texts = [request]
    for name, value in options.without("only_free").given().items():
        texts += [] if name in ("model", "min_free") else [name]  # which are known by their values
        texts += [] if value is True else [str(value)]
    words = re.findall(r"[A-Za-z0-9]+", " ".join(texts))
    return "-".join(["gpu", *words]).lower()


def _title(request: str, options: Options) -> str:
    """Return the part of the display name that names the GPUs: `2 free GPUs with 20GB`, `GPU 2`."""
    asked = parse(request)
    kind = "GPU" if options.model is None else f"{options.model} GPU"
    memory = f" with {options.min_free}" if options.min_free else ""
    memory += str(options.without("only_free", "min_free", "model"))
    match asked:
        case Auto(count=1):
            return f"a free {kind}{memory}"
        case Auto(count=count):
            return f"{count} free {kind}s{memory}"
        case Word.ALL:
            return f"all GPUs{memory}"
        case Named(identifiers=names):
            return f"GPU{'s' if len(names) > 1 else ''} {', '.join(map(str, names))}{memory}"
    return "no GPU"
