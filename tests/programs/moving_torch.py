"""`to_gpu` with PyTorch's tensors, modules and optimizers, on the pretend accelerator."""

import gc

import pretend_native
import torch
import torch._dynamo  # which the first optimizer imports: two seconds, once for all programs here
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpu_magic import to_cpu, to_gpu
from tests.programs.errors import placement_error


def allocated(index):
    gc.collect()
    return torch.accelerator.memory_allocated(f"pretend:{index}")


def views():
    x = torch.arange(24.0).view(4, 6)
    old = [x[1:3], x[:, 2], x[::2, ::3], x.t(), x.view(torch.int32)]
    moved = to_gpu([x, x, *old], 1)
    new = moved[2:]
    found = {
        "one thing is one": moved[0] is moved[1],
        "storages": len({one.untyped_storage()._cdata for one in moved}),
        "devices": sorted({str(one.device) for one in moved}),
        "strides": [one.stride() for one in new],
        "strides before": [one.stride() for one in old],
        "are equal": [torch.equal(a.cpu(), b) for a, b in zip(new, old, strict=True)],
    }
    moved[0].fill_(7)
    return {**found, "column, after a fill": moved[3].tolist(), "original": [x[0, 0].item(), str(x.device)]}


def part_of_a_big_one():
    big = torch.zeros(1 << 20)
    part = to_gpu(big[1000:1003], 0)
    return {"allocated": allocated(0), "part": part.tolist()}


def expanded():
    wide = to_gpu(torch.ones(3, 1).expand(3, 5), 0)
    return {"stride": wide.stride(), "allocated": allocated(0)}


def channels_last():
    last = to_gpu(torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last), 0)
    return last.is_contiguous(memory_format=torch.channels_last)


def complex_numbers():
    z = torch.randn(3, dtype=torch.complex64)
    _, conjugate, imaginary = to_gpu([z, z.conj(), z.imag], 0)
    return {
        "is conjugate": conjugate.is_conj(),
        "conjugate is equal": torch.equal(conjugate.conj().cpu(), z),
        "imaginary part is equal": torch.equal(imaginary.cpu(), z.imag),
    }


def empty_and_scalar():
    return {"shape": to_gpu(torch.empty(0, 3), 0).shape, "item": to_gpu(torch.tensor(5), 0).item()}


def leaf_and_its_view():
    w = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], requires_grad=True)
    (w * w).sum().backward()
    heard = []
    w.register_hook(lambda grad: heard.append(grad.device.type))
    w.label = "mine"
    grad, row = w.grad, w[1]
    moved = to_gpu({"w": w, "row": row}, 0)
    found = {
        "is the same": moved["w"] is w,
        "is a leaf": [w.is_leaf, w.requires_grad],
        "devices": [str(w.device), str(w.grad.device)],
        "label": w.label,
        "gradient": w.grad.tolist(),
        "old gradient": str(grad.device),
        "view is its": moved["row"]._base is w,
    }
    moved["row"].sum().backward()  # goes to w as it is now
    return {**found, "gradient after the view's": w.grad.tolist(), "hook heard": heard}


def frozen_parameter():
    frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    moved = to_gpu(frozen, 0)
    return {
        "is the same": moved is frozen,
        "device": str(frozen.device),
        "requires_grad": frozen.requires_grad,
    }


def computed():
    return to_gpu(torch.ones(2, requires_grad=True) * 2, 0).grad_fn is not None


def inference():
    with torch.inference_mode():
        z = torch.ones(2)
    return str(to_gpu(z, 0).device)


def buffers():
    norm = to_gpu(nn.BatchNorm1d(3).eval(), 0)
    mean = norm.running_mean
    return {"training": norm.training, "device": str(mean.device), "requires_grad": mean.requires_grad}


def lazy_module():
    lazy = to_gpu(nn.LazyLinear(2), 0)
    return [str(lazy(torch.ones(1, 3, device="pretend:0")).device), str(lazy.weight.device)]


def lstm():
    lstm, x = nn.LSTM(3, 4), torch.ones(2, 3)
    before = lstm(x)[0].tolist()
    to_gpu(lstm, 1)
    found = {
        "flat weight is its weight": lstm._flat_weights[0] is lstm.weight_ih_l0,
        "device": str(lstm.weight_hh_l0.device),
    }
    return {**found, "before": before, "back again": to_cpu(lstm)(x)[0].tolist()}


def graph_of_the_last_step():
    model = nn.Linear(2, 2)
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    to_gpu(model, 0)
    model(torch.ones(1, 2, device="pretend:0")).sum().backward()
    return {"device": str(model.weight.grad.device), "gradient": model.weight.grad[0, 0].item()}


def weakly_referenced_where_tensors_are_swapped():
    pretend_native.be_like_cuda(False)
    held = nn.LSTM(2, 2)  # which has weak references to its weights
    return {"error": placement_error(to_gpu, held, 0), "device": str(held.weight_ih_l0.device)}


def trained(kind, options):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    optimizer = getattr(torch.optim, kind)(model.parameters(), **options)

    def loss():
        optimizer.zero_grad()
        out = model(torch.ones(2, 3, device=model.weight.device)).square().mean()
        out.backward()
        return out

    for _ in range(2):
        optimizer.step(loss)
    return model, optimizer, loss


def optimizer(kind, options):
    model, optimizer, loss = trained(kind, options)
    _, _, other = trained(kind, options)
    to_gpu((model, optimizer), 1)
    found = {
        "loss": loss().item(),
        "loss of one that stayed": other().item(),
        "device": str(model.weight.device),
    }
    optimizer.step(loss)
    return found


def capturable_optimizer():
    """Adam keeps its steps and its learning rate on the GPU then."""
    model = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters(), capturable=True, lr=torch.tensor(0.1))
    optimizer.state[model.weight] = {"step": torch.tensor(1.0), "exp_avg": torch.ones(3, 3)}
    to_gpu([model, optimizer], 0)
    return {
        "state": {name: str(one.device) for name, one in optimizer.state[model.weight].items()},
        "learning rate": str(optimizer.param_groups[0]["lr"].device),
    }


def optimizer_alone():
    model, optimizer, _ = trained("Adam", {})
    to_gpu(optimizer, 0)
    return [str(model.weight.device), str(optimizer.state[model.weight]["exp_avg"].device)]


def what_is_beside_a_model():
    loader = DataLoader(TensorDataset(torch.ones(4, 2)))
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    state = {"model": model, "loader": loader, "scheduler": scheduler, "scaler": scaler, "n": 3, "f": print}
    to_gpu(state, 0)
    return {
        "model": str(model.weight.device),
        "data": str(loader.dataset.tensors[0].device),
        "scheduler has its optimizer": scheduler.optimizer is optimizer,
        "scale": str(scaler._scale.device),
        "n": state["n"],
    }


def scheduler_alone():
    optimizer = torch.optim.Adam(nn.Linear(2, 2).parameters())
    return placement_error(to_gpu, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10), 0)


def number():
    return placement_error(to_gpu, 3)


def meta_tensor():
    return placement_error(to_gpu, torch.ones(2, device="meta"), 0)


def destination(wanted):
    return placement_error(to_gpu, torch.ones(2), wanted)


def already_there():
    x = torch.ones(4, 2)
    return to_gpu(x, "cpu") is x


def sparse_tensors():
    values = torch.tensor([1.0, 2.0])
    x = torch.sparse_coo_tensor([[0, 2], [1, 0]], values, (3, 3))
    moved, same = to_gpu([x, x], 0)
    return {
        "one thing is one": moved is same,
        "device": str(moved.device),
        "is coalesced": moved.is_coalesced(),
        "values": moved._values().tolist(),
        "indices": moved._indices().tolist(),
        "back again": to_cpu(moved).to_dense().tolist(),
        "before": x.to_dense().tolist(),
    }


def too_big():
    x = torch.ones(1 << 20)
    pretend_native.set_total(1, 3 << 20)
    return {
        "error": placement_error(to_gpu, [x, x[1:]], 1),
        "was allocated": torch.accelerator.max_memory_allocated("pretend:1"),
        "device": str(x.device),
    }


def room_in_the_allocator_s_cache():
    x = torch.ones(1 << 20)
    pretend_native.set_total(1, 5 << 20)
    kept = torch.ones(1 << 19, device="pretend:1")
    del kept  # its allocator keeps it, and can use it
    return str(to_gpu(x, 1).device)
