"""TensorFlow's device for as long as a block runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpu_magic.errors import PlacementError
from gpu_magic.frameworks.nested_scopes import NestedScopes
from gpu_magic.frameworks.tensorflow.devices import context, is_started, name_of, problem
from gpu_magic.selection.target import CPU

if TYPE_CHECKING:
    from gpu_magic.selection.target import LogicalDevice

__all__ = ["ABSENT", "DeviceScope", "FirstDeviceScope"]

_JOB = "/job:localhost/replica:0/task:0"
# Before the name of a device that is not there: TensorFlow uses the CPU in place of a missing device of this
# process, and raises where the device is one of a process that it does not know.
ABSENT = "/job:absent"
_scopes = NestedScopes()


class DeviceScope:
    """`tf.device`, except that it restores what was before also where contexts in the block are still open.

    Parameters
    ----------
    name
        TensorFlow's name of the device.

    """

    def __init__(self, name: str) -> None:
        self._context, self._name = context(), name

    def __enter__(self) -> None:
        self.before = self._context.device_name, self._context.device_spec
        self._context.device(self._name).__enter__()
        _scopes.enter(self)

    def __exit__(self, *exc_info: object) -> None:
        if _scopes.leave(self):
            self._context._set_device(*self.before)  # noqa: SLF001


class FirstDeviceScope:
    """Sets the device of a context that has not started, without starting it.

    `tf.device` would start it, and that takes nearly all the memory of every GPU it sees, also for somebody
    whose TensorBoard has imported TensorFlow and who will never use it.

    Parameters
    ----------
    device
        The device. Whether it is there is known at the end of the block, if TensorFlow has started by then.

    """

    def __init__(self, device: LogicalDevice) -> None:
        self._context, self._device = context(), device

    def __enter__(self) -> None:
        self.before = self._context.device_name, self._context.device_spec
        # The name that the device will have: asking for the devices now would start CUDA.
        name = f"{_JOB}/device:{self._device.kind.upper()}:{self._device.index}"
        if self._context._physical_devices is not None:  # noqa: SLF001 - they are listed already
            name = _JOB + name_of(self._device).replace("/", "/device:")
        spec = sys.modules["tensorflow"].DeviceSpec.from_string(name)
        self._context._set_device(name, spec)  # noqa: SLF001
        _scopes.enter(self)

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if _scopes.leave(self):
            self._context._set_device(*self.before)  # noqa: SLF001
        was_used = kind is None and self._device != CPU and is_started()
        if was_used and (why := problem(self._device)):
            raise PlacementError(
                f"TensorFlow was used here and ran on the CPU, not on {self._device}: {why}."
            )
