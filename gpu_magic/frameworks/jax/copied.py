"""Copies what a traced function of JAX's uses, so that no tracers are left in the user's variables."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from gpu_magic.frameworks.shadow.code import is_users_class
from gpu_magic.frameworks.shadow.objects import SHARED, Shadow

__all__ = ["shadow"]

_CUSTOM = ("custom_jvp", "custom_vjp")


def shadow() -> Shadow:
    """Return what copies functions, and the objects that they use; arrays are never changed, and shared."""
    made: list[Shadow] = []
    made.append(Shadow(lambda obj: _special(obj, made[0])))
    return made[0]


def _special(obj: Any, copies: Shadow) -> Any:
    """Return what stands in for an object that is not copied by its attributes."""
    if isinstance(obj, ModuleType):
        return None
    if isinstance(obj, type):
        return SHARED if is_users_class(obj) and _is_known(obj) else None
    cls = type(obj)
    package = cls.__module__.partition(".")[0]
    if cls.__name__ == "PjitFunction":
        return _jitted(obj, copies)
    if package in ("jax", "jaxlib") and cls.__name__ not in _CUSTOM:
        return SHARED
    # Keras knows its variables by their ids.
    if any(base.__module__.startswith("keras.") for base in cls.__mro__):
        return SHARED
    # Libraries compare with such an object by `is`: Flax's modules have one for a parent that is not known.
    is_bare = not getattr(obj, "__dict__", True) and not isinstance(obj, dict | list | set | tuple)
    is_librarys = package not in sys.stdlib_module_names and not is_users_class(cls)
    return SHARED if is_bare and is_librarys and not hasattr(cls, "__slots__") else None


def _is_known(cls: type) -> bool:
    """Return whether JAX or a library knows a class, and would not know one that is made anew.

    It is registered as a pytree (JAX 0.10, `tree_util._registry`), or a base class of a library's has seen it
    made.
    """
    registry = getattr(sys.modules.get("jax._src.tree_util"), "_registry", {})
    return cls in registry or any(base is not object and not is_users_class(base) for base in cls.__mro__)


def _jitted(function: Any, copies: Shadow) -> Any:
    """Return a jitted function over copies, with the same options (JAX 0.10, `pjit._cpp_pjit`).

    Where JAX is another one it is the function itself, which leaves in variables what it always does.
    """
    inner, info = getattr(function, "_fun", None), getattr(function, "_jit_info", None)
    jit = getattr(sys.modules.get("jax._src.pjit"), "_cpp_pjit", None)
    if inner is None or info is None or jit is None or str(inner.__module__).startswith("gpu_magic."):
        return SHARED
    new = copies.copy(inner)
    return SHARED if new is inner else jit(new, info)
