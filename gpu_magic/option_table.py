"""The table of the options: every option of a magic, of `gpu-magic`, and of a choice has its entry here.

Parsing, help, Tab, the arguments of `choose`, `wait_for` and `launch`, the terminal, a notebook's metadata,
the panel's options and the reference read these entries.
"""

from __future__ import annotations

import math
import textwrap
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_type_hints

from gpu_magic.errors import ChoiceError, as_flag
from gpu_magic.text import read_size, size_meant

__all__ = [
    "CHOICE",
    "FILTERS",
    "OPTIONS",
    "TYPICAL",
    "ChoiceOptions",
    "Filters",
    "Kind",
    "Option",
    "help_lines",
]

_COLUMNS = 100  # of a help
_SMALLEST = 1 << 20  # bytes


class Kind(Enum):
    """The values that an option takes, in the words of the reference."""

    FLAG = "no value"
    WORD = "a value without spaces"
    OPTIONAL = "a name, or nothing"
    TEXT = "all words up to the next option"
    SIZE = "8GB (10^9 bytes), 8GiB (2^30 bytes) or a number of bytes"
    TIME = "90s, 30m, 1h30m, 2d or a number of seconds"
    NUMBER = "a number"
    PAIRS = "`NAME=value`, several times"
    LIST = "names or numbers, with commas"


FLAG, WORD, OPTIONAL, TEXT = Kind.FLAG, Kind.WORD, Kind.OPTIONAL, Kind.TEXT
SIZE, TIME, NUMBER, PAIRS, LIST = Kind.SIZE, Kind.TIME, Kind.NUMBER, Kind.PAIRS, Kind.LIST
# What Tab offers for values of a kind.
TYPICAL = {SIZE: ("8GB", "16GB", "32GB", "64GB"), TIME: ("10m", "30m", "2h", "8h")}


class Option(NamedTuple):
    """An option, as it is typed: `--min-free 20GB`. A tuple as its kind has the words that it takes."""

    name: str
    kind: Kind | tuple[str, ...]
    help: str
    example: str = ""  # a value
    more: str = ""  # for the reference: what the help has no space for
    short: str = ""  # another name, of one letter
    in_full: bool = False  # it can do harm, so it is not abbreviated, nor suggested for a word unlike it
    # For options of a choice:
    at_start: bool = True  # it works when a kernel starts: in a notebook's metadata and a kernelspec
    with_numbers: bool = False  # it is a filter that also goes with GPU numbers, not only with `auto`

    @property
    def attribute(self) -> str:
        """Its name in Python: `min_free`."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def forms(self) -> str:
        """Its names and a value, as the help shows them: `-n, --count 2`."""
        return " ".join(filter(None, (", ".join(filter(None, (self.short, self.name))), self.example)))

    @property
    def in_panel(self) -> bool:
        """Whether the panel has a control for it: for a flag or a text."""
        return self.at_start and not isinstance(self.kind, tuple)

    @property
    def takes(self) -> str:
        """Its values, in words."""
        return " or ".join(self.kind) if isinstance(self.kind, tuple) else self.kind.value

    @property
    def default(self) -> bool | None:
        """Its value if it is not given."""
        return False if self.kind is FLAG else None

    def check(self, value: Any) -> Any:
        """Return a value of a choice's option. Raise ChoiceError or TypeError if it is invalid."""
        if self.kind is FLAG:
            return as_flag(self.attribute, value)
        if value is None:
            return None
        given, better = f"{self.name} {value!s:.40}", self.example
        if isinstance(self.kind, tuple):
            if value not in self.kind:
                words = " nor ".join(map(repr, self.kind))
                raise ChoiceError(f"{self.attribute}={value!r:.40} is neither {words}.")
        elif self.kind is SIZE:
            size, better = read_size(value), size_meant(value, self.example)
            if size is None or 0 < size < _SMALLEST:
                what = "not a size" if size is None else "less than 1 MiB"
                raise ChoiceError(f"{given} is {what}. Try {self.name} {better}")
        elif self.kind is NUMBER:
            number = _number(value)
            if number is None:
                raise ChoiceError(f"{given} is not a number. Try {self.name} {better}")
            return number
        elif not isinstance(value, str):
            raise ChoiceError(f"{self.name} {value!r:.40} is not a name. Try {self.name} {better}")
        return value


def _number(value: Any) -> float | None:
    """Return a number, without decimals if it has none. None if it is not a finite number."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


class Filters(TypedDict, total=False):
    """The options that say which GPUs `auto` can pick: also of `launch`, and of commands in a terminal."""

    only_free: Annotated[
        bool,
        Option(
            "--only-free",
            FLAG,
            "only free, unclaimed GPUs; GPU numbers: only if all are free",
            more="GPUs that only this process uses count as free.",
            with_numbers=True,
        ),
    ]
    min_free: Annotated[
        str | int | None,
        Option("--min-free", SIZE, "`auto`: GPUs with at least this much free memory", "20GB"),
    ]
    model: Annotated[
        str | None, Option("--model", TEXT, "`auto`: GPUs with these words in their names", "A100")
    ]


class ChoiceOptions(Filters, total=False):
    """The options of a choice: arguments of `choose` and `wait_for`, and options of `%gpus`."""

    growth: Annotated[
        bool,
        Option("--growth", FLAG, "TensorFlow and JAX allocate memory as needed, not most of a GPU at once"),
    ]
    memory_limit: Annotated[
        str | int | None,
        Option(
            "--memory-limit", SIZE, "TensorFlow, JAX and PyTorch use at most this much of each GPU", "8GB"
        ),
    ]
    order: Annotated[
        Literal["pci", "fastest"] | None,
        Option(
            "--order",
            ("pci", "fastest"),
            "set CUDA_DEVICE_ORDER to FASTEST_FIRST; pci: PCI_BUS_ID, nvidia-smi's order",
            "fastest",
            more=(
                "Without it: as when the process started. With fastest, `all` and `auto:2` follow CUDA's own "
                "order if gpu_magic can know it."
            ),
        ),
    ]
    force: Annotated[
        bool,
        Option(
            "--force",
            FLAG,
            "allow GPUs outside those that the process was given",
            in_full=True,
            at_start=False,
        ),
    ]
    # Only in Python. In a notebook, it is configuration: `c.GpuMagics.by`.
    by: Annotated[
        Literal["index", "uuid"] | None,
        Option("by", ("index", "uuid"), "write CUDA_VISIBLE_DEVICES as numbers or as UUIDs", at_start=False),
    ]


def _entries(options: type) -> dict[str, Option]:
    """Return the entries of a class, by their names in Python."""
    hints = get_type_hints(options, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


# By their names in Python.
FILTERS = _entries(Filters)
CHOICE = _entries(ChoiceOptions)

_WAIT = Option("--wait", TIME, "wait at most this long for the GPUs; earlier waits choose first", "30m")
_OR_CPU = Option("--or-cpu", FLAG, "run on the CPU, and print why, if the GPU cannot be used")
_ALL = Option("--all", FLAG, "every variable that can move", in_full=True)
_DRY_MOVE = Option("--dry-run", FLAG, "print what would move, its size, and whether it fits")
_COUNT = Option("--count", WORD, "only the first two of these GPUs", "2", short="-n")
_JSON = Option("--json", FLAG, "the same as JSON, with all facts")
_PREFIX = Option("--prefix", WORD, "those installed with `--prefix`", "FOLDER")
_FORCE = CHOICE["force"]
# Of `%gpu_launch` and `gpu-magic launch`.
_LAUNCH = [
    Option("--gpus", LIST, "GPUs, as typed after `%gpus`; without it: those that this process sees", "2,0"),
    _COUNT,
    Option("--each", FLAG, "start the command once per GPU, with GPU_MAGIC_INDEX and GPU_MAGIC_COUNT set"),
    Option("--env", PAIRS, "a variable for the command; repeat for more", "NAME=value"),
    Option("--cwd", WORD, "the command's working directory", "FOLDER"),
    *FILTERS.values(),
    _WAIT,
    _FORCE,
    Option("--dry-run", FLAG, "print the command as for a shell, and start nothing"),
]

_TABLE: dict[str, list[Option]] = {
    "%gpus": [
        *FILTERS.values(),
        _WAIT,
        *(one for name, one in CHOICE.items() if name not in (*FILTERS, "by", "force")),
        Option(
            "--in-process", FLAG, "after CUDA has started: frameworks use these visible GPUs from here on"
        ),
        Option(
            "--restart",
            FLAG,
            "if it is too late: restart the kernel. `%load_ext gpu_magic` applies the choice",
            in_full=True,
        ),
        Option("--strict", FLAG, "if it is too late: raise an error, which stops Run All"),
        _FORCE,
        Option("--dry-run", FLAG, "print what would be set, and change nothing"),
    ],
    "%%on_gpu": [
        Option("--only", TEXT, "set only these frameworks: torch, tensorflow, jax, cupy, keras", "torch,jax"),
        _OR_CPU,
        Option("--mirror", FLAG, "run under a tf.distribute.MirroredStrategy: `%%on_gpu 0,1 --mirror`"),
        Option(
            "--background",
            OPTIONAL,
            "run in a thread under this name while other cells run: see `%gpu_tasks`",
            "eval",
        ),
        Option("--verbose", FLAG, "print where the cell ran", short="-v"),
    ],
    "%to_gpu": [
        Option("--device", WORD, "to `cuda:1`, or any device of `%%on_gpu`: smi:3, GPU-8f3a, cpu", "1"),
        _ALL,
        _DRY_MOVE,
        Option(
            "--numpy",
            ("torch", "jax", "cupy"),
            "convert NumPy arrays to tensors (torch, jax or cupy); otherwise they stay",
            "torch",
        ),
        _OR_CPU._replace(help="move to the CPU, and print why, if the GPU cannot be used"),
    ],
    "%to_cpu": [_ALL, _DRY_MOVE],
    "%gpu_park": [Option("--dry-run", FLAG, "print what would be parked, and its size")],
    "%gpu_unpark": [
        Option("--device", WORD, "all to this device, as for `%to_gpu`, not each to its own GPU", "1"),
        _WAIT._replace(help="wait at most this long for free memory; earlier waits come first"),
        Option("--dry-run", FLAG, "print what would go back, and whether it fits"),
    ],
    "%where": [],
    "%gpu_fit": [
        Option(
            "--loss",
            TEXT,
            "`loss(outputs, targets)`, or a module; without it: `outputs.loss`, or the sum of the outputs",
            "EXPR",
        ),
        Option("--eval", FLAG, "only the forward pass"),
        Option("--amp", FLAG, "mixed precision: float16, or the `--dtype`"),
        Option(
            "--dtype",
            ("bfloat16", "float16", "float32", "float64"),
            "type of the model and the batch",
            "bfloat16",
        ),
        Option("--batch", WORD, "predict for a batch of this size", "64"),
    ],
    "%gpu_free": [Option("--dry-run", FLAG, "print what it would drop, and drop nothing")],
    "%gpu_doctor": [Option("--report", FLAG, "the same for an issue, without names and paths"), _JSON],
    "%gpu_ps": [
        Option("--kill", FLAG, "send SIGKILL. Refused until 5 s after SIGTERM", in_full=True),
        Option("--yes", FLAG, "end the process without a question", in_full=True),
    ],
    "%gpu_panel": [],
    "%gpu_time": [Option("--json", FLAG, "`%%gpu_time` prints the measurement as JSON")],
    "%gpu_launch": [
        *_LAUNCH,
        Option("--background", WORD, "return at once; see `%gpu_tasks`", "NAME"),
        Option("--keep", FLAG, "keep the output files, and the cell's script"),
    ],
    "%gpu_cluster": [
        _COUNT,
        Option("--profile", WORD, "start engines with this IPython profile (ssh, Slurm)", "slurm"),
        _FORCE,
    ],
    "%gpu_tasks": [],
    "gpu-magic": [
        Option("--json", FLAG, "the GPUs as JSON: bytes, percent, degrees Celsius, watts; unknown: null"),
        Option("--version", FLAG, "print the version"),
    ],
    "gpu-magic launch": [
        *_LAUNCH,
        Option(
            "--json",
            FLAG,
            "first print a line of JSON: the picked GPUs, or why nothing was started and when to try again",
        ),
    ],
    "gpu-magic ps": [
        Option(
            "--idle", TIME, "those that have been idle for at least this long; by default 10 minutes", "4h"
        ),
        _JSON,
    ],
    "gpu-magic doctor": [Option("--report", FLAG, "text for an issue, without names and paths"), _JSON],
    "gpu-magic kernel install": [
        Option("--gpus", LIST, "GPUs, as typed after `%gpus`; by default a free GPU", "2,0"),
        *(one for one in CHOICE.values() if one.at_start),
        Option("--name", WORD, "the kernel's name, for papermill and nbclient", "NAME"),
        Option("--display-name", WORD, "the name that Jupyter shows", "TEXT"),
        Option("--plain", FLAG, "do not load gpu_magic in the kernel"),
        Option("--user", FLAG, "install for all environments of this user"),
        Option("--sys-prefix", FLAG, "install in this environment, the default"),
        _PREFIX._replace(help="install in the environment of the Jupyter server"),
    ],
    "gpu-magic kernel list": [_PREFIX],
    "gpu-magic kernel remove": [_PREFIX],
}
# The options of each magic and of each action of `gpu-magic`, by their names as typed.
OPTIONS = {command: {one.name: one for one in options} for command, options in _TABLE.items()}


def help_lines(command: str) -> str:
    """Return the options of a command, a line or more each, as in its help."""
    options = OPTIONS[command].values()
    width = max((len(one.forms) for one in options), default=0) + 2
    lines = []
    for one in options:
        text = textwrap.wrap(one.help, _COLUMNS - width)
        lines.append(f"{one.forms:{width}}{text[0]}")
        lines += [" " * width + more for more in text[1:]]
    return "\n".join(lines)
