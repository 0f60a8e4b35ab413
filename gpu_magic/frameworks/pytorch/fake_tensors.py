"""Makes fake tensors, which have everything but data, in place of real ones. It imports PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from gpu_magic.frameworks.prediction import NotFollowed
from gpu_magic.frameworks.pytorch.tensors import type_and_shape
from gpu_magic.selection.target import LogicalDevice

__all__ = ["FakeTensors"]

_CPU = torch.device("cpu")


class FakeTensors:
    """Fake tensors of the CPU, one for each real tensor. Those of views share a storage as the real ones do.

    They are of the CPU wherever the real ones are: a build without CUDA has no fake `linear` for a GPU, and
    with one a fake tensor of a GPU starts CUDA (PyTorch 2.13, torch/_subclasses/fake_tensor.py).
    """

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._real: list[Any] = []  # what is remembered by its id has to live
        self._by_id: dict[int, Any] = {}

    def fake(self, tensor: Any) -> Any:
        """Return the fake tensor of a real one, with that of its gradient.

        Raises
        ------
        NotFollowed
            There is none for tensors of this kind.

        """
        if isinstance(tensor, FakeTensor):
            return tensor
        found = self._by_id.get(id(tensor))
        if found is None:
            try:
                with torch._C.DisableTorchFunction(), _disable_current_modes():  # noqa: SLF001
                    found = self._made(tensor)
            except Exception as error:  # noqa: BLE001 - PyTorch has many reasons
                raise NotFollowed(f"{_described(tensor)} can't be copied without its data: {error}") from None
            self._real.append(tensor)
            self._by_id[id(tensor)] = found
        return found

    def cast(self, tensor: Any, dtype: Any) -> None:
        """Have the fake tensor of a real one be of another dtype, without a gradient."""
        fake = self.fake(tensor)
        with torch._C.DisableTorchFunction(), _disable_current_modes(), self.mode:  # noqa: SLF001
            new = torch.empty_strided(fake.size(), fake.stride(), dtype=dtype)
            if isinstance(tensor, torch.nn.Parameter):
                new = torch.nn.Parameter(new, requires_grad=tensor.requires_grad)
        self._by_id[id(tensor)] = new

    def present(self) -> dict[LogicalDevice, int]:
        """Return the bytes of the real tensors on each device other than the CPU."""
        found: dict[LogicalDevice, dict[int, int]] = {}
        for tensor in self._real:
            for one in (tensor, tensor.grad if tensor.is_leaf else None):
                if one is None or one.device.type in ("cpu", "meta") or one.layout is not torch.strided:
                    continue
                device = LogicalDevice("gpu", one.device.index or 0, one.device.type)
                storage = one.untyped_storage()
                found.setdefault(device, {})[storage._cdata] = storage.nbytes()  # noqa: SLF001
        return {device: sum(storages.values()) for device, storages in found.items()}

    def close(self) -> None:
        """Let go of all tensors."""
        self._real.clear()
        self._by_id.clear()

    def _made(self, tensor: Any) -> Any:
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise ValueError("it has no shape yet; call the model once")  # noqa: TRY004
        converter = self.mode.fake_tensor_converter
        is_number = tensor.dim() == 0 and tensor.device.type == "cpu" and tensor.layout is torch.strided
        # A number on the CPU is known: an optimizer counts its steps in one, and reads it. It is a copy, as
        # what is done with the fake one is done with its constant.
        constant = tensor.detach().clone() if is_number and type(tensor) is torch.Tensor else None

        def make(meta: Any, device: Any = None) -> Any:
            del device
            return FakeTensor(self.mode, meta(), _CPU, constant=constant)

        found = converter.meta_converter(tensor, callback=make)
        if found is NotImplemented:
            raise NotImplementedError("PyTorch has no fake tensors of its kind")
        if constant is not None and found.constant is not None:
            converter.add_constant_storage_mapping(found)
        return found


def _described(tensor: Any) -> str:
    try:
        return str(type_and_shape(tensor))
    except Exception:  # noqa: BLE001 - it has no shape
        return f"A {type(tensor).__name__}"
