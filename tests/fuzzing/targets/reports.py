"""What the machine and other programs say: names from the driver, errors of frameworks, GPU_MAGIC_SIMULATE."""

from __future__ import annotations

import json
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import gpu_magic
from gpu_magic.devices.binding import list_gpus
from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.simulated import ensure, leave
from gpu_magic.doctor.diagnosis import without_private
from gpu_magic.errors import GpuMagicError, SimulationError
from gpu_magic.frameworks.base import wanted_in
from gpu_magic.gpus.auto import check_free
from gpu_magic.panel.machine import serialize
from gpu_magic.process.session import current
from gpu_magic.process.view import Snapshot
from gpu_magic.testing import simulate
from tests.fuzzing.target import Target, check_line, check_refusal, fields_of, text_of

__all__ = ["TARGETS"]

_LONGEST_NAME = 90  # bytes of a name of NVML's


class _Tags(HTMLParser):
    """The tags of a page, and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(f"{tag} {name}" for name, _ in attrs)}


def check_names(data: bytes) -> None:
    """Check the names of a GPU, the driver, a program, its user and its notebook, and a mask, in a line each."""
    model, driver, program, user, notebook, _ = fields_of(data.decode("utf-8", "replace").encode(), 6)
    mask = fields_of(data, 6)[-1].replace("\0", "") or "0"
    shown = []
    for names in (
        (model, driver, program, user, notebook),
        ("A100", "580.65", "train.py", "maria", "a.ipynb"),
    ):
        with simulate("2xA100-80GB", mask=mask, order="PCI_BUS_ID", clock=lambda: 0.0) as machine:
            first = machine.gpus[0]
            first.model = first.model._replace(name=names[0].encode()[:_LONGEST_NAME].decode(errors="ignore"))
            machine.driver = names[1].encode()[: _LONGEST_NAME // 2].decode(errors="ignore")
            first.run(names[2], names[3], 1 << 30, work=50, age=60, is_same_user=True, notebook=names[4])
            gpus = gpu_magic.gpus()
            shown.append((repr(gpus), _Tags(gpus._repr_html_()).found))
            snapshot = Snapshot.take(current())
            sent = json.dumps(serialize(snapshot), allow_nan=False, ensure_ascii=False)
            assert json.loads(sent.encode())
            texts = [repr(gpu_magic.my_processes()), shown[-1][0]]
            try:
                texts.append(repr(gpu_magic.choose("0", force=True)))
                check_free(snapshot.devices)
            except GpuMagicError as error:
                check_refusal(error)
            assert all(line.isprintable() for text in texts for line in text.split("\n"))
    hostile, plain = shown
    assert len(hostile[0].split("\n")) == len(plain[0].split("\n")), "a name makes lines of its own"
    assert hostile[1] <= plain[1], f"a name makes tags of its own: {hostile[1] - plain[1]}"


def check_simulation(data: bytes) -> None:
    """Check GPU_MAGIC_SIMULATE: it describes a machine that can be read, or is refused."""
    text = data.decode("utf-8", "replace").replace("\0", "")
    try:
        try:
            ensure(text)
            gpus = gpu_magic.gpus()
        finally:
            leave()
    except SimulationError as error:
        check_refusal(error)
        return
    if gpus.simulated:
        check_line(gpus.simulated)
    assert len(gpus) <= 256


def check_error_of_framework(data: bytes) -> None:
    """Check the text of a framework's error: how much memory it says was asked for, if any."""
    wanted = wanted_in(text_of(data))
    assert wanted is None or (type(wanted) is int and wanted >= 0)


def check_report(data: bytes) -> None:
    """Check a text that goes into a report for others, behind a name that is not to be in it."""
    name, text = fields_of(data, 2)
    if len(name) < 2:
        return
    shown = without_private(f"/home/{name}/x {text}", [name])
    assert f"/home/{name}" not in shown or not name.isalnum()
    again = without_private(shown, [name])
    assert not (name.isalnum() and name.isascii() and f" {name} " in f" {again} ")


def check_kernel_module(data: bytes) -> None:
    """Check the `information` that NVIDIA's kernel module gives of a GPU."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "proc/driver/nvidia/gpus/0000:07:00.0").mkdir(parents=True)
        (root / "dev").mkdir()
        (root / "dev/nvidia0").touch()
        (root / "proc/driver/nvidia/gpus/0000:07:00.0/information").write_bytes(data)
        for gpu in list_gpus(root):
            assert gpu.uuid is UNKNOWN or len(gpu.uuid) == 40
            assert gpu.index == 0


TARGETS = (
    Target(
        "names",
        check_names,
        "names from the driver, and those of programs, users and notebooks",
        (
            "<b>",
            "&lt;",
            "</style>",
            "<script>",
            "'",
            '"',
            "\\x1b[2J",
            "\\xe2\\x80\\xae",
            "\\r",
            "/",
            "train.py",
            "|",
            "`",
            "A100",
        ),
        (
            "NVIDIA A100\n580.65\npython\nmaria\nwork/a.ipynb",
            "<b>x</b>\n1\n<i>\n</td>\n'>\n0,\x1b<b>",
            "\x1b[2J\n\r\n\u202e\n\x00\n\u2028",
        ),
    ),
    Target(
        "simulation",
        check_simulation,
        "GPU_MAGIC_SIMULATE",
        tuple(
            "8xA100-80GB 2x RTX-4090 T4 + (3g.40gb,4g.40gb) 1g.10gb seed=3 clock=0 own=0:12GiB:60 0x , = x".split()
        ),
        (
            "8xA100-80GB seed=3 clock=0",
            "1xA100-80GB(3g.40gb,4g.40gb)+1xT4",
            "0xT4",
            "2xT4 own=1:2GiB:100",
            "",
        ),
    ),
    Target(
        "framework-errors",
        check_error_of_framework,
        "errors of frameworks that say how much memory was asked for",
        ("allocate ", "allocating ", "bytes", "KiB", "MiB", "GiB", "TiB", ",", ".", "Tried to ", "0", "9"),
        ("Tried to allocate 20.00 GiB.", "allocating 1,024 bytes", "trying to allocate 8589934592 bytes"),
    ),
    Target(
        "reports",
        check_report,
        "texts that go into a report for others",
        ("/home/", "GPU-8f3a", "MIG-", "/dev/nvidia", "~", "http://", "-", "maria", "(", ":"),
        ("maria\n/home/maria/x.py GPU-8f3a0000-0000-4000-8000-000000000001 on maria", "bob\nbob-laptop: bob"),
    ),
    Target(
        "kernel-module",
        check_kernel_module,
        "what NVIDIA's kernel module says of a GPU in /proc",
        ("Model:", "GPU UUID:", "Device Minor:", "GPU Excluded:", "No", "Yes", "\\t", "GPU-"),
        (
            "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-8f3a0000-0000-4000-8000-000000000001\nDevice Minor: \t 0\n",
        ),
    ),
)
