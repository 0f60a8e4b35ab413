"""gpu_magic: choose GPUs in a notebook before a framework starts, and be told when it is too late.

>>> %load_ext gpu_magic
>>> %gpus 1,3
>>> %%on_gpu 0
... model = torch.nn.Linear(4, 2)

The same from Python: `gpu_magic.gpus()`, `.choose("1,3")`, `.guard()`, `.on_gpu(0)`,
`.devices_of(model)`, `.to_gpu(model)`, `.gpu_free()`, `.panel()`.

`__init__.pyi` lists the public names. Each name is imported on first use.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import gpu_magic.process.drivers as _drivers

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

del _drivers  # imported only for its hook, which asks the CUDA driver before each fork

__version__ = "0.1.0"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magics to a shell: `%load_ext gpu_magic`."""
    from gpu_magic.shell.extension import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics, and restore what they set: `%unload_ext gpu_magic`."""
    from gpu_magic.shell.extension import unload

    unload(shell)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Return the module of gpu_magic's Jupyter Server extension."""
    return [{"module": "gpu_magic.server.extension"}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Return the folder that `jupyter labextension develop` links, and the name of the link."""
    return [{"src": "labextension", "dest": "gpu-magic"}]


@cache
def _homes() -> dict[str, str]:
    """Return the module of each public name. The stub has `from MODULE import NAME as NAME`."""
    with open(f"{__file__}i", encoding="utf-8") as stub:  # noqa: PTH123 - importing pathlib takes longer than all else
        words = list(map(str.split, stub))
    return {line[3]: line[1] for line in words if line[2:5:2] == ["import", "as"]}


def __getattr__(name: str) -> Any:
    __tracebackhide__ = True
    if name == "__all__":
        return sorted(_homes().keys() - {"map"})  # `import *` must not replace the built-in
    home = None if name.startswith("__") else _homes().get(name)
    if home is None:
        raise AttributeError(f"module 'gpu_magic' has no attribute {name!r}")
    found = getattr(import_module(home), name)
    if package := sys.modules.get(f"gpu_magic.{name}"):  # which the function hides
        # `import gpu_magic.fit.fit as f` looks the module up in the function.
        there = tuple(vars(package).items())  # another thread can import a module meanwhile
        vars(found).update((key, one) for key, one in there if isinstance(one, ModuleType))
    return found


def __dir__() -> list[str]:
    return sorted([*_homes(), "__version__", "load_ipython_extension", "unload_ipython_extension"])


class _Package(ModuleType):
    """The class of the package. A subpackage does not hide the function with its name, such as `fit`."""

    def __setattr__(self, name: str, value: object) -> None:
        # Python sets each imported subpackage as an attribute of its package.
        if not (isinstance(value, ModuleType) and name in _homes()):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # cloudpickle knows only plain modules, so a function that uses gpu_magic could not go to a worker.
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
