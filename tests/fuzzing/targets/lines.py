"""What is typed behind the other magics: their options, devices, names of variables, and expressions."""

from __future__ import annotations

import re
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING

import gpu_magic
from gpu_magic.errors import GpuMagicError, PlacementError
from gpu_magic.fit.magic import GpuFitMagic
from gpu_magic.frameworks.target import parse_targets
from gpu_magic.gpus.options import read_seconds
from gpu_magic.move.move import read_places
from gpu_magic.on_gpu.block import read_only
from gpu_magic.option_table import OPTIONS, Kind
from gpu_magic.shell.arguments import read, read_count
from gpu_magic.shell.completion import complete
from gpu_magic.testing import simulate
from gpu_magic.text import bytes_text, read_size, size_as_typed
from tests.fuzzing.target import Target, check_line, check_refusal, fields_of, text_of

if TYPE_CHECKING:
    from gpu_magic.processes.processes import OwnProcesses

__all__ = ["TARGETS"]

_MAGICS = tuple(magic for magic in OPTIONS if magic.startswith("%") and magic != "%gpu_launch")


@cache
def own_processes() -> OwnProcesses:
    """Return processes that `%gpu_ps end` can be about."""
    with simulate("2xT4") as machine:
        machine.gpus[0].run("train.py", "maria", 1 << 30, pid=4711, is_same_user=True)
        return gpu_magic.my_processes()


def check_line_of_magic(data: bytes) -> None:
    """Check a line behind the magic that the first letter names."""
    text = text_of(data)
    magic, line = _MAGICS[(ord(text[0]) - ord("A")) % len(_MAGICS)] if text else "%gpus", text[1:]
    try:
        found = vars(read(magic, line))
    except GpuMagicError as error:
        check_refusal(error)
        return
    retyped = [found["request"]]
    for name, option in OPTIONS[magic].items():
        value = found[option.attribute]
        if option.kind is Kind.FLAG:
            assert type(value) is bool
            retyped += [name] if value else []
        elif value is not None:
            assert isinstance(value, str)
            retyped += [f"{name}={value}" if value else name]
    again = " ".join(filter(None, retyped))
    # Quotes are not kept, and then what was within them can begin a comment.
    assert "#" in again or vars(read(magic, again)) == found, f"{again!r} is read as something else"
    for reader in (read_count, read_seconds, read_only, parse_targets, own_processes().find):
        for value in found.values():
            if isinstance(value, str):
                _check_reader(reader, value)


def _check_reader(reader, value: str) -> None:
    try:
        reader(value)
    except GpuMagicError as error:
        check_refusal(error)


def check_target(data: bytes) -> None:
    """Check the name of a device behind `%%on_gpu`: it is read again as it is written."""
    try:
        targets = parse_targets(text_of(data))
    except PlacementError as error:
        check_refusal(error)
        return
    assert len(set(targets)) == len(targets)
    for target in targets:
        assert str(target).isprintable()
        assert [str(again) for again in parse_targets(str(target))] == [str(target)]


def check_size(data: bytes) -> None:
    """Check a size and a length of time."""
    text = text_of(data)
    size = read_size(text)
    if size is not None:
        assert size >= 0
        check_line(bytes_text(size), 40)
        check_line(size_as_typed(text), 60)
        again = read_size(size_as_typed(text))
        assert again is not None
        assert not re.search(r"[KMGT]", text, re.IGNORECASE) or again == size, (
            f"{size_as_typed(text)} is {again}"
        )
    try:
        assert 0 < read_seconds(text) < float("inf")
    except GpuMagicError as error:
        check_refusal(error)


class _Thing:
    """Something with attributes."""

    def __init__(self) -> None:
        self.weight, self.parts = [1.0, 2.0], {"a": (1, 2)}


# What could take all memory or time, as the user's own expressions may: powers, shifts, formats.
_HEAVY = re.compile(r"\*|%|<<|[fFtT][rR]?['\"]|[rR][fFtT]['\"]")


def check_expressions(data: bytes) -> None:
    """Check the names behind `%to_gpu`, or behind a first line of its own the values behind `%gpu_fit`."""
    which, line = fields_of(data, 2)
    if _HEAVY.search(line):
        return
    namespace = {"model": _Thing(), "data": {"train": [1, 2]}, "x": 1, "größe": 2, "__builtins__": {}}
    before = dict(namespace)
    try:
        if which:
            GpuFitMagic(SimpleNamespace(user_ns=namespace))._value(line)
        else:
            for value, store in read_places(line, namespace, set()).values():
                store(value)
    except GpuMagicError as error:
        check_refusal(error)
    assert namespace.keys() == before.keys()
    assert all(namespace[name] is before[name] for name in before), "a variable was changed"


def check_completion(data: bytes) -> None:
    """Check what Tab offers behind the magic that the first letter names: it begins with what is typed."""
    text = text_of(data)
    if not text:
        return
    magic, words = _MAGICS[(ord(text[0]) - ord("A")) % len(_MAGICS)], text[1:].split(" ")
    shell = SimpleNamespace(user_ns={"model": 1, "größe": 2}, user_ns_hidden={})
    with simulate("1xA100-80GB(3g.40gb,4g.40gb)+2xT4"):
        offers = complete(shell, magic, words)
    if offers is None:
        return
    assert words[-1].endswith(offers.fragment)
    for offer in offers.texts:
        check_line(offer, 100)
        assert offer.lower().startswith(offers.fragment.lower())


TARGETS = (
    Target(
        "lines",
        check_line_of_magic,
        "what is typed behind all magics",
        (
            *dict.fromkeys(option for options in OPTIONS.values() for option in options),
            *"-v -n = # ; , torch jax tf cuda:0 /GPU:0 smi:3 cpu GPU-8f3a 30m bfloat16 '".split(),
        ),
        tuple(f"{chr(65 + place)}x --{name}" for place in range(len(_MAGICS)) for name in ("dry-run", "o")),
    ),
    Target(
        "completion",
        check_completion,
        "what is typed before Tab",
        (
            *dict.fromkeys(option for options in OPTIONS.values() for option in options),
            *"auto: 0- 0:1 GPU- MIG- smi: cuda: cpu mo restart ,".split(),
        ),
        ("A0-", "A--order=p", "Aauto:", "B0,c", "Cmo", "B0 --only to", "K-"),
    ),
    Target(
        "devices",
        check_target,
        "the names of devices behind %%on_gpu",
        tuple(
            "cuda: /GPU: gpu: smi: amd: cpu mps xpu: GPU-8f3a MIG- /job:a/replica:0/task:0 /physical_device: device: "
            "PhysicalDevice(name=' ',device_type='GPU') <CUDA\\x20Device\\x20 > [ ] ( ) , 0 2:1 { auto".split()
        ),
        ("0", "cuda:1", "/GPU:0,cpu:2", "smi:3,GPU-8f3a", "<CUDA Device 0>", "smi:2:1", "0 1"),
    ),
    Target(
        "sizes",
        check_size,
        "sizes and lengths of time",
        tuple("8 GB GiB K M T i B 1h30m 2d 90s . 0".split()),
        ("8GB", "8 GiB", "1.5T", "1024", "1h30m", "90s", "0.5"),
    ),
    Target(
        "expressions",
        check_expressions,
        "the variables behind %to_gpu, and the expressions behind %gpu_fit",
        tuple(
            "model data x .weight .parts ['train'] [0] ( ) , : lambda [ ] { } \" ' = := not in if else for None".split()
        ),
        (
            "\nmodel.weight data['train']",
            "\nx, model.parts['a']",
            "f\nmodel (x, x) {'a': x}",
            "f\nmodel.forward(x, y=x)",
            "f\nlambda a: a",
            "\nmodel.weight[0].a[x]",
        ),
    ),
)
