"""What other packages' objects do with tensors and devices, and nothing else; see test_objects.py."""

import collections
import threading

import torch
from torch import nn


class Pipe:
    """Moves itself, as one of another package's or of the user's."""

    __module__ = "torch"

    def __init__(self):
        self.model, self.held = nn.Linear(2, 2), {"x": torch.ones(2)}

    def to(self, device):
        self.model.to(device)
        self.held["x"] = self.held["x"].to(device)


class Graph:  # as PyTorch Geometric's Data: it makes a new one
    __module__ = "torch"

    def __init__(self, x):
        self.x = x

    def to(self, device):
        return type(self)(self.x.to(device))


class CacheLayer:
    __module__ = "transformers.cache_utils"

    def __init__(self):
        self.keys = torch.ones(1, 2, 3)
        self.dtype, self.device = self.keys.dtype, self.keys.device

    def update(self, keys):
        self.keys = torch.cat([self.keys, keys.to(self.device)], dim=-2)


class Cache:
    __module__ = "transformers.cache_utils"

    def __init__(self):
        self.layers, self.layer_class, self.offloading = [CacheLayer()], CacheLayer, False


class Output(collections.OrderedDict):
    """Keeps each field as an item and as an attribute."""

    __module__ = "transformers.modeling_outputs"

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __setattr__(self, name, value):
        super().__setitem__(name, value)
        super().__setattr__(name, value)

    def pop(self, *_):
        raise RuntimeError

    __delitem__ = pop


class Pipeline:
    """Puts what it is given on the device that it remembers."""

    __module__ = "transformers.pipelines.base"

    def __init__(self, model=None):
        self.model, self.device, self.tokenizer = (
            model or nn.Linear(2, 2),
            torch.device("cpu"),
            threading.Lock(),
        )


class Remembering(nn.Module):
    """Remembers its device when its own `to` is called, for all of its kind within it."""

    def __init__(self):
        super().__init__()
        self.remembered = torch.device("cpu")

    def to(self, device):
        for one in self.modules():
            if isinstance(one, Remembering):
                one.remembered = torch.device(device)
        return super().to(device)


class Metric(nn.Module):
    """Has states that are plain attributes; moves them, and remembers where to, in `_apply`."""

    def __init__(self):
        super().__init__()
        self.remembered, self.total = torch.device("cpu"), torch.zeros(1)
        self.defaults = {"total": torch.zeros(1)}

    def _apply(self, fn, *args, **kwargs):
        super()._apply(fn, *args, **kwargs)
        self.total, self.defaults = fn(self.total), {"total": fn(self.defaults["total"])}
        self.remembered = fn(torch.zeros(1, device=self.remembered)).device
        return self


class Lit(Remembering):
    def __init__(self):
        super().__init__()
        self.net, self.metric, self.inner = nn.Linear(2, 2), Metric(), Remembering()


class Refusing(nn.Module):
    """As `PreTrainedModel` of transformers does where its weights are quantized."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 2)

    def to(self, *args, **kwargs):
        raise ValueError("`.to` is not supported for `8-bit` models")
