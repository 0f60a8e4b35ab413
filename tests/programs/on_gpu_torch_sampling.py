"""`on_gpu` with PyTorch and a generator of the CPU, as notebooks with a seed have it."""

import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from gpu_magic import on_gpu


def seeded():
    return torch.Generator().manual_seed(0)


MAKERS = {
    "rand": lambda: torch.rand(3, generator=seeded()),
    "randn": lambda: torch.randn(100, 3, generator=seeded()),
    "randint": lambda: torch.randint(0, 9, (4,), generator=seeded()),
    "randperm": lambda: torch.randperm(8, generator=seeded()),
    "normal": lambda: torch.normal(0.0, 1.0, (3,), generator=seeded()),
    "half": lambda: torch.rand(3, generator=seeded(), dtype=torch.float16),
}

OF_A_TENSOR = {
    "bernoulli": lambda given: torch.bernoulli(given, generator=seeded()),
    "multinomial": lambda given: torch.multinomial(given, 2, generator=seeded()),
    "multinomial as a method": lambda given: given.multinomial(2, generator=seeded()),
    "normal": lambda given: torch.normal(given, 1.0, generator=seeded()),
    "rand_like": lambda given: torch.rand_like(given, generator=seeded()),
}

IN_PLACE = {
    "normal_": lambda given: given.normal_(generator=seeded()),
    "init.normal_": lambda given: torch.nn.init.normal_(given, generator=seeded()),
    "init.uniform_": lambda given: torch.nn.init.uniform_(given, generator=seeded()),
    "init.kaiming_uniform_": lambda given: torch.nn.init.kaiming_uniform_(given, generator=seeded()),
    "init.xavier_normal_": lambda given: torch.nn.init.xavier_normal_(given, generator=seeded()),
}


def found(value):
    return {"device": str(value.device), "values": value.tolist()}


def made():
    outside = {name: found(make()) for name, make in MAKERS.items()}
    with on_gpu(1):
        return {name: {"inside": found(make()), "outside": outside[name]} for name, make in MAKERS.items()}


def of_a_tensor():
    outside = {name: found(sample(torch.full((4,), 0.5))) for name, sample in OF_A_TENSOR.items()}
    with on_gpu(1):
        return {
            name: {"inside": found(sample(torch.full((4,), 0.5))), "outside": outside[name]}
            for name, sample in OF_A_TENSOR.items()
        }


def in_place():
    outside = {name: found(fill(torch.zeros(4, 4))) for name, fill in IN_PLACE.items()}
    with on_gpu(1):
        result = {}
        for name, fill in IN_PLACE.items():
            tensor = torch.nn.Parameter(torch.zeros(4, 4)) if name.startswith("init") else torch.zeros(4, 4)
            inside = fill(tensor)
            result[name] = {
                "inside": found(inside.detach()),
                "outside": outside[name],
                "is the same": inside is tensor,
            }
        return result


def trained_weight():
    with on_gpu(1):
        weight = torch.randn(3, generator=seeded(), requires_grad=True)
        (weight * torch.ones(3)).sum().backward()
        return {"is a leaf": weight.is_leaf, "grad": str(weight.grad.device)}


def device_that_is_named():
    with on_gpu(1):
        return str(torch.randn(3, generator=seeded(), device="cpu").device)


def given_output():
    with on_gpu(1):
        there, here = torch.empty(3, device="cpu"), torch.zeros(3)
        found = {"is the same": torch.rand(3, generator=seeded(), out=there) is there}
        try:
            torch.rand(3, generator=seeded(), out=here)
        except RuntimeError as error:
            found["on the device"] = str(error).partition(" for ")[0]
        return {**found, "is unchanged": here.tolist() == [0, 0, 0]}


def weighted_sampler():
    data = TensorDataset(torch.arange(4.0))

    def drawn():
        sampler = WeightedRandomSampler([0.1, 0.2, 0.3, 0.4], 4, generator=seeded())
        return [batch.tolist() for (batch,) in DataLoader(data, 4, sampler=sampler)]

    outside = drawn()
    with on_gpu(1):
        return {"inside": drawn(), "outside": outside}


def pinned_loader():
    with on_gpu(1):
        batches = list(DataLoader(range(8), 4, pin_memory=True))
        here = torch.ones(2)
        return {
            "batches": [str(batch.device) for batch in batches],
            "is the same": here.pin_memory() is here,
        }
