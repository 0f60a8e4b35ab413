"""`to_gpu` with objects of packages that it does not know, which have tensors as attributes.

The packages are not installed here. The classes do what theirs do with tensors and devices, and nothing else: those
of transformers as its 4.57 has them, `Learner` as in fastai. Their module is one that is not the user's.
"""

import contextlib
import dataclasses
import threading
from collections import OrderedDict

import torch
import torch._dynamo  # as in the other files with PyTorch: they have one server
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpu_magic import devices_of, to_cpu, to_gpu
from gpu_magic.move.move import move_variables
from gpu_magic.move.names import Names
from tests.programs.errors import placement_error


class CacheLayer:
    __module__ = "transformers.cache_utils"

    def __init__(self):
        self.keys, self.values, self.is_initialized = None, None, False

    def update(self, keys, values):
        if not self.is_initialized:
            self.dtype, self.device = keys.dtype, keys.device
            self.keys = torch.tensor([], dtype=self.dtype, device=self.device)
            self.values = torch.tensor([], dtype=self.dtype, device=self.device)
            self.is_initialized = True
        self.keys = torch.cat([self.keys, keys], dim=-2)
        self.values = torch.cat([self.values, values], dim=-2)
        return self.keys, self.values


class DynamicCache:
    __module__ = "transformers.cache_utils"

    def __init__(self):
        self.layers, self.layer_class_to_replicate, self.offloading = [CacheLayer()], CacheLayer, False


class ModelOutput(OrderedDict):
    """Keeps each field that is not None as an item and as an attribute."""

    __module__ = "transformers.utils.generic"

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __delitem__(self, *args):
        raise RuntimeError("You cannot use ``__delitem__`` on a ModelOutput instance.")

    def pop(self, *args):
        raise RuntimeError("You cannot use ``pop`` on a ModelOutput instance.")


@dataclasses.dataclass
class CausalOutput(ModelOutput):
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    past_key_values: DynamicCache | None = None
    hidden_states: tuple | None = None


CausalOutput.__module__ = "transformers.modeling_outputs"


class Pipeline:
    """Puts what it is given on the device that it remembers."""

    __module__ = "transformers.pipelines.base"

    def __init__(self, model, device):
        self.model, self.device, self.tokenizer = model.to(device), torch.device(device), threading.Lock()

    def __call__(self, x):
        return self.model(x.to(self.device))


class Trainer:
    __module__ = "transformers.trainer"

    def __init__(self, model):
        self.model, self.optimizer = model, torch.optim.SGD(model.parameters())
        self.callbacks, self.lock = [], threading.Lock()


class Learner:
    __module__ = "fastai.learner"

    def __init__(self):
        self._x, self.lock = torch.ones(2), threading.Lock()


def move(names, space, **options):
    """Move variables as the magic does, and return the lines that it prints after the table."""
    lines = move_variables(Names(space, ()), names, device="1", **options)
    return [line for line in lines if "→" not in line]


def cache():
    made = DynamicCache()
    made.layers[0].update(torch.ones(1, 2, 3), torch.ones(1, 2, 3))
    return made


def moved_cache():
    one = cache()
    moved = to_gpu(one, 1)
    layer = one.layers[0]
    longer = layer.update(torch.ones(1, 1, 3, device="pretend:1"), torch.ones(1, 1, 3, device="pretend:1"))
    found = [moved is one, str(layer.keys.device), str(layer.device), list(longer[0].shape)]
    to_cpu(one)
    return [*found, str(layer.device)]


def model_output():
    out = CausalOutput(logits=torch.ones(2), past_key_values=cache(), hidden_states=(torch.ones(3),))
    moved = to_gpu(out, 1)
    return {
        "is the same": moved is out,
        "logits": [str(out.logits.device), str(out["logits"].device), out.logits is out["logits"]],
        "cache": str(out.past_key_values.layers[0].values.device),
        "hidden states": [str(out.hidden_states[0].device), out.hidden_states is out["hidden_states"]],
        "keys": list(out),
        "devices": dict(devices_of(out)),
    }


def undone():
    """Fail after a cache has been moved, and return what it says of its device."""

    class Odd:
        def __init__(self):
            self._t = torch.ones(2)

        @property
        def t(self):
            return self._t

    space = {"cache": cache(), "odd": Odd()}
    error = placement_error(move, "cache odd.t", space)
    layer = space["cache"].layers[0]
    return [error is not None, str(layer.keys.device), str(layer.device)]


def distributions():
    normal = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
    several = {
        "normal": normal,
        "categorical": torch.distributions.Categorical(logits=torch.zeros(3)),
        "multivariate": torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)),
        "independent": torch.distributions.Independent(normal, 1),
        "transformed": torch.distributions.TransformedDistribution(
            normal, [torch.distributions.AffineTransform(torch.ones(2), torch.ones(2))]
        ),
    }
    moved = to_gpu(several, 1)
    return {name: str(one.log_prob(one.sample()).device) for name, one in moved.items()}


def pipeline():
    pipe = Pipeline(nn.Linear(2, 2), "cpu")
    space = {"pipe": pipe}
    error = placement_error(move, "pipe", space)
    move("pipe.model", space)  # what the message says
    pipe.device = torch.device("pretend:1")
    return {
        "error": error,
        "then": str(pipe(torch.ones(2)).device),
        "from Python": placement_error(to_gpu, Pipeline(nn.Linear(2, 2), "cpu"), 1),
    }


def trainer():
    one = Trainer(nn.Linear(2, 2))
    space = {"trainer": one}
    error = placement_error(move, "trainer", space)
    move("trainer.model trainer.optimizer", space)
    return {"error": error, "then": str(one.model.weight.device)}


def without_parts():
    return placement_error(move, "learner", {"learner": Learner()})


def within_others():
    """A pipeline in a dict is left, and that is said; a trainer whose model moves as well has nothing left."""
    model = nn.Linear(2, 2)
    model.trainer = Trainer(model)
    space = {"state": {"pipe": Pipeline(nn.Linear(2, 2), "cpu"), "x": torch.ones(2)}, "model": model}
    return [move("state", space), move("model", space)]


def among_all():
    space = {"pipe": Pipeline(nn.Linear(2, 2), "cpu"), "x": torch.ones(2)}
    return move("", space, all_of_them=True)


def dataset():
    data = TensorDataset(torch.ones(4, 2))
    space = {"data": data, "loader": DataLoader(data, batch_size=2)}
    found = {name: placement_error(move, name, space) for name in space}
    move("data.tensors", space)  # what the message says
    return {**found, "then": str(data[0][0].device)}


class Net(nn.Module):
    def forward(self, x):
        return x + 1


def exported():
    program = torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),))
    return placement_error(to_gpu, program, 1)


def seen():
    """Return where things are that can't be moved as a whole."""
    things = {"pipe": Pipeline(nn.Linear(2, 2), "cpu"), "cache": cache(), "learner": Learner()}
    found = {name: dict(devices_of(one)) for name, one in things.items()}
    with contextlib.suppress(ImportError):
        found["shell"] = dict(devices_of(__import__("IPython").InteractiveShell.instance()))
    return found
