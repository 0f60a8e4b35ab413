"""Accelerate: `--gpu_ids` replaces CUDA_VISIBLE_DEVICES, and so does a saved configuration (1.15)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_magic.launching.launchers.plan import TORCH_LOGS, Plan
from gpu_magic.launching.launchers.words import CommandLine, dashed, start_of
from gpu_magic.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_magic.launching.launchers.plan import Command

__all__ = ["MODULES", "plan"]

MODULES = ("accelerate.commands.launch",)  # which does the same

_SWITCHES = frozenset(
    """
    -h --help -q --quiet --cpu --multi-gpu --tpu --use-deepspeed --use-fsdp --use-megatron-lm
    --use-parallelism-config --same-network -m --module --no-python --tpu-cluster --no-tpu-cluster
    --tpu-use-sudo --downcast-bf16 --debug --enable-cpu-affinity --dynamo-use-fullgraph
    --dynamo-use-dynamic --dynamo-use-regional-compilation --fp8-use-autocast-during-eval
    --fp8-override-linear-precision --fp8-enable-fsdp-float8-all-gather
    """.split()
)
_KINDS = ("--multi-gpu", "--cpu", "--tpu", "--use-deepspeed", "--use-fsdp", "--use-megatron-lm")
# What of a saved configuration is given on the command line here, or means nothing to one machine.
_GIVEN = (
    "compute_environment",
    "debug",
    "distributed_type",
    "gpu_ids",
    "machine_rank",
    "main_process_port",
    "main_training_function",
    "num_machines",
    "num_processes",
    "rdzv_backend",
    "same_network",
)


def plan(command: Command, launcher: Sequence[str], words: Sequence[str]) -> Plan:
    """Return how to run it; see `plan_command`."""
    gpus = len(command.gpus)
    line = CommandLine(command, launcher, words, _SWITCHES)
    line.refuse("--gpu-ids")
    line.take_count("--num-processes", gpus)
    line.check_script("-m", "--module", "--no-python")
    saved = {} if line.has("--config-file") else _saved_configuration(command.environment)
    given = {
        "--num_processes": str(gpus),
        "--num_machines": "1",
        "--gpu_ids": "all",  # of those that are visible
        "--main_process_port": "0",  # one that is free
        "--mixed_precision": saved.get("mixed_precision", "no"),
        "--dynamo_backend": "" if "dynamo_config" in saved else "no",
    }
    is_several = gpus > 1 and not line.has(*_KINDS)
    start = (
        *start_of(launcher, command.folder),
        *(("--multi_gpu",) if is_several else ()),
        *(f"{flag}={value}" for flag, value in given.items() if value and not line.has(dashed(flag))),
    )
    rest, notes = (*line.flags, *line.program), _notes(saved, line, command.environment)
    if gpus == 1 or line.has("--tee", "--log-dir"):
        return Plan(start, rest, notes=notes)
    # It runs torchrun, and has no flag of its own for this one of torchrun's.
    redirects = {"PET_REDIRECTS": "3"}
    return Plan(start, rest, ("--log_dir={logs}",), redirects, gpus, TORCH_LOGS, notes)


def _saved_configuration(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the top level of the YAML file that `accelerate config` has written; empty without one."""
    try:
        lines = _saved_file(environment).read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = [line.partition(":") for line in lines if line[:1].isalpha() and ":" in line]
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}


def _saved_file(environment: Mapping[str, str]) -> Path:
    """Return the file from which accelerate takes each value that is not given on its command line."""
    cache = Path(environment.get("XDG_CACHE_HOME") or "~/.cache")
    home = Path(environment.get("HF_HOME") or cache / "huggingface")
    # pathlib raises for `~nobody`.
    return Path(os.path.expanduser(home)) / "accelerate" / "default_config.yaml"  # noqa: PTH111


def _notes(saved: Mapping[str, str], line: CommandLine, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Say what accelerate takes from a saved configuration."""
    taken = [
        f"{name}: {value or '…'}"
        for name, value in saved.items()
        if name not in _GIVEN and value not in ("no", "false", "null") and not line.has(f"--{dashed(name)}")
    ]
    return (
        (printable(f"accelerate takes from {_saved_file(environment)}: {', '.join(taken)}."),)
        if taken
        else ()
    )
