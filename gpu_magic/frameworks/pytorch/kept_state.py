"""Puts back what a followed step sets of PyTorch, and random numbers that it draws. It imports PyTorch."""

from __future__ import annotations

import contextlib
import logging
import random
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import torch

from gpu_magic.frameworks.shadow.code import is_users_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["kept_state"]

_LOG = logging.getLogger("torch._subclasses.fake_tensor")
_CUDNN = ("enabled", "benchmark", "benchmark_limit", "deterministic")
_ATTENTION = ("flash", "mem_efficient", "math", "cudnn")


@contextlib.contextmanager
def kept_state() -> Iterator[None]:
    """Put back PyTorch's settings and random numbers, where they have changed; show no warnings."""
    settings = [(read, write, read()) for read, write in _settings()]
    device = _default_device()
    drawn_by_others = _has_users_threads()
    generators = [(read, write, read()) for read, write in _generators()]
    was_silent, _LOG.disabled = _LOG.disabled, True  # it would show the traceback of what fails
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _LOG.disabled = was_silent
        if _default_device() is not device:
            torch.set_default_device(None if device is None else device.device)
        for read, write, kept in settings:
            if read() != kept:
                write(kept)
        # What other threads of the user's have drawn meanwhile must not be drawn again.
        if not drawn_by_others and not _has_users_threads():
            for read, write, kept in generators:
                if not _is_same(read(), kept):
                    write(kept)


def _settings() -> Iterator[tuple[Callable[[], Any], Callable[[Any], object]]]:
    """Yield what reads, and what sets, each of PyTorch's settings for a thread or for the process."""
    yield torch.is_grad_enabled, torch.set_grad_enabled
    yield torch.get_default_dtype, torch.set_default_dtype
    yield torch.get_num_threads, torch.set_num_threads
    yield torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    yield (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda kept: torch.set_anomaly_enabled(*kept),
    )
    yield (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda kept: torch.use_deterministic_algorithms(kept[0], warn_only=kept[1]),
    )
    for name in _CUDNN:
        yield (
            lambda name=name: getattr(torch.backends.cudnn, name),  # type: ignore[misc]
            lambda kept, name=name: setattr(torch.backends.cudnn, name, kept),  # type: ignore[misc]
        )
    for name in _ATTENTION:
        backend = torch.backends.cuda
        yield getattr(backend, f"{name}_sdp_enabled"), getattr(backend, f"enable_{name}_sdp")
    for kind in ("cpu", "cuda"):
        yield (
            lambda kind=kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)),  # type: ignore[misc]
            lambda kept, kind=kind: (  # type: ignore[misc]
                torch.set_autocast_enabled(kind, kept[0]),
                torch.set_autocast_dtype(kind, kept[1]),
            ),
        )


def _generators() -> Iterator[tuple[Callable[[], Any], Callable[[Any], object]]]:
    """Yield what reads, and what sets, the state of each of the generators that libraries draw from."""
    yield torch.get_rng_state, torch.set_rng_state
    yield random.getstate, random.setstate
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        yield numpy.get_state, numpy.set_state


def _default_device() -> Any:
    """Return the mode of `torch.set_default_device` in this thread (PyTorch 2.13, torch/__init__.py)."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # noqa: SLF001


def _has_users_threads() -> bool:
    """Return whether code of the user's runs in another thread."""
    own = threading.get_ident()
    for thread, found in sys._current_frames().items():  # noqa: SLF001
        frame = None if thread == own else found
        while frame is not None:
            if is_users_file(frame.f_code.co_filename):
                return True
            frame = frame.f_back
    return False


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two states are the same; NumPy's have an array among their parts."""
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    if hasattr(one[1], "tobytes"):
        return _of_numpy(one) == _of_numpy(other)
    return bool(one == other)


def _of_numpy(state: Any) -> tuple[Any, ...]:
    return (state[0], state[1].tobytes(), *state[2:])
