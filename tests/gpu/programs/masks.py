"""How the driver reads CUDA_VISIBLE_DEVICES: quotes, duplicates, bad entries, UUIDs, each in a fresh process.

GPUs are counted in nvidia-smi's order here: CUDA_DEVICE_ORDER is PCI_BUS_ID. Each claim is about the driver, and about
gpu_magic's own reading, which has to be the same.
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
    """Find out what the driver makes of a mask.

    Parameters
    ----------
    mask
        With `{count}` for the number of GPUs, `{0}` and `{1}` for UUIDs, and `{short}` for the beginning of the first
        one that fits no other, `{lower}` for it in small letters; None: not set.
    expected
        The numbers of the GPUs, in their order; None: all.

    """
    import gpu_magic
    from gpu_magic.devices.model import UNKNOWN
    from gpu_magic.process.mask import read

    wide()
    machine = gpu_magic.gpus().of_vendor("nvidia")
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
    """Return the shortest beginning of the first UUID that is not one of another."""
    first, *others = uuids
    for length in range(_SHORTEST, len(first)):
        if not any(other.startswith(first[:length]) for other in others):
            return first[:length]
    return first


def _listed(numbers: Sequence[int]) -> str:
    if not numbers:
        return "no GPU"
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


# Its name, what is set, what the driver sees, and that in words.
_ONE: tuple[tuple[str, str | None, list[int] | None, str], ...] = (
    ("unset", None, None, "Where `CUDA_VISIBLE_DEVICES` is not set, the driver sees all GPUs."),
    ("empty", "", [], "Where `CUDA_VISIBLE_DEVICES` is empty, the driver sees no GPU."),
    ("number", "0", [0], "`0` is the first GPU."),
    ("minus one", "-1", [], "`-1` is no GPU."),
    (
        "quotes",
        '"0"',
        [],
        '`"0"`, with quotes in the value, is no GPU: what `%env CUDA_VISIBLE_DEVICES="0"` sets.',
    ),
    ("duplicate", "0,0", [], "`0,0`, a GPU that is named twice, is no GPU at all."),
    ("bad entry", "0,x,0", [0], "An entry that is no number ends the list: `0,x,0` is the first GPU."),
    ("negative entry", "0,-1,0", [0], "A negative entry ends the list: `0,-1,0` is the first GPU."),
    ("out of range", "0,{count}", [0], "A number that no GPU has ends the list."),
    (
        "out of range first",
        "{count},0",
        [],
        "Where the first entry is a number that no GPU has, there is no GPU.",
    ),
    ("empty entry", "0,,0", [0], "An entry that is empty ends the list: `0,,0` is the first GPU."),
    ("letters", "0gpu", [0], "Of `0gpu` the number at its beginning is read: the first GPU."),
    ("leading space", " 0", [0], "Spaces before a number are skipped."),
    ("spaces", "0 1", [0], "`0 1` is the first GPU alone: a space separates nothing."),
    ("semicolon", "0;1", [0], "`0;1` is the first GPU alone: a semicolon separates nothing."),
    ("leading zero", "00", [0], "`00` is the first GPU."),
    ("all", "all", [], "`all` is no GPU."),
    ("none", "none", [], "`none` is no GPU."),
    ("NoDevFiles", "NoDevFiles", [], "`NoDevFiles`, which schedulers set, is no GPU."),
    ("UUID", "{0}", [0], "A GPU's UUID is that GPU."),
    ("UUID prefix", "{short}", [0], "The beginning of a GPU's UUID is that GPU, where it fits no other."),
    ("lower case", "{lower}", [], "A UUID needs its `GPU-` in capitals: with `gpu-` it is no GPU."),
    ("UUID twice", "{0},{0}", [], "A UUID that is named twice is no GPU at all."),
    ("two prefixes", "{0},{short}", [], "A UUID and the beginning of the same are no GPU at all."),
    ("number, then UUID", "0,{0}", [0], "A UUID after a number ends the list."),
    ("UUID, then number", "{0},0", [0], "A number after a UUID ends the list."),
    ("bad UUID", "GPU-no", [], "A UUID that fits no GPU is no GPU."),
    (
        "bad UUID, then another",
        "GPU-no,{0}",
        [],
        "A UUID that fits no GPU is no GPU also where a good one follows.",
    ),
)
_TWO: tuple[tuple[str, str | None, list[int] | None, str], ...] = (
    ("reversed", "1,0", [1, 0], "The order is kept: `1,0` makes the second GPU `cuda:0`."),
    ("reversed UUIDs", "{1},{0}", [1, 0], "The order is kept of UUIDs, too: the first is `cuda:0`."),
    (
        "UUID, then the number of another",
        "{0},1",
        [0],
        "A number after a UUID ends the list, also that of another GPU.",
    ),
    (
        "number, then the UUID of another",
        "0,{1}",
        [0],
        "A UUID after a number ends the list, also that of another GPU.",
    ),
    ("ambiguous", "GPU-", [], "The beginning of a UUID that fits several GPUs is no GPU."),
    (
        "good, then ambiguous",
        "{0},GPU-",
        [0],
        "The beginning of a UUID that fits several GPUs ends the list.",
    ),
    (
        "duplicate later",
        "0,1,0",
        [],
        "A GPU that is named again at the end of a list makes all of it no GPU at all.",
    ),
)


def _claim(name: str, mask: str | None, expected: list[int] | None, sentence: str, *needs: Need) -> Claim:
    return Claim(f"masks.reads:{name}", sentence, "process/mask.py", needs, arguments=(mask, expected))


CLAIMS = (
    *(_claim(*case, "whole GPUs") for case in _ONE),
    *(_claim(*case, "whole GPUs", "two GPUs") for case in _TWO),
)
