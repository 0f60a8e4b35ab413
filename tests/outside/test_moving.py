"""Objects of other packages that move by their own rules, which `to_gpu` follows, or else refuses to move them."""

from __future__ import annotations

from tests.programs.errors import placement_error
from tests.programs.runner import ELSEWHERE, gives

if ELSEWHERE:
    import copy
    import logging
    import tempfile
    import warnings

    import accelerate
    import bitsandbytes as bnb
    import peft
    import pretend_native
    import pytest
    import torch
    import torchao.quantization as ao
    import transformers
    from torch import distributed, nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.masked import masked_tensor
    from torch.nn.utils import parametrizations, prune

    import gpu_magic
    from gpu_magic import FitError, devices_of, to_cpu, to_gpu
    from gpu_magic.move.move import move_variables
    from gpu_magic.objects.where import where_lines
    from gpu_magic.text import size_text
    from tests.programs.cells import shell_with_magics
    from tests.programs.reached import devices_of as devices_reached

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

WIDTH = 64


def net(*layers):
    return nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH))


def four_bit(**options):
    return bnb.nn.Linear4bit(WIDTH, WIDTH, compute_dtype=torch.float32, quant_type="nf4", **options)


def eight_bit():
    return bnb.nn.Linear8bitLt(WIDTH, WIDTH, bias=False, has_fp16_weights=False)


def tied():
    one, other = four_bit(), four_bit()
    other.weight = one.weight
    return net(one, other)


def by_torchao(config):
    model = net(nn.Linear(WIDTH, WIDTH)).eval()
    ao.quantize_(model, config)
    return model


def adapted(layer, **options):
    config = peft.LoraConfig(r=4, target_modules=["0"], init_lora_weights=False, **options)
    return peft.get_peft_model(net(layer), config).eval()


def two_adapters():
    model = adapted(nn.Linear(WIDTH, WIDTH))
    model.add_adapter("other", peft.LoraConfig(r=2, target_modules=["0"], init_lora_weights=False))
    model.set_adapter("other")
    return model.eval()


def sharded():
    mesh, model = cpu_mesh(), net(nn.Linear(WIDTH, WIDTH))
    fully_shard(model[0], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def pruned():
    layer = nn.Linear(WIDTH, WIDTH)
    prune.l1_unstructured(layer, "weight", 0.5)
    return net(layer)


def cpu_mesh():
    if not distributed.is_initialized():
        file = tempfile.NamedTemporaryFile(delete=False)  # noqa: SIM115 - the group uses it until the end
        distributed.init_process_group("gloo", init_method=f"file://{file.name}", rank=0, world_size=1)
    return init_device_mesh("cpu", (1,))


def made(name):
    torch.manual_seed(0)
    return MAKERS[name]()


if ELSEWHERE:
    MAKERS = {
        "4-bit": lambda: net(four_bit()),
        "4-bit without nested statistics": lambda: net(four_bit(compress_statistics=False)),
        "4-bit, quantized": lambda: net(four_bit()).to("npu:0"),
        "4-bit, tied": tied,
        "4-bit, a copy": lambda: copy.deepcopy(net(four_bit())),
        "4-bit, a weight": lambda: four_bit().weight,
        "8-bit": lambda: net(eight_bit()),
        "8-bit embedding": lambda: bnb.nn.modules.Embedding8bit(WIDTH, WIDTH),
        "LoRA": lambda: adapted(nn.Linear(WIDTH, WIDTH)),
        "DoRA": lambda: adapted(nn.Linear(WIDTH, WIDTH), use_dora=True),
        "LoRA, two": two_adapters,
        "LoRA over 4-bit": lambda: adapted(four_bit()),
        "torchao": lambda: by_torchao(ao.Int8WeightOnlyConfig(version=2)),
        "torchao, dynamic": lambda: by_torchao(ao.Int8DynamicActivationInt8WeightConfig(version=2)),
        "fully_shard": sharded,
        "pruned": pruned,
        "weight_norm": lambda: net(parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))),
        "spectral_norm": lambda: net(parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))).eval(),
    }


def outputs(model):
    """Return what a model computes, or the weight itself."""
    if not isinstance(model, nn.Module):
        return model.data.cpu()
    device = next(model.parameters()).device
    is_embedding = isinstance(model, nn.Embedding)
    x = torch.arange(3) if is_embedding else torch.arange(2.0 * WIDTH).reshape(2, WIDTH) / WIDTH - 1
    return model(x.to(device)).detach().cpu()


def kinds(model):
    """Return the types, dtypes and devices of the parameters and buffers."""
    found = (
        [*model.named_parameters(), *model.named_buffers()] if isinstance(model, nn.Module) else [("", model)]
    )
    return {name: (type(one), one.dtype, one.device, one.requires_grad) for name, one in found}


NAMES = [
    *("4-bit", "4-bit without nested statistics", "4-bit, quantized", "4-bit, tied", "4-bit, a copy"),
    *("4-bit, a weight", "8-bit", "8-bit embedding", "LoRA", "DoRA", "LoRA, two", "LoRA over 4-bit"),
    *("torchao", "torchao, dynamic", "fully_shard", "pruned", "weight_norm", "spectral_norm"),
]


@gives({name: [True, True, True, ["npu:1"]] for name in NAMES}, on="npu")
def test_a_move_ends_as_the_object_s_own_to():
    """The same types, dtypes, devices and results, and the same parameters as before."""
    found = {}
    for name in NAMES:
        ours, own = made(name), made(name).to("npu:1")
        before = [*ours.parameters()] if isinstance(ours, nn.Module) else [ours]
        moved = to_gpu(ours, 1)
        after = [*moved.parameters()] if isinstance(moved, nn.Module) else [moved]
        is_same = all(one is other for one, other in zip(before, after, strict=True))
        devices = [*devices_of(moved)]
        found[name] = [
            kinds(moved) == kinds(own),
            torch.equal(outputs(moved), outputs(own)),
            is_same,
            devices,
        ]
    return found


@gives([[["npu:1"], True], [["npu:1"], True], [["cpu"], True], [["npu:1"], True]], on="npu")
def test_quantized_weights_and_their_state_go_to_and_fro():
    """Also that of an 8-bit layer that has not run, which PyTorch's own `to` of a model leaves behind."""
    torch.manual_seed(0)
    model = net(four_bit(), eight_bit()).to("npu:0")
    torch.manual_seed(0)
    before = outputs(net(four_bit(), eight_bit()).to("npu:0"))
    quantized = net(four_bit()).to("cpu")
    right, copied = outputs(quantized), copy.deepcopy(quantized)  # whose weight has a state of its own
    to_gpu(copied, 1)
    held = [copied[0].weight.data, vars(copied[0].weight)["quant_state"]]
    found = [[devices_reached(held), torch.allclose(outputs(copied), right, atol=1e-5)]]
    for device in (1, "cpu", 1):
        to_gpu(model, device)
        held = [
            *model.parameters(),
            vars(model[0].weight)["quant_state"],
            vars(model[1].weight),
            model[1].state,
        ]
        found.append([devices_reached(held), torch.allclose(outputs(model), before, atol=1e-2)])
    return found


@gives(["no", True, None, False, {"cpu": 33024}, "no", ["npu:0"], True], on="npu")
def test_what_a_weight_s_own_to_has_changed_is_undone():
    class Failing(nn.Sequential):
        def _apply(self, *_args, **_options):
            raise RuntimeError("no")

    model = Failing(four_bit(), eight_bit())
    before = [one.detach().clone() for one in model.parameters()]
    found = [
        str(placement_error(to_gpu, nn.Sequential(model), 1))[-2:]
    ]  # as `nn.Module.to`, which calls it, too
    found.append(all(map(torch.equal, model.parameters(), before)))
    found += [model[0].quant_state, model[0].weight.bnb_quantized, devices_of(model)]
    inner = nn.Sequential(four_bit(), eight_bit()).to("npu:0")
    right = outputs(inner)
    found.append(str(placement_error(to_gpu, Failing(*inner), 1))[-2:])
    return [*found, devices_reached(inner), torch.equal(outputs(inner), right)]


@gives([*[[True, True, ["npu:1"], True]] * 3, ["no", True, True], "Load the model again", True], on="npu")
def test_a_weight_that_is_packed_for_the_cpu_is_unpacked():
    """The layer packs it in a forward pass on some CPUs. Of its own methods, `cuda` unpacks it, but not `to`."""

    def packed(**options):
        torch.manual_seed(0)
        layer = four_bit(**options).to("cpu")
        weight = layer.weight
        weight.data, state = bnb.functional._convert_weight_packed_for_cpu(weight.data, weight.quant_state)
        return layer, state

    found = []
    for options in ({}, {"compress_statistics": False}, {"quant_storage": torch.bfloat16}):
        layer, state = packed(**options)
        torch.manual_seed(0)
        right = outputs(four_bit(**options).to("npu:0"))
        weight = to_gpu(net(layer), 1)[0].weight
        is_kept = weight.quant_state is state is layer.quant_state
        held = [weight, vars(state)]
        is_right = torch.allclose(outputs(layer), right, atol=0.05)
        found.append([is_kept, not state.packing_format_for_cpu, devices_reached(held), is_right])

    class Failing(nn.Sequential):
        def _apply(self, *_args, **_options):
            raise RuntimeError("no")

    layer, state = packed()
    data, before = layer.weight.data, dict(vars(state))

    def is_as_before():
        return torch.equal(layer.weight, data) and vars(state) == before

    failed = str(placement_error(to_gpu, Failing(layer), 1))[-2:]
    found.append([failed, is_as_before(), layer.weight.device.type == "cpu"])
    del bnb.functional._convert_weight_packed_for_cpu_inverse  # as in another version
    return [*found, str(placement_error(to_gpu, layer, 1)).split(". ")[1], is_as_before()]


REMOVE = "First type: import accelerate; accelerate.hooks.remove_hook_from_module(model, recurse=True)"
ON_TWO = f"Hooks of accelerate run this Sequential on npu:0 and npu:1. {REMOVE}"
OFFLOADED = (
    f"Hooks of accelerate run this Sequential on npu:0, with weights offloaded to the CPU or a disk. {REMOVE}"
)


@gives(
    [
        *([ON_TWO, True, "npu:2"], [OFFLOADED, True, "npu:2"], [OFFLOADED, True, "npu:2"]),
        *([OFFLOADED.replace("Sequential", "Linear"), True, "npu:2"], [None, "npu:2"], [None, "npu:0"]),
    ],
    on="npu",
)
def test_a_module_that_hooks_place_is_refused_until_they_are_removed():
    def plain():
        torch.manual_seed(0)
        return net(nn.Linear(WIDTH, WIDTH))

    dispatch, x, found = accelerate.dispatch_model, torch.ones(1, WIDTH), []
    first = torch.device("npu:0")
    offloaded = accelerate.cpu_offload(plain(), first)
    for model in (
        dispatch(plain(), {"0": 0, "1": 1}),
        dispatch(plain(), {"0": 0, "1": "cpu"}, main_device=0),
        dispatch(plain(), {"0": 0, "1": "disk"}, main_device=0, offload_dir=tempfile.mkdtemp()),
        offloaded,
    ):
        before = [(one, one.device) for one in model.parameters()]
        said = placement_error(to_gpu, [model], 2)
        after = [(one, one.device) for one in model.parameters()]
        is_same = all(
            one is other and at == now for (one, at), (other, now) in zip(before, after, strict=True)
        )
        accelerate.hooks.remove_hook_from_module(model, recurse=True)
        found.append([said, is_same, to_gpu(model, 2)(x.to("npu:2")).device])
    whole = dispatch(plain(), {"": 0})  # on one device, without hooks
    hooked = dispatch(plain(), {"": 0}, force_hooks=True)
    for model, device in ((whole, 2), (hooked, 0)):  # the latter is there already
        found.append([placement_error(to_gpu, model, device), model[0].weight.device])
    return found


@gives([["npu:2"]] * 5, on="npu")
def test_the_line_to_type_removes_the_hooks_of_a_variable():
    """Whatever holds the model. A pipeline of diffusers has a method for all of its models."""

    class Holder:
        def __init__(self, model):
            self.model = model

    class Pipeline(Holder):
        def remove_all_hooks(self):
            accelerate.hooks.remove_hook_from_module(self.model, recurse=True)

    found = []
    for hold in (lambda model: model, Holder, Pipeline, lambda model: {"a": model}, lambda model: (1, model)):
        held = hold(accelerate.cpu_offload(net(nn.Linear(WIDTH, WIDTH)), torch.device("npu:0")))
        space = {"held": held}
        said = placement_error(move_variables, space, (), "held", device="2")
        exec(str(said).partition("First type: ")[2].partition(" Nothing")[0], space)
        move_variables(space, (), "held", device="2")
        found.append([*devices_of(space["held"])])
    return found


if ELSEWHERE:

    class Logged(torch.Tensor):
        """What PyTorch's documentation calls a wrapper, with a slot."""

        __slots__ = ("elem",)

        @staticmethod
        def __new__(cls, elem):
            made = torch.Tensor._make_wrapper_subclass(cls, elem.size(), dtype=elem.dtype, device=elem.device)
            made.elem = elem
            return made

        @classmethod
        def __torch_dispatch__(cls, func, _types, args=(), kwargs=None):
            given = [one.elem if isinstance(one, cls) else one for one in args]
            return cls(func(*given, **(kwargs or {})))


@gives(
    {
        "torchao": [4096 + 9 * WIDTH, 4096 + 9 * WIDTH, "npu:1"],
        "DTensor": [4 * 64, 4 * 64, "npu:1"],
        "jagged": [4 * 18 + 8 * 3, 4 * 18 + 8 * 3, "npu:1"],
        "masked": [4 * 3 + 3, 4 * 3 + 3, "npu:1"],
        "a slot": [4 * 8, 4 * 8, "npu:1"],
    },
    on="npu",
)
def test_bytes_of_a_tensor_are_those_of_its_inner_tensors():
    """On the CPU, after a move, and in the room that the move needs."""
    layer = nn.Linear(WIDTH, WIDTH)
    ao.quantize_(layer, ao.Int8WeightOnlyConfig(version=2))
    ragged = [torch.ones(2, 3), torch.ones(4, 3)]
    found = {
        "torchao": layer,
        "DTensor": distribute_tensor(torch.ones(8, 8), cpu_mesh(), [Shard(0)]),
        "jagged": torch.nested.nested_tensor(ragged, layout=torch.jagged),
        "masked": masked_tensor(torch.ones(3), torch.tensor([True, False, True])),
        "a slot": Logged(torch.ones(8)),
    }
    for name, one in found.items():
        here = devices_of(one)["cpu"]
        moved = to_gpu(one, 1)
        ((device, there),) = devices_of(moved).items()
        found[name] = [here, there, device]
    return found


@gives([["npu:1"], ["npu:1"], True], on="npu")
def test_an_adapter_trains_on_and_is_merged_after_a_move():
    """With the weights of one that has not moved."""
    stays, model, x = made("LoRA"), made("LoRA"), torch.ones(2, WIDTH)
    merged = []
    for one in (stays, model):
        optimizer = torch.optim.AdamW([weight for weight in one.parameters() if weight.requires_grad])
        one(x).sum().backward()
        optimizer.step()
        if one is model:
            to_gpu((model, optimizer), 1)
            x = x.to("npu:1")
        one(x).sum().backward()
        optimizer.step()
        merged.append(one.merge_and_unload())
    states = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    is_same = torch.allclose(outputs(merged[0]), outputs(merged[1]), atol=1e-4)
    return [devices_reached(states), devices_reached(merged[1]), is_same]


@gives(["npu:1", True, True, [["npu:1"]] * 5, True], on="npu")
def test_what_generation_leaves_in_a_notebook_is_moved():
    """Encodings, outputs and caches, with which generation goes on as on the CPU."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 32, "eos_token_id": 0}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, pad_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval()
    words = transformers.BatchEncoding({"input_ids": torch.tensor([[1, 2, 3]])})
    new, caches = torch.tensor([[4]]), [transformers.DynamicCache(config=config) for _ in "ab"]
    static = transformers.StaticCache(config=config, max_cache_len=8)
    with torch.no_grad():
        for cache in (*caches, static):
            output = model(**words, past_key_values=cache, output_hidden_states=True)
        right = model(new, past_key_values=caches[0]).logits
        made = model.generate(**words, max_new_tokens=2, return_dict_in_generate=True, output_scores=True)
        to_gpu([model, words, output, caches[1], static, made], 1)
        again = model(new.to("npu:1"), past_key_values=caches[1]).logits
    held = [words, output, caches[1], static, made]
    return [
        *(words.input_ids.device, words["input_ids"] is words.input_ids, output.logits is output["logits"]),
        *([devices_reached(one) for one in held], torch.allclose(again.cpu(), right, atol=1e-5)),
    ]


LOOPS = ["8-bit AdamW", "Adafactor", "Muon", "compiled", "compiled in place"]


def loop(name):
    """Return the state of a training loop, and its step, which returns a loss."""
    torch.manual_seed(0)
    model = base = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    if name == "compiled":
        model = torch.compile(base, backend="aot_eager")
    elif name == "compiled in place":
        base.compile(backend="aot_eager")
    optimizer = {
        "8-bit AdamW": lambda: bnb.optim.AdamW8bit(base.parameters(), min_8bit_size=WIDTH),
        "Adafactor": lambda: transformers.Adafactor(base.parameters(), lr=1e-3, relative_step=False),
        "Muon": lambda: torch.optim.Muon([base[0].weight, base[2].weight]),
    }.get(name, lambda: torch.optim.AdamW(base.parameters(), amsgrad=True))()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    average = torch.optim.swa_utils.AveragedModel(base)
    x = torch.randn(16, WIDTH)

    def step():
        loss = model(x.to(base[0].weight.device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(base)
        return loss.item()

    return [model, optimizer, average], step, base


@gives({name: [True, True, ["npu:1"], ["npu:1"]] for name in LOOPS}, on="npu")
def test_training_goes_on_after_a_move():
    """With the losses of a loop that has not moved, also back on the CPU."""
    found = {}
    for name in LOOPS:
        (_, stay, _), (state, go, base) = loop(name), loop(name)
        stay(), go()
        to_gpu(state, 1)
        on_gpu = [abs(stay() - go()) < 1e-3 for _ in range(2)]
        devices = [sorted({str(one.device) for one in model.parameters()}) for model in (base, state[2])]
        to_cpu(state)
        found[name] = [all(on_gpu), abs(stay() - go()) < 1e-3, *devices]
    return found


@gives([1, ["npu:1"], ["cpu"], True], on="npu")
def test_what_a_package_keeps_for_the_whole_process_is_no_variable_s():
    """All optimizers of bitsandbytes refer to one manager, which keeps each of its stable embeddings."""

    def trained():
        model = nn.Sequential(bnb.nn.StableEmbedding(WIDTH, WIDTH), nn.Linear(WIDTH, 1))
        optimizer = bnb.optim.AdamW8bit(model.parameters(), min_8bit_size=WIDTH)
        model(torch.arange(WIDTH)).sum().backward()
        optimizer.step()
        return model, optimizer

    (model, optimizer), (_, other) = trained(), trained()
    space = {"model": model, "optimizer": optimizer, "other": other}
    lines = [one for one in move_variables(space, (), "model optimizer", device="1") if "→" not in one]
    found = [len(lines), [*devices_of(optimizer)], [*devices_of(other)]]
    manager = bnb.optim.GlobalOptimManager.get_instance()
    return [*found, bool(devices_of(manager))]  # asked for itself, it is shown


@gives(["cpu", "npu:1", "npu:1"], on="npu")
def test_states_that_the_driver_moves_stay():
    """Those of bitsandbytes' paged optimizers: `get_paged` gives such tensors."""
    model = nn.Linear(512, 256)
    optimizer = bnb.optim.AdamW8bit(model.parameters())
    model(torch.ones(1, 512)).sum().backward()
    optimizer.step()
    state = optimizer.state[model.weight]
    state["state1"].is_paged = True
    to_gpu((model, optimizer), 1)
    return [state[name].device for name in ("state1", "state2")] + [model.weight.device]


@gives([True, True, "npu:2", True], on="npu")
def test_a_model_that_fits_only_quantized_is_not_refused():
    layers, accelerator = 64, torch.accelerator
    before = [nn.Sequential(*(four_bit(bias=False) for _ in range(layers))) for _ in range(2)]
    to_gpu(before[0], 1)
    peak = accelerator.max_memory_allocated("npu:1")
    pretend_native.set_total(2, peak)
    (said,) = move_variables({"model": before[1]}, (), "model", device="2")[1:]
    right = f"{size_text(sum(devices_of(before[1]).values()))} moved to npu:2"
    plain = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    is_refused = "do not fit" in placement_error(to_gpu, plain, 2)
    return [peak < layers * 4 * WIDTH**2, said.startswith(right), before[1][0].weight.device, is_refused]


@gives([4 * 1024**2 + 1024**2 + 5 * 1024, "npu:1", True], on="npu")
def test_a_step_of_a_quantized_model_is_predicted_and_the_model_can_move_afterwards():
    """The parameters are the int8 weights, their scales and zero points, and the other layer."""
    model = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1024, bias=False))
    ao.quantize_(model[0], ao.Int8WeightOnlyConfig(version=2))
    found = gpu_magic.fit(model, torch.ones(2, 1024), eval=True)
    with pytest.raises(FitError) as caught:
        gpu_magic.fit(net(four_bit()), torch.ones(2, WIDTH), eval=True)
    return [found.parts["parameters"], model.to("npu:1")[0].weight.device, "Params4bit" in str(caught.value)]


@gives(["npu:1", {"cpu": 16}], on="npu")
def test_objects_that_refer_to_themselves_end_no_search():
    class Ring:
        def __init__(self):
            self.hooks = {"self": self}

    model = torch.nn.Linear(2, 2)
    model.ring = Ring()
    to_gpu(model, 1)

    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    wrapper = torch.Tensor._make_wrapper_subclass(Wrapper, (4,))
    wrapper.inner, wrapper.again = torch.zeros(4), wrapper
    return [model.weight.device, dict(devices_of(wrapper))]


@gives({name: [["cpu"], True, True, True] for name in NAMES}, on="npu")
def test_what_is_parked_comes_back_as_it_was():
    """No memory stays on the GPU, and types, dtypes, devices, objects and results are as before."""
    found = {}
    space = shell_with_magics().user_ns
    for name in NAMES:
        model = space["model"] = made(name).to("npu:1")
        before, right = kinds(model), outputs(made(name).to("npu:1"))
        objects = [*model.parameters()] if isinstance(model, nn.Module) else [model]
        gpu_magic.park()
        where = [*devices_of(space["model"])]
        gpu_magic.unpark()
        model = space["model"]
        again = [*model.parameters()] if isinstance(model, nn.Module) else [model]
        is_same = all(one is other for one, other in zip(objects, again, strict=True))
        found[name] = [where, kinds(model) == before, is_same, torch.equal(outputs(model), right)]
        del model, objects, again, space["model"]
    return found


@gives({name: [True, True, ["cpu"], ["npu:1"]] for name in LOOPS}, on="npu")
def test_training_goes_on_after_parking():
    found, shell = {}, shell_with_magics()
    for name in LOOPS:
        (state, go, base), (_, stay, _) = loop(name), loop(name)
        stay(), go()
        to_gpu(state, 1)
        shell.push({"state": state, "base": base})
        losses = [abs(stay() - go()) < 1e-3]
        gpu_magic.park()
        parked = [*devices_of(shell.user_ns["state"])]
        gpu_magic.unpark()
        losses += [abs(stay() - go()) < 1e-3 for _ in range(2)]
        devices = sorted({str(one.device) for one in base.parameters()})
        found[name] = [all(losses), len(losses) == 3, parked, devices]
    return found


@gives(["npu:1", "npu:1", "npu:1"], on="npu")
def test_states_that_the_driver_moves_are_not_parked():
    model = nn.Linear(512, 256).to("npu:1")
    optimizer = bnb.optim.AdamW8bit(model.parameters())
    model(torch.ones(1, 512, device="npu:1")).sum().backward()
    optimizer.step()
    state = optimizer.state[model.weight]
    state["state1"].is_paged = True
    shell_with_magics().push({"model": model, "optimizer": optimizer})
    gpu_magic.park()
    found = [state["state1"].device]
    gpu_magic.unpark()
    return [*found, state["state2"].device, model.weight.device]


@gives(
    [f"model stays on the GPU (65.0 KiB): {ON_TWO}", ["npu:0", "npu:1"], ["cpu"], ["npu:0", "npu:1"], True],
    on="npu",
)
def test_a_model_that_hooks_place_is_not_parked_and_works_afterwards():
    """The states of its optimizer are parked, and come back."""
    model = accelerate.dispatch_model(net(nn.Linear(WIDTH, WIDTH)), {"0": 0, "1": 1})
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        loss = model(torch.ones(1, WIDTH, device="npu:0")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    first = step()
    shell_with_magics().push({"model": model, "optimizer": optimizer})

    def states():
        return sorted({str(one["exp_avg"].device) for one in optimizer.state.values()})

    (line,) = (line for line in gpu_magic.park().text.splitlines() if " stays " in line)
    found = [line, sorted({str(one.device) for one in model.parameters()}), states()]
    gpu_magic.unpark()
    return [*found, states(), step() < first]


@gives(["pipe stays on the GPU", "npu:1", ["cpu", "cpu"], ["npu:1", "npu:1", True]], on="npu")
def test_a_pipeline_stays_but_its_model_is_parked_if_a_variable_holds_it():
    config = transformers.BertConfig(
        vocab_size=6, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    model = transformers.BertModel(config).to("npu:1")
    pipe = transformers.Pipeline.__new__(transformers.FeatureExtractionPipeline)
    pipe.model, pipe.device, pipe.lock = model, torch.device("npu:1"), logging.getLogger()
    space = shell_with_magics().user_ns
    space["pipe"] = pipe
    (line,) = (line for line in gpu_magic.park().text.splitlines() if " stays " in line)
    found = [line.partition(" (")[0], model.device]
    space["model"] = model
    gpu_magic.park()
    found.append([model.device, model.pooler.dense.weight.device])
    gpu_magic.unpark()
    return [*found, [model.device, model.pooler.dense.weight.device, pipe.device == model.device]]


@gives(["npu:1", ["npu:0", "npu:0"], "Nothing is parked."], on="npu")
def test_parked_tensors_that_wrap_others_can_be_moved_by_hand():
    """PyTorch's own `to` swaps them, which it refuses if they have weak references."""
    space = shell_with_magics().user_ns
    space["model"] = made("torchao").to("npu:1")
    gpu_magic.park()
    (line,) = where_lines(shell_with_magics(), ["model"])
    model = space["model"].to("npu:0")
    return [
        line.partition("parked from ")[2][:5],
        [model[0].weight.device, model[1].weight.device],
        gpu_magic.unpark().text,
    ]


@gives([[True, True], "cpu", "npu:1", True], on="npu")
def test_sharded_weights_that_are_gathered_do_not_move():
    """After a step, `fully_shard` keeps the shards of the outer module where no search finds them."""
    model = made("fully_shard").to("npu:1")
    right = outputs(model)
    shell_with_magics().push({"model": model})
    why = "fully_shard has gathered weights of this FSDPSequential: call its reshard()."
    found = [[why in placement_error(to_gpu, model, 2), why in gpu_magic.park().text]]
    model.reshard()
    gpu_magic.park()
    found.append(model[1].weight.device)
    gpu_magic.unpark()
    return [*found, model[1].weight.device, torch.equal(outputs(model), right)]
