"""Models of other packages, which move by their own rules: bitsandbytes, PEFT and Accelerate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.gpu.claim import Claim, Need, Seen, claim
from tests.gpu.programs.common import accelerator, alone, needed

if TYPE_CHECKING:
    from collections.abc import Callable

WHERE = "move/move.py"
TORCH: Need = "an accelerator of PyTorch's"
_WIDTH = 64


def _four_bit() -> Any:
    import torch

    (bnb,) = needed("bitsandbytes")
    return bnb.nn.Linear4bit(_WIDTH, _WIDTH, compute_dtype=torch.float32, quant_type="nf4")


def _eight_bit() -> Any:
    (bnb,) = needed("bitsandbytes")
    return bnb.nn.Linear8bitLt(_WIDTH, _WIDTH, bias=False, has_fp16_weights=False)


def _plain() -> Any:
    import torch

    return torch.nn.Linear(_WIDTH, _WIDTH)


_LAYERS: dict[str, Callable[[], Any]] = {"a layer": _plain, "4-bit": _four_bit, "8-bit": _eight_bit}


def _model(layer: str, *, is_adapted: bool) -> Any:
    """Return a model, the same at each call: the layer, and one that is not quantized."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(_LAYERS[layer](), torch.nn.Linear(_WIDTH, _WIDTH)).eval()
    if not is_adapted:
        return model
    (peft,) = needed("peft")
    config = peft.LoraConfig(r=4, target_modules=["0"], init_lora_weights=False)
    return peft.get_peft_model(model, config).eval()


def same_as_to(layer: str, is_adapted: bool) -> Seen:
    """Move a model by `to_gpu`, to the CPU and again, and the same model by its own `to`, and compare the outputs."""
    alone()
    import torch

    import gpu_magic

    kind = accelerator()
    x = (torch.arange(2.0 * _WIDTH).reshape(2, _WIDTH) / _WIDTH - 1).to(kind)
    theirs = _model(layer, is_adapted=is_adapted).to(f"{kind}:0")
    ours = gpu_magic.to_gpu(_model(layer, is_adapted=is_adapted))
    expected, found = theirs(x).detach().cpu(), ours(x).detach().cpu()
    ours = gpu_magic.to_gpu(gpu_magic.to_cpu(ours))
    again = ours(x).detach().cpu()
    places = {one.device.type for one in (*ours.parameters(), *ours.buffers())}
    same, still = torch.equal(found, expected), torch.equal(again, expected)
    what = (
        f"{'the same' if same else 'other'} outputs, and {'the same' if still else 'other'} after a move to the CPU and "
        f"back; all is on {' and '.join(sorted(places))}"
    )
    return Seen(same and still and places == {kind}, what)


@claim(
    "`%to_gpu` refuses a model that Accelerate has dispatched to a GPU and the CPU, and leaves it as it is. After "
    "`remove_hook_from_module`, `%to_gpu` moves it, and the outputs are those of `model.to`.",
    "frameworks/pytorch.py",
    TORCH,
)
def dispatched() -> Seen:
    alone()
    import torch

    import gpu_magic

    (accelerate,) = needed("accelerate")
    device = torch.device(accelerator(), 0)
    x = torch.ones(1, _WIDTH).to(device)
    expected = _model("a layer", is_adapted=False).to(device)(x).detach().cpu()
    # The weights of the first module are at hand only while it runs.
    model = accelerate.dispatch_model(
        _model("a layer", is_adapted=False), {"0": "cpu", "1": 0}, main_device=0
    )
    try:
        gpu_magic.to_gpu(model)
    except gpu_magic.PlacementError as error:
        refusal = str(error).partition("\n")[0]
    else:
        return Seen(False, "it is not refused")
    is_same = torch.equal(model(x).detach().cpu(), expected)
    accelerate.hooks.remove_hook_from_module(model, recurse=True)
    moved = torch.equal(gpu_magic.to_gpu(model)(x).detach().cpu(), expected)
    what = f"{refusal} Then {'the same' if is_same else 'other'} outputs, {'the same' if moved else 'other'} once moved"
    return Seen(is_same and moved, what)


def _claim(name: str, layer: str, model: str, *, is_adapted: bool) -> Claim:
    sentence = (
        f"{model} that `%to_gpu` has moved computes what it computes after `model.to`, also after `%to_cpu` and a second "
        "`%to_gpu`."
    )
    return Claim(f"outside.same_as_to:{name}", sentence, WHERE, (TORCH,), arguments=(layer, is_adapted))


CLAIMS = (
    _claim("4-bit", "4-bit", "A model with a 4-bit layer of bitsandbytes", is_adapted=False),
    _claim("8-bit", "8-bit", "A model with an 8-bit layer of bitsandbytes", is_adapted=False),
    _claim("LoRA", "a layer", "A LoRA model of PEFT", is_adapted=True),
    _claim(
        "LoRA over 4-bit", "4-bit", "A LoRA model of PEFT over a 4-bit layer of bitsandbytes", is_adapted=True
    ),
)
