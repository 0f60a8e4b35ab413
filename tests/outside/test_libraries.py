"""Libraries that pick a device themselves, in a block: each row of docs/how-to/other-libraries.md."""

from __future__ import annotations

import contextlib
import io

from tests.programs.cells import shell_with_magics
from tests.programs.runner import ELSEWHERE, gives

if ELSEWHERE:
    import accelerate  # noqa: F401 - once for all functions
    import torch  # noqa: F401
    import transformers  # noqa: F401

SETUP = """
import accelerate, logging, pathlib, tempfile, torch, transformers, warnings
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
    "load_file(f'{folder}/a.safetensors')['a'].device": ("cpu", False),
    "load_file(f'{folder}/a.safetensors', device='npu')['a'].device": ("npu:0", True),
    "load_file(f'{folder}/a.safetensors', device='npu:1')['a'].device": ("npu:1", False),
}


@gives({code: list(row) for code, row in ROWS.items()}, on="npu")
def test_where_a_library_s_objects_are_and_that_another_device_is_told():
    shell = shell_with_magics()
    shell.run_cell(SETUP).raise_error()
    found = {}
    for code in ROWS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            shell.run_cell(f"%%on_gpu 1\nkept = {code.removeprefix('*')}").raise_error()
        kept = shell.user_ns["kept"]
        found[code] = [*map(str, kept if code[0] == "*" else [kept]), "Code here" in out.getvalue()]
    return found
