"""What is typed after `%gpus`: the options, the request, and the devices that answer it on some machine."""

from __future__ import annotations

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.errors import GpuMagicError
from gpu_magic.gpus.options import Options, plan_memory, read_seconds
from gpu_magic.gpus.request import Auto, Named, parse
from gpu_magic.gpus.select import Selection, select
from gpu_magic.process.mask import NAMES, Variables
from gpu_magic.process.visible import read_visible
from gpu_magic.shell.arguments import read
from tests.fuzzing.machines import MACHINES
from tests.fuzzing.target import Target, check_line, check_refusal, fields_of

__all__ = ["TARGETS"]

_NOTHING = Variables()


def check_request(data: bytes) -> None:
    """Check a line after `%gpus`. Before it stands the number of the machine, and what the kernel was given."""
    number, mask, line = fields_of(data, 3)
    there = MACHINES[len(number) % len(MACHINES)]
    given = _NOTHING if mask == "" else Variables(mask=mask)
    try:
        typed = vars(read("%gpus", line))
        options = Options.of(typed)
        if typed["wait"] is not None:
            assert read_seconds(typed["wait"]) > 0
        request = parse(typed["request"])
        selection = select(request, there, given, options)
        found = selection.devices
        if found is not UNKNOWN:
            check_line(f"- {plan_memory(found, growth=options.growth, limit=options.memory_limit)}")
    except GpuMagicError as error:
        check_refusal(error)
        return
    for note in selection.notes:
        check_line(note, 4000)  # a sentence of each GPU
    if isinstance(request, Named | Auto) and found is not UNKNOWN:
        wanted = request.count if isinstance(request, Auto) else len(request.identifiers)
        assert len(found) == wanted, "more or fewer devices than were asked for"
        _check_what_is_seen(selection, given, there)


def _check_what_is_seen(selection: Selection, given: Variables, there: object) -> None:
    """Check that the variables show frameworks the devices that were chosen, and no others."""
    values = given.named(NAMES) | dict(selection.variables)
    seen = read_visible(Variables(*(values[name] for name in NAMES)), there).devices
    assert seen == selection.devices or seen is UNKNOWN, f"{selection.devices} was chosen, and {seen} is seen"


TARGETS = (
    Target(
        "requests",
        check_request,
        "what is typed after %gpus",
        tuple(
            "auto auto:2 all none reset amd: smi: 0-2 1,3 2:1 GPU- MIG- MIG-GPU- /1/0 GPU-8f3a GPU-c0ffee00 MIG-41b7 "
            "--order --growth --memory-limit --only-free --min-free --model "
            "--wait --force --end pci fastest 8GB GiB 30m 1h30m A100 T4 10% # = , ;".split()
        ),
        (
            "\n\n1,3",
            "x\n0,1\nauto:2 --min-free 20GB --model A100",
            "xx\n\nMIG-41b7 --order pci",
            "xxxxxx\n\namd:1 --order pci",
            "xxxxx\n0,1\n1,0 --growth --memory-limit 8 GB",
            "\n\n0-2,4 --force --wait 1h30m",
            "xx\n\nMIG-GPU-8f3a0000-0000-4000-8000-000000000001/1/0",
        ),
    ),
)
