"""Libraries that pick a device themselves, in a block: each row of docs/how-to/other-libraries.md."""

from __future__ import annotations

import asyncio
import contextlib
import io

from tests.programs.cells import shell_with_magics
from tests.programs.errors import placement_error
from tests.programs.runner import ELSEWHERE, gives

if ELSEWHERE:
    import accelerate  # noqa: F401 - once for all functions
    import anyio
    import ipywidgets
    import lightning
    import nest_asyncio2
    import peft  # noqa: F401
    import torch
    import transformers  # noqa: F401
    from lightning.pytorch import Trainer
    from lightning.pytorch.demos.boring_classes import BoringModel

    from gpu_magic import fit, on_gpu
    from gpu_magic.move.move import move_variables

SETUP = """
import accelerate, lightning, logging, pathlib, peft, tempfile, torch, transformers, warnings
from safetensors.torch import load_file, save_file
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
folder = tempfile.mkdtemp()
config = transformers.BertConfig(
    vocab_size=6, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
)
bert = transformers.BertForSequenceClassification
bert(config).save_pretrained(folder)
save_file({"a": torch.zeros(99)}, f"{folder}/a.safetensors")
pathlib.Path(folder, "vocab.txt").write_text("[UNK]\\n[CLS]\\n[SEP]\\n[PAD]\\na\\nb\\n")
words = transformers.BertTokenizerFast(vocab_file=f"{folder}/vocab.txt")
data = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(1)}] * 8
arguments = lambda: transformers.TrainingArguments(
    output_dir=folder, report_to=[], max_steps=1, save_strategy="no", disable_tqdm=True,
    dataloader_pin_memory=False, logging_strategy="no",
)
def trained(model):
    transformers.Trainer(model=model, args=arguments(), train_dataset=data).train()
    return model.device
adapter = tempfile.mkdtemp()
peft.get_peft_model(bert(config), peft.LoraConfig(target_modules=["query"])).save_pretrained(adapter)
def adapted(**options):
    model = peft.PeftModel.from_pretrained(bert(config), adapter, **options)
    return {str(one.device) for one in model.parameters()}
tags = []
def restored(storage, tag):  # as PyTorch does for CUDA; the accelerator of the tests has no such function
    if tag.startswith("npu"):
        return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).to(tag).untyped_storage()
torch.serialization.register_package(1, lambda _: tags and tags[-1], restored)
for tag in ("cpu", "npu:0"):
    tags.append(tag)
    torch.save({"w": torch.zeros(9)}, f"{folder}/{tag}.pt")
class Lit(lightning.LightningModule):
    def __init__(self): super().__init__(); self.net = torch.nn.Linear(2, 1)
begun = {"pytorch-lightning_version": lightning.__version__, "state_dict": Lit().state_dict()}
torch.save(begun, f"{folder}/npu:0.ckpt")
tags.clear()
def prepared():
    accelerate.state.AcceleratorState._reset_state(True)
    model, loader = accelerate.Accelerator().prepare(
        torch.nn.Linear(2, 1), torch.utils.data.DataLoader([torch.ones(2)] * 4)
    )
    return {str(next(model.parameters()).device), *(str(batch.device) for batch in loader)}
"""
ROWS = {
    "transformers.BertModel(config).device": ("npu:1", False),
    "bert.from_pretrained(folder).device": ("npu:1", False),
    "bert.from_pretrained(folder, device_map={'': 1}).device": ("npu:1", False),
    "bert.from_pretrained(folder, device_map='auto').device": ("npu:0", True),
    "transformers.pipeline('text-classification', model=folder, tokenizer=words).model.device": (
        "npu:0",
        True,
    ),
    "transformers.pipeline('text-classification', model=folder, tokenizer=words, device=1).model.device": (
        "npu:1",
        False,
    ),
    "arguments().device": ("npu:0", True),
    "trained(bert(config))": ("npu:0", True),
    "*prepared()": ("npu:1", False),
    "*adapted()": ("npu:1", True),  # which it loads on npu:0 first
    "*adapted(torch_device='npu:1')": ("npu:1", False),
    "torch.load(f'{folder}/cpu.pt')['w'].device": ("cpu", False),
    "torch.load(f'{folder}/npu:0.pt')['w'].device": ("npu:0", True),
    "torch.load(f'{folder}/npu:0.pt', map_location='npu')['w'].device": ("npu:1", False),
    "Lit.load_from_checkpoint(f'{folder}/npu:0.ckpt').device": ("npu:0", True),
    "Lit.load_from_checkpoint(f'{folder}/npu:0.ckpt', map_location='npu:1').device": ("npu:1", False),
    "load_file(f'{folder}/a.safetensors')['a'].device": ("cpu", False),
    "load_file(f'{folder}/a.safetensors', device='npu')['a'].device": ("npu:0", True),
    "load_file(f'{folder}/a.safetensors', device='npu:1')['a'].device": ("npu:1", False),
}


# The arguments that a line names: those of all libraries that the code names
ADVICE = {
    "adapted(), 0": ["torch_device", "pipeline(device=1)"],
    "arguments(), 0": ["pipeline(device=1)"],
    "Lit.load_from_checkpoint(f'{folder}/npu:0.ckpt'), 0": ["load_from_checkpoint(map_location="],
}
ARGUMENTS = sorted({one for ones in ADVICE.values() for one in ones}, reverse=True)


@gives({code: list(row) for code, row in ROWS.items()} | ADVICE, on="npu")
def test_where_a_library_s_objects_are_and_that_another_device_is_told():
    shell = shell_with_magics()
    shell.run_cell(SETUP).raise_error()
    found = {}
    for code in [*ROWS, *ADVICE]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            shell.run_cell(f"%%on_gpu 1\nkept = {code.removeprefix('*')}").raise_error()
        if code in ADVICE:
            found[code] = [one for one in ARGUMENTS if one in out.getvalue()]
            continue
        kept = shell.user_ns["kept"]
        found[code] = [*map(str, kept if code[0] == "*" else [kept]), "Code here" in out.getvalue()]
    return found


async def made():
    found = [torch.zeros(1).device]
    await asyncio.sleep(0)
    return [*found, torch.zeros(1).device]


@gives([["npu:1"] * 4, "cpu"], on="npu")
def test_tasks_of_anyio_have_the_device_of_their_block():
    async def main():
        found = []

        async def one():
            found.extend(await made())

        async with anyio.create_task_group() as group:
            with on_gpu(1):
                group.start_soon(one)
                group.start_soon(one)
                await anyio.sleep(0.01)
        return [found, torch.zeros(1).device]

    return anyio.run(main)


@gives([["npu:1"] * 2, "npu:1", ["cpu"] * 2], on="npu")
def test_a_loop_that_runs_within_another_one_has_the_device_of_its_block():
    """As nest_asyncio lets code of a notebook call asyncio.run."""

    async def main():
        with on_gpu(1):
            return [asyncio.run(made()), torch.zeros(1).device]

    nest_asyncio2.apply()
    return [*asyncio.run(main()), asyncio.run(made())]


@gives([["npu:1"], ["npu:1", "cpu"]], on="npu")
def test_a_widget_s_callback_runs_where_it_is_called():
    found, button = [], ipywidgets.Button()
    button.on_click(lambda _: found.append(str(torch.zeros(1).device)))
    with on_gpu(1):
        button.click()
    inside = [*found]
    button.click()
    return [inside, found]


@gives([True, True], on="npu")
def test_the_step_of_an_optimizer_that_fabric_wraps_is_predicted():
    """Its copy, by Optimizer's own rules, has lost the optimizer that it wraps."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    wrapped = fabric.setup(model, optimizer)
    batch = torch.ones(4, 64)
    by_hand = fit(model, optimizer, batch).parts
    return [fit(*wrapped, batch).parts == by_hand, by_hand["optimizer state"] > 0]


@gives([[], "npu:1", "loader: data of a DataLoader stays on the CPU. Move each batch."], on="npu")
def test_a_trainer_that_holds_only_a_dataloader_s_data_is_not_named():
    data = torch.utils.data.DataLoader([torch.ones(32)] * 4)
    options = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer, model = Trainer(accelerator="cpu", max_steps=1, **dict.fromkeys(options, False)), BoringModel()
    trainer.fit(model, data)
    space = {"model": model, "loader": lightning.Fabric(accelerator="cpu").setup_dataloaders(data)}
    lines = move_variables(space, (), "model", device="1")
    refused = placement_error(move_variables, space, (), "loader", device="1")
    return [[line for line in lines if "Trainer" in line], model.layer.weight.device, refused]
