"""What `fit` says of input that makes no step of PyTorch's: one line, which says what would work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.runner import Runner

ARRAYS = "The batch has NumPy's arrays, and PyTorch computes with tensors: torch.from_numpy(x) makes one."


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nothing", "There is no model in a Tensor; give a model, an optimizer and a batch: fit(model"),
        ("two models", "There are two models, and a step has one; loss=… names a loss."),
        ("a number", "an int is neither a model, an optimizer nor a batch of PyTorch's tensors."),
        ("no batch", "There is no batch: fit(model, optimizer, batch)."),
        (
            "another's optimizer",
            "The optimizer has no parameter of this model: was the model made again after it?",
        ),
        ("a dtype", "dtype int8 is not one of float16, bfloat16, float32, float64."),
        ("a torch.dtype", "dtype int8 is not one of float16, bfloat16, float32, float64."),
        (
            "half a name",
            "dtype bf16 is not one of float16, bfloat16, float32, float64: did you mean bfloat16?",
        ),
        ("no dtype", "dtype [16] is not one of float16, bfloat16, float32, float64."),
        ("amp in float32", "amp=True computes in float16 or bfloat16, and not in float32."),
        ("a loss's name", "loss is a function or a module, and not a str."),
        (
            "a loss's class",
            "loss is the class CrossEntropyLoss, and not a function or a module: CrossEntropyLoss() makes one.",
        ),
        ("an array", ARRAYS),
        ("arrays", ARRAYS),
        ("targets in an array", ARRAYS),
        ("arrays by name", ARRAYS),
        ("a width", " of forward in torch/nn/modules/linear.py: return F.linear("),
        ("a width of targets", " of forward in torch/nn/modules/loss.py: return F.mse_loss("),
        ("a width in a loss", " of forward: return nn.functional.mse_loss(output, target[:, :3])"),
        ("words", " of forward in torch/nn/modules/sparse.py: return F.embedding("),
        ("another width", " of forward in torch/nn/modules/normalization.py: return F.layer_norm("),
        ("a size", "batch_size is a number of items, and not 0."),
        ("a word for a size", "batch_size is a number of items, and not many."),
        (
            "no common size",
            "batch_size needs a batch whose tensors have a common dimension 0, and this one has none.",
        ),
        ("eval with an optimizer", "eval=True is the forward alone: leave the optimizer out."),
        ("a lazy module", "can't be copied without its data: it has no shape yet; call the model once"),
        (
            "nothing to train",
            "Nothing that the model returns depends on a parameter that is trained; try eval=True.",
        ),
        ("options of a function", "amp=True is for a model: the function itself says how it trains."),
        ("no targets", "The loss needs targets, and the batch has none: make it batch = (inputs, targets)."),
        (
            "a closure",
            "LBFGS evaluates the loss again in its step, as often as numbers decide, which can't be followed: "
            "leave it out, fit(model, batch), and add the copies of the parameters that LBFGS keeps.",
        ),
        (
            "numbers",
            "Adafactor decides by what tensors hold; leave it out, and it is forward and backward alone, in line ",
        ),
        ("numbers", " of torch/optim/_adafactor.py: "),
        ("a model of transformers' optimizer", " of _get_lr in transformers/optimization.py: "),
        (
            "a broken dataset",
            "The DataLoader has no first batch: it raises ValueError: no such file, in line ",
        ),
        ("a dataset that exits", 'of __getitem__: raise self.error("no such file")'),
        ("an empty dataset", "The DataLoader is empty, as its dataset has no items: give one with a batch"),
        (
            "print",
            "print() computes nothing with tensors: give the call of a function that does, train_step(",
        ),
        ("no tensors", "The function computes nothing with tensors: give the call of a function that does"),
        ("exit", "The step raises SystemExit: 3, in line "),
        ("generator's exit", "The step raises GeneratorExit, in line "),
        (
            "DataParallel",
            "DataParallel splits each batch over its GPUs; use the model in it, model.module, with",
        ),
        (
            "DistributedDataParallel",
            "DistributedDataParallel talks to other processes; use the model in it, model.module, and add a copy "
            "of its gradients",
        ),
        ("in a function", "DataParallel splits each batch over its GPUs; use the model in it, model.module"),
        ("fully_shard", "fully_shard talks to other processes; use the model as it was before fully_shard"),
    ],
)
def test_bad_input_is_one_line(run: Runner, given: str, said: str) -> None:
    found = run("fitting_more.refused", given)
    assert said in found
    assert "\n" not in found
