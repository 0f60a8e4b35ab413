"""The code of cells, which can be any text: what it uses is found out by its names. And a file of Accelerate's."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpu_magic.errors import LaunchError
from gpu_magic.launch.launchers import Command, build
from gpu_magic.launch.magic import _check_code
from gpu_magic.launch.output import last_traceback
from gpu_magic.process.watch import _only_imports_from
from tests.fuzzing.target import Target, check_refusal, text_of

__all__ = ["TARGETS"]


def check_code(data: bytes) -> None:
    """Check a cell."""
    text = text_of(data)
    assert type(_only_imports_from(text, "torch")) is bool
    assert last_traceback(text) in ("", last_traceback(f"before\n{text}"))
    try:
        _check_code(text)
    except LaunchError as error:
        check_refusal(error)


def check_configuration(data: bytes) -> None:
    """Check the file that `accelerate config` has written, behind the folder that HF_HOME names."""
    home, _, text = data.partition(b"\n")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "accelerate").mkdir()
        (Path(folder) / "accelerate/default_config.yaml").write_bytes(text)
        named = text_of(home.replace(b"\0", b""))
        words, variables = (
            ["accelerate", "launch", "-m", "x"],
            {"HF_HOME": folder if named == "here" else named},
        )
        command = build(Command((), ["0", "1"], folder, variables, words), ())
        assert {"--num_processes=2", "--gpu_ids=all"} <= set(command.start)


TARGETS = (
    Target(
        "cells",
        check_code,
        "the code of cells",
        tuple(
            "import from torch as x ( [ { ' \" %%time !ls get_ipython().run_line_magic( getattr( for in : lambda def "
            "class result = exec Traceback\\x20(most\\x20recent\\x20call\\x20last): [rank1]: \\n".split()
        ),
        (
            "import torch\nfrom a.b import c\nresult = torch.ones(2).cuda()",
            "%%time\nfor batch in enumerate(loader):\n    getattr(x, 'cuda')()",
            "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: x",
            "!ls -l\n- not python",
            "%%markdown\n" + "word " * 3000,  # more than Python's parser has memory for
        ),
    ),
    Target(
        "accelerate-config",
        check_configuration,
        "the configuration that Accelerate has saved",
        tuple(
            "here ~ ~nobody / mixed_precision: dynamo_config: num_machines: no false null ' \" # -".split()
        ),
        (
            "here\nmixed_precision: bf16\ndynamo_config:\n  x: 1\nnum_machines: 1",
            "~nobody-at-all\n",
            "here\n\xff: '",
        ),
    ),
)
