"""`to_gpu` with modules that remember their device, as Lightning's and those of torchmetrics do.

Neither package is installed here. The classes do what theirs do with the device, and nothing else: `Module` as
`_DeviceDtypeModuleMixin` of Lightning 2.6, `Metric` as `torchmetrics.Metric` 1.0.
"""

import torch
import torch._dynamo  # as in the other files with PyTorch: they have one server
from torch import nn

from gpu_magic import to_cpu, to_gpu
from tests.programs.errors import placement_error


class Remembering(nn.Module):
    """Remembers its device when its own `to` is called, for all of its kind within it."""

    def __init__(self):
        super().__init__()
        self._device = torch.get_default_device()

    @property
    def device(self):
        return self._device

    def to(self, *args, **kwargs):
        device = torch._C._nn._parse_to(*args, **kwargs)[0]
        for module in self.modules():
            if device is not None and isinstance(module, Remembering):
                module._device = device
        return super().to(*args, **kwargs)


class Metric(nn.Module):
    """Has states that are plain attributes; moves them, and remembers where to, in `_apply`."""

    def __init__(self):
        super().__init__()
        self._device = torch.device("cpu")
        self._defaults = {"total": torch.zeros(1), "seen": []}
        self.total, self.seen, self._computed = torch.zeros(1), [], None

    @property
    def device(self):
        return self._device

    def reset(self):
        for name, default in self._defaults.items():
            value = [] if isinstance(default, list) else default.detach().clone().to(self._device)
            setattr(self, name, value)

    def update(self, x):
        self.total = self.total + x.sum()
        self.seen.append(x)
        self._computed = None

    def compute(self):
        self._computed = self.total / len(self.seen)
        return self._computed

    def _apply(self, fn, *args, **kwargs):
        this = super()._apply(fn, *args, **kwargs)
        for name, default in this._defaults.items():
            is_list = isinstance(default, list)
            this._defaults[name] = [fn(one) for one in default] if is_list else fn(default)
            now = getattr(this, name)
            setattr(this, name, [fn(one) for one in now] if isinstance(now, list) else fn(now))
        self._device = fn(torch.zeros(1, device=self.device)).device
        if this._computed is not None:
            this._computed = fn(this._computed)
        return this


class Lit(Remembering):
    def __init__(self):
        super().__init__()
        self.net, self.accuracy, self.inner = nn.Linear(2, 2), Metric(), Remembering()


class Refusing(nn.Module):
    """As `PreTrainedModel` of transformers does where its weights are quantized."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 2)

    def to(self, *args, **kwargs):
        raise ValueError("`.to` is not supported for `8-bit` models")


def remembered(lit):
    return [str(one.device) for one in (lit, lit.inner, lit.accuracy)]


def there_and_back():
    lit = Lit()
    return [remembered(to_gpu(lit, 1)), remembered(to_cpu(lit))]


def within_another():
    lit = Lit()
    to_gpu({"model": nn.Sequential(lit)}, 1)
    return remembered(lit)


def tied():
    """Return whether what is tied to a module stays tied where the module's own methods are called."""
    lit = Lit()
    lit.accuracy.update(torch.ones(3))
    optimizer = torch.optim.SGD(lit.parameters())
    parameters, seen = list(lit.parameters()), lit.accuracy.seen
    to_gpu((lit, optimizer), 1)
    same = [one is other for one, other in zip(parameters, lit.parameters(), strict=True)]
    return {
        "parameters": all(same),
        "optimizer's": optimizer.param_groups[0]["params"][0] is parameters[0],
        "list of a metric": lit.accuracy.seen is seen,
        "its tensor": str(seen[0].device),
        "parameters with PyTorch's new behavior": tied_where_modules_overwrite(),
    }


def tied_where_modules_overwrite():
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    lit = Lit()
    parameters = list(lit.parameters())
    to_gpu(lit, 1)
    return all(one is other for one, other in zip(parameters, lit.parameters(), strict=True))


def metric_in_use():
    """Return where a metric computes that was moved, reset and updated."""
    metric = to_gpu(Metric(), 1)
    metric.update(torch.ones(3, device="pretend:1"))
    first = metric.compute()
    metric.reset()
    metric.update(torch.ones(3, device="pretend:1"))
    return [str(first.device), str(metric.compute().device), float(metric.compute())]


def refused():
    lit, refusing = Lit(), Refusing()
    error = placement_error(to_gpu, [refusing, lit], 1)  # they are told from the last to the first
    return {
        "error": error,
        "remembered": remembered(lit),
        "devices": [str(lit.net.weight.device), str(refusing.net.weight.device)],
    }


def refused_within():
    """PyTorch does not ask a module within another for its own `to`."""
    model = to_gpu(nn.Sequential(Refusing()), 1)
    return str(model[0].net.weight.device)
