"""How the driver reads CUDA_VISIBLE_DEVICES: quotes, duplicates, bad entries, UUIDs, each in a fresh process.

CUDA_DEVICE_ORDER is PCI_BUS_ID here, so GPUs are in nvidia-smi's order. Each claim is about the driver and about
gpu_magic's own reading, which must be the same.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.gpu.claim import Claim, Seen
from tests.gpu.programs.common import wide
from tests.gpu.programs.cuda import Cuda, digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.gpu.claim import Need

_SHORTEST = 8  # characters of the beginning of a UUID: GPU-8f3a


def reads(mask: str | None, expected: list[int] | None) -> Seen:
    """Find out which GPUs the driver and gpu_magic read from a value of CUDA_VISIBLE_DEVICES.

    Parameters
    ----------
    mask
        With `{count}` for the number of GPUs, `{0}` and `{1}` for UUIDs, and `{short}` for the beginning of the first
        UUID that no other UUID has, `{lower}` for the first UUID in small letters; None: not set.
    expected
        The numbers of the GPUs, in their order; None: all.

    """
    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN
    from gpu_magic.process.mask import read

    wide()
    machine = gpu_magic.gpus().machine
    uuids = [str(gpu.uuid) for gpu in machine]
    wanted = list(range(len(uuids))) if expected is None else expected
    if mask is not None:
        mask = mask.format(*uuids, count=len(uuids), short=_beginning(uuids), lower=uuids[0].lower())
        os.environ["CUDA_VISIBLE_DEVICES"] = mask
    cuda = Cuda()
    code = cuda.init()
    numbers = {digits(uuid): number for number, uuid in enumerate(uuids)}
    seen = [numbers.get(uuid, -1) for uuid in cuda.uuids()]
    devices = read(mask, machine, "PCI_BUS_ID").devices
    ours = "unknown" if devices is UNKNOWN else _listed([getattr(one, "index", -1) for one in devices])
    what = f"the driver sees {_listed(seen)} (cuInit {code}); gpu_magic reads {ours}"
    return Seen(seen == wanted and ours == _listed(wanted), what)


def _beginning(uuids: Sequence[str]) -> str:
    """Return the shortest beginning of the first UUID that no other UUID has."""
    first, *others = uuids
    for length in range(_SHORTEST, len(first)):
        if not any(other.startswith(first[:length]) for other in others):
            return first[:length]
    return first


def _listed(numbers: Sequence[int]) -> str:
    if not numbers:
        return "no GPU"
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


# The name, the value, the GPUs that the driver sees, and the sentence.
_ONE: tuple[tuple[str, str | None, list[int] | None, str], ...] = (
    ("unset", None, None, "If `CUDA_VISIBLE_DEVICES` is not set, the driver sees all GPUs."),
    ("empty", "", [], "If `CUDA_VISIBLE_DEVICES` is empty, the driver sees no GPU."),
    ("number", "0", [0], "`0` selects the first GPU."),
    ("minus one", "-1", [], "`-1` selects no GPU."),
    (
        "quotes",
        '"0"',
        [],
        '`"0"`, with quotes in the value, selects no GPU. `%env CUDA_VISIBLE_DEVICES="0"` sets this value.',
    ),
    ("duplicate", "0,0", [], "`0,0` names a GPU twice and selects no GPU."),
    (
        "bad entry",
        "0,x,0",
        [0],
        "An entry that is not a number ends the list: `0,x,0` selects the first GPU.",
    ),
    ("negative entry", "0,-1,0", [0], "A negative entry ends the list: `0,-1,0` selects the first GPU."),
    ("out of range", "0,{count}", [0], "A number that no GPU has ends the list."),
    (
        "out of range first",
        "{count},0",
        [],
        "If no GPU has the number in the first entry, the list selects no GPU.",
    ),
    ("empty entry", "0,,0", [0], "An empty entry ends the list: `0,,0` selects the first GPU."),
    (
        "letters",
        "0gpu",
        [0],
        "`0gpu` selects the first GPU, because the driver reads the number at the start.",
    ),
    ("leading space", " 0", [0], "The driver skips spaces before a number."),
    ("spaces", "0 1", [0], "`0 1` selects only the first GPU, because a space is not a separator."),
    ("semicolon", "0;1", [0], "`0;1` selects only the first GPU, because a semicolon is not a separator."),
    ("leading zero", "00", [0], "`00` selects the first GPU."),
    ("all", "all", [], "`all` selects no GPU."),
    ("none", "none", [], "`none` selects no GPU."),
    ("NoDevFiles", "NoDevFiles", [], "`NoDevFiles`, which schedulers set, selects no GPU."),
    ("UUID", "{0}", [0], "A GPU's UUID selects that GPU."),
    (
        "UUID prefix",
        "{short}",
        [0],
        "The beginning of a GPU's UUID selects that GPU if no other GPU matches.",
    ),
    (
        "lower case",
        "{lower}",
        [],
        "The `GPU-` of a UUID must be in capital letters. With `gpu-`, the UUID selects no GPU.",
    ),
    ("UUID twice", "{0},{0}", [], "The same UUID twice selects no GPU."),
    ("two prefixes", "{0},{short}", [], "A UUID and the beginning of the same UUID select no GPU."),
    ("number, then UUID", "0,{0}", [0], "A UUID after a number ends the list."),
    ("UUID, then number", "{0},0", [0], "A number after a UUID ends the list."),
    ("bad UUID", "GPU-no", [], "A UUID that matches no GPU selects no GPU."),
    (
        "bad UUID, then another",
        "GPU-no,{0}",
        [],
        "If the first UUID matches no GPU, the list selects no GPU, even if a valid UUID follows.",
    ),
)
_TWO: tuple[tuple[str, str | None, list[int] | None, str], ...] = (
    (
        "reversed",
        "1,0",
        [1, 0],
        "The driver keeps the order of the list: `1,0` makes the second GPU `cuda:0`.",
    ),
    (
        "reversed UUIDs",
        "{1},{0}",
        [1, 0],
        "The driver also keeps the order of UUIDs: the GPU of the first UUID is `cuda:0`.",
    ),
    (
        "UUID, then the number of another",
        "{0},1",
        [0],
        "A number after a UUID ends the list, even if the number belongs to another GPU.",
    ),
    (
        "number, then the UUID of another",
        "0,{1}",
        [0],
        "A UUID after a number ends the list, even if the UUID belongs to another GPU.",
    ),
    ("ambiguous", "GPU-", [], "If several GPUs match the beginning of a UUID, the beginning selects no GPU."),
    (
        "good, then ambiguous",
        "{0},GPU-",
        [0],
        "If several GPUs match the beginning of a UUID, the beginning ends the list.",
    ),
    (
        "duplicate later",
        "0,1,0",
        [],
        "If the last entry of a list names a GPU for the second time, the list selects no GPU.",
    ),
)


def _claim(name: str, mask: str | None, expected: list[int] | None, sentence: str, *needs: Need) -> Claim:
    return Claim(f"masks.reads:{name}", sentence, "process/mask.py", needs, arguments=(mask, expected))


CLAIMS = (
    *(_claim(*case, "whole GPUs") for case in _ONE),
    *(_claim(*case, "whole GPUs", "two GPUs") for case in _TWO),
)
